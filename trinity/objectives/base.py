"""The interface of an objective: one minibatch of tasks -> one update of the parameters."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor, nn
from torch.optim import Optimizer

from trinity.episode.rollout import EpisodeSettings
from trinity.episode.scheduler import Failure, Graded
from trinity.errors import UserError
from trinity.objectives.ledger import Ledger
from trinity.optimizers.base import EvolutionStrategy
from trinity.tasks.task import Task

TRAINING_STAGES = ("train", "again")
"""The stages whose trajectories take the training selection."""


class Gradients(Protocol):
    """Logits of the present theta, differentiable (see `trinity.coordinator.gradients`)."""

    def logits(self, segments: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Agent logits (L,) and role logits (3,), float64, for one transcript."""

    def gradients(self) -> dict[str, Tensor]:
        """What the backward passes left, by block of theta."""


class Arena(Protocol):
    """Where candidates play; `CoordinatorModule` is one."""

    @property
    def episode(self) -> EpisodeSettings:
        """The rules of a trajectory."""

    @property
    def head(self) -> nn.Module:
        """The head: hidden states (..., d) -> logits (..., L + 3)."""

    @property
    def agents(self) -> int:
        """L."""

    def blocks(self) -> dict[str, nn.Parameter]:
        """theta's blocks by name: `head.*`, `svf`."""

    def theta(self) -> Tensor:
        """theta (n,), on the CPU."""

    def play(
        self,
        thetas: Tensor,
        tasks: Sequence[Task],
        *,
        stage: str,
        generation: int,
        shared_draws: bool = True,
        copies: int = 1,
    ) -> list[Graded | Failure]:
        """`copies` trajectories for each candidate of thetas (lambda, n) and task, in any order."""

    def play_agents(
        self, tasks: Sequence[Task], *, stage: str, samples: int, generation: int
    ) -> list[Graded | Failure]:
        """`samples` single Worker turns of each agent on each task; candidate i is agent i."""

    def gradients(self) -> Gradients:
        """Differentiable logits."""

    def features(self, tasks: Sequence[Task]) -> Tensor:
        """Hidden states (tasks, d) of the unadapted model at the tasks' queries."""


@dataclass(frozen=True, slots=True)
class Update:
    """What one training step did, for the callbacks.

    `metrics` goes to the loggers under its own names; `ledger` accounts for every trajectory.
    """

    generation: int
    ledger: Ledger
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Plan:
    """A training as its config describes it: what `Objective.planned` counts trajectories from.

    `agents` counts those on offer, `temperature` is that of their answers.
    """

    steps: int
    minibatch: int
    n: int
    population: int
    agents: int
    training_tasks: int
    temperature: float


def unwrapped(optimizer: Optimizer) -> Optimizer:
    """The optimizer itself, where Lightning has wrapped it to count its steps."""
    return getattr(optimizer, "optimizer", optimizer)


def require_gradients(objective: "Objective", optimizer: Optimizer) -> None:
    """Raises UserError where the optimizer is an evolution strategy."""
    if isinstance(unwrapped(optimizer), EvolutionStrategy):
        raise UserError(
            f"The objective {type(objective).__name__} needs an optimizer that follows gradients, such as "
            "Adam, not an evolution strategy; change model.optimizer or model.objective."
        )


class Objective(ABC):
    """How a minibatch becomes an update."""

    #: Whether its trajectories are single turns.
    single_turn = False

    @abstractmethod
    def planned(self, plan: Plan) -> int:
        """How many trajectories the training plays."""

    @abstractmethod
    def step(self, arena: Arena, optimizer: Optimizer, tasks: Sequence[Task], generation: int) -> Update:
        """Make one update. Raises UserError where too many trajectories could not be finished."""

    def state(self) -> dict[str, Any]:
        """What a checkpoint must hold beside the optimizer's state, in tensors and plain values."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most have none
        """Take up what `state` gave."""
