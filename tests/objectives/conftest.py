from collections.abc import Callable

import pytest

from trinity.episode.roles import Role
from trinity.episode.rollout import Trajectory
from trinity.episode.scheduler import Graded
from trinity.episode.transcript import Turn
from trinity.pool.base import Completion


@pytest.fixture
def graded() -> Callable[..., Graded]:
    """A finished trajectory with one Worker turn of agent 0, unless other turns are given."""

    def make(candidate: int, task: str, reward: int, *turns: Turn, stop: str = "turns") -> Graded:
        said = turns or (Turn(0, Role.WORKER, Completion("4", 3, 2, 0.5), "4"),)
        return Graded(Trajectory(candidate, task, said, stop, "4"), reward)  # type: ignore[arg-type]

    return make
