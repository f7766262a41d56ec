from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

from trinity.episode.policy import Logits, Policy, Position, choose
from trinity.episode.roles import Role
from trinity.evaluation.baselines import (
    RecordingPolicy,
    Schedule,
    SchedulePolicy,
    ShuffledPolicy,
    UniformPolicy,
    best_schedule,
)

T, W, V = Role


class Labelled:
    """Logits that tell which task and turn they were made for."""

    async def logits(self, position: Position, segments: Sequence[str]) -> tuple[Logits, Logits]:
        return np.array([float(position.task_id), position.turn]), np.array([0.0, 1.0, 2.0])


async def label(policy: Policy, task: int, turn: int) -> tuple[float, float]:
    agents, _ = await policy.logits(Position(0, str(task), turn), ["query"])
    return float(agents[0]), float(agents[1])


async def test_the_uniform_policy_prefers_nothing() -> None:
    agents, roles = await UniformPolicy(4).logits(Position(0, "t", 0), ["query"])
    assert [choose(agents, "sample", u / 4)[0] for u in range(4)] == [0, 1, 2, 3]
    assert [choose(roles, "sample", u / 3 + 0.1) for u in range(3)] == [
        (i, pytest.approx(1 / 3)) for i in range(3)
    ]


async def test_a_schedule_is_followed_with_certainty_whatever_was_said() -> None:
    policy = SchedulePolicy(3, ((2, W), (0, T)))
    for turn, (agent, role) in enumerate([(2, W), (0, T)]):
        for selection, uniform in product(("sample", "argmax"), (0.0, 0.5, 0.999)):
            agents, roles = await policy.logits(Position(0, "t", turn), ["query", f"turn {uniform}"])
            assert choose(agents, selection, uniform) == (agent, 1.0)  # type: ignore[arg-type]
            assert choose(roles, selection, uniform) == (role, 1.0)  # type: ignore[arg-type]


async def test_recording_passes_on_and_keeps() -> None:
    recorder = RecordingPolicy(Labelled())
    assert await label(recorder, 7, 0) == (7, 0)
    assert await label(recorder, 7, 1) == (7, 1)
    assert await label(recorder, 3, 0) == (3, 0)
    assert {task: list(turns) for task, turns in recorder.seen.items()} == {"7": [0, 1], "3": [0]}


async def test_the_shuffled_policy_never_uses_a_tasks_own_states() -> None:
    recorder = RecordingPolicy(Labelled())
    for task, turns in ((1, 3), (2, 1), (3, 2)):
        for turn in range(turns):
            await label(recorder, task, turn)
    shuffled = ShuffledPolicy(recorder.seen, {"1": "2", "2": "3", "3": "1"})
    assert [await label(shuffled, 1, turn) for turn in range(3)] == [(2, 0)] * 3, "the donor's last state"
    assert [await label(shuffled, 2, turn) for turn in range(3)] == [(3, 0), (3, 1), (3, 1)]
    assert [await label(shuffled, 3, turn) for turn in range(4)] == [(1, 0), (1, 1), (1, 2), (1, 2)]


def matches(schedule: Schedule, planted: Schedule) -> float:
    return sum(step == wanted for step, wanted in zip(schedule, planted, strict=True)) / len(planted)


@pytest.mark.parametrize(
    "planted", [((2, T), (0, W), (1, V)), ((1, V), (1, V), (2, W)), ((0, W), (0, W), (0, W))]
)
def test_best_schedule_finds_a_planted_optimum(planted: Schedule) -> None:
    assert best_schedule(lambda s: matches(s, planted), range(3), list(Role), 3) == planted


def test_best_schedule_finds_a_plan_that_pays_only_before_its_worker() -> None:
    def value(schedule: Schedule) -> float:
        best = 0.0
        for before, (agent, role) in zip((None, *schedule[:-1]), schedule, strict=True):
            if role is W:
                best = max(best, 0.3 + 0.2 * (agent == 1) + 0.4 * (before == (2, T)))
        return best

    found = best_schedule(value, range(3), list(Role), 3)
    assert value(found) == max(value(s) for s in product(product(range(3), Role), repeat=3)) == 0.9


def test_best_schedule_is_never_below_the_best_agent_alone() -> None:
    def alone(schedule: Schedule) -> float:
        return (schedule[0][0] == schedule[1][0] and all(role is W for _, role in schedule)) * (
            1 + schedule[0][0]
        )

    assert best_schedule(alone, range(3), list(Role), 2) == ((2, W), (2, W))


def test_best_schedule_keeps_to_the_roles_on_offer_and_asks_each_schedule_once() -> None:
    asked: list[Any] = []

    def value(schedule: Schedule) -> float:
        asked.append(schedule)
        return sum(role is not W for _, role in schedule) + schedule[0][0] / 10

    assert best_schedule(value, range(2), [T, W], 2) == ((1, T), (0, T))
    assert len(asked) == len(set(asked)) <= 2 * 2 * 2 * (2 * 2)
    assert all(role is not V for schedule in asked for _, role in schedule)
