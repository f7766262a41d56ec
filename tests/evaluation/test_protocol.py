import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trinity.episode.policy import Logits, Position
from trinity.episode.roles import Role
from trinity.episode.rollout import EpisodeSettings
from trinity.errors import UserError
from trinity.evaluation.baselines import SchedulePolicy, ShuffledPolicy, UniformPolicy
from trinity.evaluation.protocol import (
    Comparison,
    Evaluation,
    EvaluationSettings,
    WholeBudget,
    compare,
)
from trinity.tasks.task import Task

AGENTS = ("knows-red", "knows-green", "knows-blue")


def evaluation(runner: Any, seed: int = 0) -> Evaluation:
    return Evaluation(runner, runner.pool, runner.settings, seed)


def mean(rewards: Any) -> float:
    return sum(rewards.values()) / len(rewards)


def test_a_single_agent_is_one_worker_call(make_runner: Any, tasks: list[Task]) -> None:
    runner = make_runner()
    singles = evaluation(runner).singles(tasks)
    assert list(singles) == list(AGENTS)
    for agent, name in enumerate(AGENTS):
        assert singles[name] == {task.id: int(task.domain in name) for task in tasks}
        policy, jobs, selection, episode = runner.asked[agent]
        assert isinstance(policy, SchedulePolicy)
        assert (selection, len(jobs)) == ("argmax", len(tasks))
        assert episode == replace(runner.settings, max_turns=1)


def test_a_single_agent_also_has_the_tokens_of_all_turns_for_one_answer(
    make_runner: Any, tasks: list[Task]
) -> None:
    """A model that needs 10,000 tokens is cut at a turn's 4,096, and right with the coordinator's 20,480."""
    runner = make_runner(settings=EpisodeSettings(max_turns=5), needs=10_000)
    asked = evaluation(runner)
    assert not any(mean(rewards) for rewards in asked.singles(tasks).values())
    whole = asked.whole_budgets(tasks)
    assert [each.name for each in whole] == [f"{name}, 5 x 4,096 tokens" for name in AGENTS]
    assert [mean(each.rewards) for each in whole] == [pytest.approx(1 / 3)] * 3
    policy, jobs, selection, episode = runner.asked[-1]
    assert isinstance(policy, SchedulePolicy)
    assert (selection, len(jobs), episode.max_turns) == ("argmax", len(tasks), 1)
    assert runner.pool.identity(2, episode.decode)["max_tokens"] == 20_480


def test_the_whole_budget_is_that_of_the_agents_own_limit(make_runner: Any, tasks: list[Task]) -> None:
    runner = make_runner(settings=EpisodeSettings(max_turns=3), needs=300, own={1: 100})
    names = [each.name for each in evaluation(runner).whole_budgets(tasks)]
    assert names[1] == "knows-green, 3 x 100 tokens"
    assert names[0] == "knows-red, 3 x 4,096 tokens"


def test_where_one_turn_is_all_there_is_its_tokens_are_the_whole_budget(
    make_runner: Any, tasks: list[Task]
) -> None:
    runner = make_runner(settings=EpisodeSettings(max_turns=1))
    assert evaluation(runner).whole_budgets(tasks) == [] == runner.asked


def test_agents_that_are_not_on_offer_have_no_row(make_runner: Any, tasks: list[Task]) -> None:
    runner = make_runner(settings=EpisodeSettings(max_turns=2, agents=[1]))
    assert [each.agent for each in evaluation(runner).whole_budgets(tasks)] == ["knows-green"]


def test_an_agent_that_is_refused_so_many_tokens_costs_its_row_alone(
    make_runner: Any, expert: Any, tasks: list[Task], monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = make_runner()
    run = runner.run

    def refuses(policy: Any, jobs: Any, selection: Any, episode: EpisodeSettings | None = None) -> Any:
        if episode is not None and episode.decode.turns > 1 and policy._schedule[0][0] == 1:
            raise UserError("knows-green refused the call with status 400.")
        return run(policy, jobs, selection, episode)

    monkeypatch.setattr(runner, "run", refuses)
    with pytest.warns(UserWarning, match="knows-green could not be asked .* status 400"):
        found = compare(
            evaluation(runner), lambda: expert, lambda: expert, tasks, tasks, EvaluationSettings(), "argmax"
        )
    assert [bool(each.rewards) for each in found.whole_budget] == [True, False, True]
    assert mean(found.trained) == 1.0


def test_rewards_leave_out_what_could_not_be_finished(
    make_runner: Any, expert: Any, tasks: list[Task]
) -> None:
    runner = make_runner(fails=lambda agent, question: question.startswith("red 3"))
    found = evaluation(runner).rewards(expert, tasks, "expert")
    assert set(found) == {task.id for task in tasks} - {"t3"}
    assert mean(found) == 1.0


def test_a_refused_request_is_a_wrong_answer_and_said_to_be_one(
    make_runner: Any, expert: Any, tasks: list[Task]
) -> None:
    runner = make_runner(refuses=lambda agent, question: question.startswith("red 3"))
    with pytest.warns(UserWarning, match=r"2 turns of .* of expert .*knows-red: status 403 \(2x\)"):
        found = evaluation(runner).rewards(expert, tasks, "expert")
    assert {task for task, reward in found.items() if not reward} == {"t3"}


def test_the_two_best_agents_disagreement_is_a_share_of_tasks(make_runner: Any, tasks: list[Task]) -> None:
    singles = evaluation(make_runner()).singles(tasks)
    best = sorted(singles.values(), key=mean)[-2:]
    wanted = mean({task.id: int(best[0][task.id] != best[1][task.id]) for task in tasks})
    assert 0 < evaluation(make_runner()).disagreement(tasks) == pytest.approx(wanted)


def test_a_disagreement_needs_two_agents(make_runner: Any, tasks: list[Task]) -> None:
    runner = make_runner(fails=lambda agent, question: agent > 0)
    with pytest.warns(UserWarning), pytest.raises(UserError, match="Only 1 of the agents"):
        evaluation(runner).disagreement(tasks)


def test_an_agent_that_answers_nothing_is_left_out_with_a_warning(
    make_runner: Any, tasks: list[Task]
) -> None:
    runner = make_runner(fails=lambda agent, question: agent == 1)
    with pytest.warns(UserWarning, match=r"30 of 30 .*knows-green: quota \(30x\)"):
        assert list(evaluation(runner).singles(tasks)) == [AGENTS[0], *AGENTS[2:]]


def test_a_coordinator_that_finishes_nothing_is_an_error(
    make_runner: Any, expert: Any, tasks: list[Task]
) -> None:
    runner = make_runner(fails=lambda agent, question: True)
    settings = EvaluationSettings()
    with pytest.warns(UserWarning), pytest.raises(UserError, match="none of the 30 held-out tasks"):
        compare(evaluation(runner), lambda: expert, lambda: expert, tasks, tasks, settings, "argmax")


def test_random_routing_samples_uniform_choices_by_the_seed(make_runner: Any, tasks: list[Task]) -> None:
    runner = make_runner()
    found = [evaluation(runner, seed).random(tasks) for seed in (0, 0, 1)]
    assert found[0] == found[1] != found[2]
    policy, _, selection, episode = runner.asked[0]
    assert isinstance(policy, UniformPolicy)
    assert (selection, episode) == ("sample", None)
    # A right answer needs the last Worker to be the right agent: at most a third of the time.
    assert 0.05 < mean(found[0]) < 0.5


class Numbered:
    """Prefers the agent that has the task's number, so that its states tell whose they are."""

    def __init__(self, tasks: list[Task]) -> None:
        self.ids = [task.id for task in tasks]

    async def logits(self, position: Position, segments: Any) -> tuple[Logits, Logits]:
        return np.arange(3.0), np.array([0.0, 9.0, self.ids.index(position.task_id) / 100])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [2, 3, 30])
async def test_shuffling_is_one_cycle_without_fixed_points(
    make_runner: Any, tasks: list[Task], seed: int, count: int
) -> None:
    runner, tasks = make_runner(), tasks[:count]
    await asyncio.to_thread(evaluation(runner, seed).shuffled, Numbered(tasks), tasks)
    shuffled = runner.asked[1][0]
    assert isinstance(shuffled, ShuffledPolicy)
    donor = {}
    for number, task in enumerate(tasks):
        _, roles = await shuffled.logits(Position(0, task.id, 0), [task.query])
        donor[number] = round(100 * float(roles[2]))
    at, steps = donor[0], 1
    while at != 0:
        at, steps = donor[at], steps + 1
    assert steps == count, "one cycle through all tasks"


def test_shuffled_states_lose_the_gain(make_runner: Any, expert: Any, tasks: list[Task]) -> None:
    found = evaluation(make_runner()).shuffled(expert, tasks)
    assert set(found) == {task.id for task in tasks}
    assert mean(found) < 0.7
    assert mean(evaluation(make_runner()).rewards(expert, tasks, "expert")) == 1.0


def test_shuffling_leaves_out_tasks_whose_states_were_never_seen(
    make_runner: Any, expert: Any, tasks: list[Task]
) -> None:
    runner = make_runner(fails=lambda agent, question: question.startswith("red 3"))
    assert set(evaluation(runner).shuffled(expert, tasks)) == {task.id for task in tasks} - {"t3"}


def test_the_schedule_found_is_the_best_fixed_one_on_the_search_tasks(
    make_runner: Any, tasks: list[Task]
) -> None:
    runner = make_runner(settings=EpisodeSettings(max_turns=2, roles=("worker", "thinker")))
    greens = [task for task in tasks if task.domain == "green"]
    schedule = evaluation(runner).find_schedule([*greens, tasks[0]])
    assert len(schedule) == 2
    # The last Worker's answer counts: a green expert, and nobody after it.
    last = [agent for agent, role in schedule if role is Role.WORKER][-1]
    assert last == 1
    assert all(role is not Role.VERIFIER for policy, *_ in runner.asked for _, role in policy._schedule)


def test_the_comparison_plays_every_row_on_the_held_out_tasks(
    make_runner: Any, expert: Any, tasks: list[Task]
) -> None:
    runner = make_runner()
    settings = EvaluationSettings()
    found = compare(
        evaluation(runner), lambda: expert, lambda: UniformPolicy(3), tasks, [], settings, "argmax"
    )
    ids = {task.id for task in tasks}
    assert set(found.trained) == set(found.initial) == set(found.random) == ids
    assert (mean(found.trained), [mean(r) for r in found.single.values()]) == (
        1.0,
        [pytest.approx(1 / 3)] * 3,
    )
    assert [mean(each.rewards) for each in found.whole_budget] == [pytest.approx(1 / 3)] * 3
    assert (found.state_blind, found.schedule, found.shuffled) == (None, None, None)
    assert found.initial != found.random, "each has numbers of its own"
    sampled = [selection for policy, _, selection, _ in runner.asked if isinstance(policy, UniformPolicy)]
    assert sampled == ["sample", "sample"]


def test_the_rows_of_the_whole_budget_can_be_left_out(
    make_runner: Any, expert: Any, tasks: list[Task]
) -> None:
    runner = make_runner()
    settings = EvaluationSettings(whole_budget=False)
    found = compare(evaluation(runner), lambda: expert, lambda: expert, tasks, tasks, settings, "argmax")
    assert found.whole_budget == []
    assert all(episode is None or episode.decode.turns == 1 for *_, episode in runner.asked)


def test_the_controls_search_on_training_tasks_only(make_runner: Any, expert: Any, tasks: list[Task]) -> None:
    runner = make_runner()
    held_out, search = tasks[:15], tasks[15:]
    found = compare(
        evaluation(runner), lambda: expert, lambda: UniformPolicy(3), held_out, search,
        EvaluationSettings(controls=True, control_tasks=6), "argmax",
    )  # fmt: skip
    assert found.schedule is not None and found.state_blind is not None and found.shuffled is not None
    assert set(found.state_blind) == set(found.shuffled) == {task.id for task in held_out}
    used = {frozenset(job.task.id for job in jobs) for _, jobs, _, _ in runner.asked}
    assert used == {frozenset(t.id for t in held_out), frozenset(t.id for t in search[:6])}
    assert mean(found.state_blind) == pytest.approx(1 / 3), "a blind policy knows one domain"
    assert mean(found.shuffled) < mean(found.trained)


@pytest.mark.parametrize("selection", ["sample", "argmax"])
def test_the_trained_policy_chooses_the_same_way_in_its_row_and_its_control(
    make_runner: Any, expert: Any, tasks: list[Task], selection: Any
) -> None:
    runner = make_runner()
    settings = EvaluationSettings(controls=True, control_tasks=2)
    compare(evaluation(runner), lambda: expert, lambda: UniformPolicy(3), tasks, tasks, settings, selection)
    used = [
        how for policy, _, how, _ in runner.asked if not isinstance(policy, SchedulePolicy | UniformPolicy)
    ]
    assert used == [selection] * 3, "trained, recorded, shuffled"


def test_the_per_question_best_is_right_where_any_agent_is() -> None:
    single = {"a": {"t0": 1, "t1": 0, "t2": 0}, "b": {"t0": 0, "t1": 1, "t2": 0, "t3": 1}}
    found = Comparison({}, {}, single, {})
    assert found.per_question_best == {"t0": 1, "t1": 1, "t2": 0}
    assert found.best_single == "b"


def test_the_best_single_agent_is_the_best_of_either_budget(tasks: list[Task]) -> None:
    reds = {task.id: int(task.domain == "red") for task in tasks}
    most = {task.id: int(task.domain != "blue") for task in tasks}
    none = dict.fromkeys(reds, 0)
    whole = [WholeBudget("b", 5, 4096, most), WholeBudget("c", 5, 4096, {})]
    found = Comparison({}, {}, {"a": reds, "b": none}, {}, whole_budget=whole)
    assert found.best_single == "b, 5 x 4,096 tokens"
    assert mean(found.per_question_best) == pytest.approx(2 / 3)
    _, agents = found.best_by_domain(tasks)
    assert agents == {"red": "a", "green": "b, 5 x 4,096 tokens", "blue": "a"}


def test_the_best_by_domain_takes_one_agent_a_domain(tasks: list[Task]) -> None:
    single = {
        "a": {task.id: int(task.domain in ("red", "blue")) for task in tasks},
        "b": {task.id: int(task.domain == "green") for task in tasks},
    }
    rewards, agents = Comparison({}, {}, single, {}).best_by_domain(tasks)
    assert agents == {"red": "a", "green": "b", "blue": "a"}
    assert rewards == {task.id: 1 for task in tasks}
