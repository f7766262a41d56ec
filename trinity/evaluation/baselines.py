"""Policies to compare a coordinator with."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from trinity.episode.policy import Logits, Policy, Position
from trinity.episode.roles import Role

Step = tuple[int, Role]
Schedule = tuple[Step, ...]


def _certain(index: int, size: int) -> Logits:
    logits = np.full(size, -np.inf)
    logits[index] = 0.0
    return logits


class UniformPolicy:
    """Random routing: every agent and every role is as likely as any other."""

    def __init__(self, agents: int) -> None:
        self._agents = agents

    async def logits(self, position: Position, segments: Sequence[str]) -> tuple[Logits, Logits]:
        """Zeros."""
        return np.zeros(self._agents), np.zeros(len(Role))


class SchedulePolicy:
    """A fixed schedule of (agent, role), blind to the transcript."""

    def __init__(self, agents: int, schedule: Schedule) -> None:
        self._agents = agents
        self._schedule = schedule

    async def logits(self, position: Position, segments: Sequence[str]) -> tuple[Logits, Logits]:
        """The schedule's entry of this turn, with certainty."""
        agent, role = self._schedule[position.turn]
        return _certain(agent, self._agents), _certain(role, len(Role))


class RecordingPolicy:
    """Passes another policy's logits on and keeps them, by task and turn."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.seen: dict[str, dict[int, tuple[Logits, Logits]]] = {}

    async def logits(self, position: Position, segments: Sequence[str]) -> tuple[Logits, Logits]:
        """What the other policy says."""
        found = await self._policy.logits(position, segments)
        self.seen.setdefault(position.task_id, {})[position.turn] = found
        return found


class ShuffledPolicy:
    """Decides for each task from the hidden states of another task's trajectory.

    What is left of a coordinator's gain under it owes nothing to the task at hand.

    Args:
        seen: logits by task and turn, from a `RecordingPolicy`.
        donors: task id -> id of the task whose states are used.
    """

    def __init__(self, seen: dict[str, dict[int, tuple[Logits, Logits]]], donors: dict[str, str]) -> None:
        self._seen = seen
        self._donors = donors

    async def logits(self, position: Position, segments: Sequence[str]) -> tuple[Logits, Logits]:
        """The donor's logits in the same turn, or in its last one where its trajectory was shorter."""
        states = self._seen[self._donors[position.task_id]]
        return states[min(position.turn, max(states))]


def best_schedule(
    value: Callable[[Schedule], float],
    agents: Sequence[int],
    roles: Sequence[Role],
    turns: int,
    sweeps: int = 2,
) -> Schedule:
    """A good fixed schedule, by coordinate ascent of `value` from each agent's all-Worker schedule.

    Each sweep tries every (agent, role) in every turn; a lower bound of the best schedule, found with
    agents x sweeps x turns x (agents x roles) evaluations.
    """
    options: list[Step] = list(product(agents, roles))
    known: dict[Schedule, float] = {}

    def worth(schedule: Schedule) -> float:
        if schedule not in known:
            known[schedule] = value(schedule)
        return known[schedule]

    def climb(schedule: Schedule) -> Schedule:
        for _ in range(sweeps):
            for turn in range(turns):
                trials = [(*schedule[:turn], option, *schedule[turn + 1 :]) for option in options]
                schedule = max([schedule, *trials], key=worth)
        return schedule

    return max((climb(((agent, Role.WORKER),) * turns) for agent in agents), key=worth)
