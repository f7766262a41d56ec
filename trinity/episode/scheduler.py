"""Many trajectories at once."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from trinity.episode.rollout import Draw, Rollout, RolloutTask, Trajectory
from trinity.errors import UserError
from trinity.pool.base import InfrastructureError


class Grade(Protocol):
    """What the scheduler needs of a grade."""

    @property
    def reward(self) -> int:
        """0 or 1."""


TaskT = TypeVar("TaskT", bound=RolloutTask)


@dataclass(frozen=True)
class Job(Generic[TaskT]):
    """One trajectory to run."""

    task: TaskT
    candidate: int
    draw: Draw


@dataclass(frozen=True, slots=True)
class Graded:
    """A finished trajectory and its reward (0 or 1)."""

    trajectory: Trajectory
    reward: int

    @property
    def candidate(self) -> int:
        """The candidate that ran it."""
        return self.trajectory.candidate

    @property
    def task_id(self) -> str:
        """The task it ran on."""
        return self.trajectory.task_id


@dataclass(frozen=True, slots=True)
class Failure:
    """A trajectory that could not be finished; it has no reward. `cost` is what it cost all the same."""

    candidate: int
    task_id: str
    agent: str
    cause: str
    cost: float = 0.0


def most_common(failures: Sequence[Failure]) -> str:
    """The three most common causes, each with its agent and count."""
    counts = Counter((failure.agent, failure.cause) for failure in failures)
    return ", ".join(f"{agent}: {cause} ({n}x)" for (agent, cause), n in counts.most_common(3))


async def run_jobs(
    rollout: Rollout,
    jobs: Sequence[Job[TaskT]],
    grade: Callable[[TaskT, str | None], Awaitable[Grade]],
    finished: Callable[[Draw, Graded | Failure], None] = lambda draw, result: None,
) -> list[Graded | Failure]:
    """Run all jobs at once, each in a task of its own that waits for no other; results in their order.

    `finished` is told of each result as soon as it is there.

    Raises UserError as soon as one trajectory does; the others are then cancelled.
    """

    async def one(job: Job[TaskT]) -> Graded | Failure:
        result = await play(job)
        finished(job.draw, result)
        return result

    async def play(job: Job[TaskT]) -> Graded | Failure:
        try:
            trajectory = await rollout.run(job.task, job.candidate, job.draw)
        except InfrastructureError as error:
            return Failure(job.candidate, job.task.id, error.agent, error.cause, error.cost)
        try:
            reward = (await grade(job.task, trajectory.answer)).reward
        except InfrastructureError as error:  # of the call of an LLM that judges
            return Failure(job.candidate, job.task.id, error.agent, error.cause, trajectory.cost)
        return Graded(trajectory, reward)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(job)) for job in jobs]
    except* UserError as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
