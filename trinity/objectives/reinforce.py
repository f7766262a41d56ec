"""REINFORCE: the policy gradient of sampled trajectories (Williams 1992)."""

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Literal

import torch
from torch import Tensor
from torch.optim import Optimizer

from trinity.episode.rollout import EpisodeSettings, Trajectory
from trinity.episode.scheduler import Graded
from trinity.episode.transcript import Transcript
from trinity.errors import UserError
from trinity.objectives.base import Arena, Gradients, Objective, Plan, Update, require_gradients
from trinity.objectives.ledger import account
from trinity.optimizers.base import default_population_size
from trinity.tasks.task import Task

Baseline = Literal["task", "batch"]
_BASELINES: tuple[Baseline, ...] = ("task", "batch")


class Reinforce(Objective):
    """One step: `samples` trajectories on each of the m tasks, then one step along their policy gradient.

    The gradient of J is estimated by (1/N) Σ_i (R_i - b_i) ∇ log π(trajectory i), where log π sums the
    logarithms of all its choices of agent and of role, and b_i is the mean reward of the other trajectories
    on the same task (leave-one-out, which leaves the estimate unbiased: Kool, van Hoof and Welling 2019). It
    reaches the head and the singular-value scales. Trajectories are sampled, each with draws of its own.

    Logged beside J: `reinforce/advantage_variance/task` and `.../batch`, the mean of (R_i - b_i)² under
    either baseline on the step's own trajectories. The more the tasks' difficulties differ, the lower is the
    first beside the second.

    Args:
        samples: trajectories of a task; None is ceil(4 + 3 ln n), the population size of an evolution
            strategy: so both take as many a step, 16 x 33 = 528.
        baseline: b_i is the mean over the other trajectories of the `task`, or of the whole `batch`, which is
            as unbiased but also counts how hard a task is as a trajectory's merit.
        entropy_bonus: weight of the mean entropy of the choices' distributions in what is maximised.
        max_gradient_norm: longer gradients are scaled to this norm, in units of x; None leaves them.
        max_dropped_share: as for `Evolution`.
    """

    def __init__(
        self,
        samples: int | None = None,
        baseline: Baseline = "task",
        entropy_bonus: float = 0.0,
        max_gradient_norm: float | None = 1.0,
        max_dropped_share: float = 0.25,
    ) -> None:
        if samples is not None and samples < 2:
            raise UserError(f"objective.samples is {samples}, but must be at least 2; raise it.")
        if max_gradient_norm is not None and not max_gradient_norm > 0:
            raise UserError(f"objective.max_gradient_norm is {max_gradient_norm}, but must be above 0.")
        self.samples = samples
        self.baseline = baseline
        self.entropy_bonus = entropy_bonus
        self.max_gradient_norm = max_gradient_norm
        self.max_dropped_share = max_dropped_share

    def planned(self, plan: Plan) -> int:
        """See `Objective.planned`."""
        return plan.steps * plan.minibatch * self._samples(plan.n)

    def _samples(self, n: int) -> int:
        return self.samples or default_population_size(n)

    def step(self, arena: Arena, optimizer: Optimizer, tasks: Sequence[Task], generation: int) -> Update:
        """See `Objective.step`."""
        require_gradients(self, optimizer)
        theta = arena.theta()
        copies = self._samples(len(theta))
        results = arena.play(theta[None], tasks, stage="train", generation=generation, copies=copies)
        ledger = account(results, self.max_dropped_share)
        under = {baseline: advantages(ledger.kept, baseline) for baseline in _BASELINES}
        used = under[self.baseline]
        gradients = arena.gradients()
        entropy = accumulate(
            gradients,
            [graded.trajectory for graded in ledger.kept],
            [advantage / len(used) for advantage in used],
            {task.id: task.query for task in tasks},
            arena.episode,
            self.entropy_bonus,
        )
        norm = self._apply(gradients.gradients(), arena, optimizer)
        optimizer.step()
        optimizer.zero_grad()
        metrics = {
            "J/population_mean": ledger.mean_reward,
            "reinforce/gradient_norm": norm,
            "reinforce/entropy": entropy,
            **{
                f"reinforce/advantage_variance/{baseline}": fmean(value * value for value in found)
                for baseline, found in under.items()
            },
        }
        return Update(generation, ledger, metrics)

    def _apply(self, found: dict[str, Tensor], arena: Arena, optimizer: Optimizer) -> float:
        """Hand the gradients to the parameters, clipped; returns their norm before, in units of x."""
        scales = {id(p): group.get("scale", 1.0) for group in optimizer.param_groups for p in group["params"]}
        blocks = arena.blocks()
        squares = [float((found[name] * scales[id(p)]).square().sum()) for name, p in blocks.items()]
        norm = math.sqrt(sum(squares))
        limit = self.max_gradient_norm
        factor = 1.0 if limit is None or norm <= limit else limit / norm
        for name, parameter in blocks.items():
            parameter.grad = (found[name] * factor).to(parameter.device, parameter.dtype)
        return norm


def advantages(kept: Sequence[Graded], baseline: Baseline) -> list[float]:
    """The advantage of each trajectory: its reward minus its baseline.

    The baseline is a mean over other trajectories only: with its own reward in it the estimate would be
    biased. Where a trajectory is its task's only one, it takes the whole batch's; where it is the only one at
    all, 0.
    """
    everyone = _Rewards.of(kept)
    tasks: dict[str, list[Graded]] = defaultdict(list)
    for graded in kept:
        tasks[graded.task_id].append(graded)
    by_task = {task: _Rewards.of(found) for task, found in tasks.items()}
    found = []
    for graded in kept:
        own = by_task[graded.task_id]
        group = own if baseline == "task" and own.count > 1 else everyone
        found.append(graded.reward - group.mean_without(graded.reward))
    return found


@dataclass(frozen=True, slots=True)
class _Rewards:
    """The rewards of some trajectories: their sum, and how many they are."""

    total: int
    count: int

    @classmethod
    def of(cls, graded: Sequence[Graded]) -> "_Rewards":
        return cls(sum(one.reward for one in graded), len(graded))

    def mean_without(self, reward: int) -> float:
        """The mean of all but one of them."""
        return (self.total - reward) / (self.count - 1) if self.count > 1 else 0.0


@dataclass
class _Decided:
    """What was chosen at one transcript, all trajectories together: sums of weights, and how often."""

    agents: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    roles: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    times: int = 0


def accumulate(
    gradients: Gradients,
    trajectories: Sequence[Trajectory],
    weights: Sequence[float],
    queries: dict[str, str],
    episode: EpisodeSettings,
    entropy_bonus: float = 0.0,
) -> float:
    """Pass -Σ_i w_i log π(trajectory i) - bonus · (mean entropy) backward, transcript by transcript.

    Trajectories that have not parted yet share their transcripts, each of which is computed once. A role that
    a Thinker named was no choice of the policy, and what is not on offer has no part in it.

    Returns:
        The mean entropy of the distributions of agent and role together, over all decisions, in nats.
    """
    decided: dict[tuple[str, ...], _Decided] = defaultdict(_Decided)
    for path, weight in zip(trajectories, weights, strict=True):
        transcript = Transcript(queries[path.task_id])
        for turn in path.turns:
            found = decided[tuple(transcript.segments(episode.router_view))]
            found.times += 1
            found.agents[turn.agent] += weight
            if episode.named_role(transcript) is None:
                found.roles[int(turn.role)] += weight
            transcript.turns.append(turn)
    decisions = sum(found.times for found in decided.values())
    roles_offered = [index for index, on_offer in enumerate(episode.offered) if on_offer]
    total = 0.0
    for segments, found in decided.items():
        agents, roles = gradients.logits(segments)
        log_agents, agent_entropy = _log_probabilities(agents, episode.agents)
        log_roles, role_entropy = _log_probabilities(roles, roles_offered)
        entropy = agent_entropy + role_entropy
        share = found.times / decisions
        loss = -entropy_bonus * share * entropy
        for log_probabilities, chosen in ((log_agents, found.agents), (log_roles, found.roles)):
            for index, weight in chosen.items():
                loss = loss - weight * log_probabilities[index]
        loss.backward()  # type: ignore[no-untyped-call]
        total += share * float(entropy.detach())
    return total


def _log_probabilities(logits: Tensor, offered: Sequence[int] | None) -> tuple[Tensor, Tensor]:
    """Logarithms of the probabilities, 0 where nothing is on offer, and their distribution's entropy."""
    on_offer = torch.tensor(range(len(logits)) if offered is None else list(offered))
    among = torch.log_softmax(logits[on_offer], dim=0)
    return torch.zeros_like(logits).index_copy(0, on_offer, among), -(among.exp() * among).sum()
