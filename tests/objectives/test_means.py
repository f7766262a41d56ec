"""Means over trajectories."""

from collections.abc import Callable

import pytest

from trinity.episode.roles import Role
from trinity.episode.scheduler import Graded
from trinity.episode.transcript import Turn
from trinity.objectives.means import TrajectoryMeans
from trinity.pool.base import Completion

Make = Callable[..., Graded]


def some(graded: Make) -> list[Graded]:
    plan = Turn(0, Role.THINKER, Completion("plan"), "plan")
    work = Turn(1, Role.WORKER, Completion("4"), "4")
    check = Turn(1, Role.VERIFIER, Completion("yes"), "yes", None, 0.5, 0.25)
    return [graded(0, "t0", 1, plan, work, check, stop="accepted"), graded(1, "t0", 0, work)]


def test_they_are_means_of_trajectories_and_of_turns(graded: Make) -> None:
    means = TrajectoryMeans(["a", "b", "c"])
    for one in some(graded):
        means.update([one])
    assert means.compute() == {
        "J": 0.5, "turns": 2.0, "accepted_share": 0.5,
        "confidence/agent": 0.875, "confidence/role": 0.8125,
        "agent_share/a": 0.25, "agent_share/b": 0.75, "agent_share/c": 0.0,
        "role_share/Thinker": 0.25, "role_share/Worker": 0.5, "role_share/Verifier": 0.25,
    }  # fmt: skip
    means.reset()
    means.update(some(graded)[1:])
    assert means.compute()["J"] == 0.0


def test_shares_of_processes_add_up_to_the_whole(graded: Make) -> None:
    """As TorchMetrics' own reduction adds them: two halves merged are the whole."""
    paths = [*some(graded), graded(2, "t1", 1)]
    whole, one, two = (TrajectoryMeans(["a", "b"]) for _ in range(3))
    whole.update(paths)
    one.update(paths[0::2])
    two.update(paths[1::2])
    one.merge_state(two)
    assert one.compute() == pytest.approx(whole.compute())


def test_without_a_trajectory_there_are_none() -> None:
    means = TrajectoryMeans(["a"])
    means.update([])
    assert means.compute() == {}


def test_they_are_no_part_of_a_checkpoint() -> None:
    assert TrajectoryMeans(["a"]).state_dict() == {}
