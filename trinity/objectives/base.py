"""The interface of an objective: one minibatch of tasks -> one update of the parameters."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor
from torch.optim import Optimizer

from trinity.episode.scheduler import Failure, Graded
from trinity.objectives.ledger import Ledger
from trinity.tasks.task import Task


class Arena(Protocol):
    """Where candidates play; `CoordinatorModule` is one."""

    def play(
        self, thetas: Tensor, tasks: Sequence[Task], *, stage: str, generation: int, shared_draws: bool
    ) -> list[Graded | Failure]:
        """One trajectory for each candidate of thetas (lambda, n) and task, in any order."""


@dataclass(frozen=True, slots=True)
class Update:
    """What one training step did, for the callbacks.

    `metrics` goes to the loggers under its own names; `ledger` accounts for every trajectory.
    """

    generation: int
    ledger: Ledger
    metrics: dict[str, float] = field(default_factory=dict)


class Objective(ABC):
    """How a minibatch becomes an update."""

    @abstractmethod
    def step(self, arena: Arena, optimizer: Optimizer, tasks: Sequence[Task], generation: int) -> Update:
        """Make one update. Raises UserError where too many trajectories could not be finished."""
