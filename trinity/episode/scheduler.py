"""Many trajectories at once."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from trinity.episode.calls import Bill
from trinity.episode.rollout import Draw, Rollout, RolloutTask, Trajectory
from trinity.errors import UserError
from trinity.pool.base import Completion, InfrastructureError, Paid


class Grade(Protocol):
    """What the scheduler needs of a grade."""

    @property
    def reward(self) -> int:
        """0 or 1."""


TaskT = TypeVar("TaskT", bound=RolloutTask)


@dataclass(frozen=True)
class Job(Generic[TaskT]):
    """One trajectory to run. `policy` is what the journal calls the policy that plays it."""

    task: TaskT
    candidate: int
    draw: Draw
    policy: str = "candidate"


@dataclass(frozen=True, slots=True)
class Graded:
    """A finished trajectory and its reward (0 or 1). `judged` is what an LLM said that judged its answer."""

    trajectory: Trajectory
    reward: int
    judged: tuple[Completion, ...] = ()

    @property
    def candidate(self) -> int:
        """The candidate that ran it."""
        return self.trajectory.candidate

    @property
    def task_id(self) -> str:
        """The task it ran on."""
        return self.trajectory.task_id

    @property
    def paid(self) -> Paid:
        """What it cost, judging included."""
        return self.trajectory.paid + Paid.total(completion.paid for completion in self.judged)


@dataclass(frozen=True, slots=True)
class Failure:
    """A trajectory that could not be finished; it has no reward. `paid` is what it cost all the same."""

    candidate: int
    task_id: str
    agent: str
    cause: str
    paid: Paid = Paid()  # noqa: RUF009 - frozen


def most_common(failures: Sequence[Failure]) -> str:
    """The three most common causes, each with its agent and count."""
    counts = Counter((failure.agent, failure.cause) for failure in failures)
    return ", ".join(f"{agent}: {cause} ({n}x)" for (agent, cause), n in counts.most_common(3))


async def run_jobs(
    rollout: Rollout,
    jobs: Sequence[Job[TaskT]],
    grade: Callable[[TaskT, str | None, Bill], Awaitable[Grade]],
    finished: Callable[[Job[TaskT], Graded | Failure], None] = lambda job, result: None,
) -> list[Graded | Failure]:
    """Run all jobs at once, each in a task of its own that waits for no other; results in their order.

    `grade` puts the calls that it makes on the bill it is given. `finished` is told of each result as soon as
    it is there.

    Raises UserError as soon as one trajectory does; the others are then cancelled.
    """

    async def one(job: Job[TaskT]) -> Graded | Failure:
        result = await play(job)
        finished(job, result)
        return result

    async def play(job: Job[TaskT]) -> Graded | Failure:
        try:
            trajectory = await rollout.run(job.task, job.candidate, job.draw)
        except InfrastructureError as error:
            return Failure(job.candidate, job.task.id, error.agent, error.cause, error.paid)
        bill = Bill()
        try:
            reward = (await grade(job.task, trajectory.answer, bill)).reward
        except InfrastructureError as error:  # of the call of an LLM that judges
            # Several may have waited for it: what it cost stands on the bill of whoever made it.
            paid = Graded(trajectory, 0, tuple(bill.completions)).paid + bill.lost
            return Failure(job.candidate, job.task.id, error.agent, error.cause, paid)
        return Graded(trajectory, reward, tuple(bill.completions))

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(job)) for job in jobs]
    except* UserError as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]
