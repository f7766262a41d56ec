from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trinity.episode.roles import Role
from trinity.episode.scheduler import Failure, Graded
from trinity.episode.transcript import Turn
from trinity.errors import UserError
from trinity.objectives.ledger import account
from trinity.pool.base import Completion, Paid

Make = Callable[..., Graded]

# What became of each (candidate, task): right, wrong, or lost.
tables = st.integers(1, 5).flatmap(
    lambda tasks: st.lists(
        st.lists(st.sampled_from([1, 0, None]), min_size=tasks, max_size=tasks), min_size=1, max_size=6
    )
)


def results(table: list[list[int | None]], make: Make) -> list[Graded | Failure]:
    return [
        Failure(c, f"t{t}", "agent", "timeout") if outcome is None else make(c, f"t{t}", outcome)
        for c, row in enumerate(table)
        for t, outcome in enumerate(row)
    ]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tables)
def test_every_trajectory_is_accounted_for_once(graded: Make, table: list[list[int | None]]) -> None:
    candidates, tasks = len(table), len(table[0])
    whole = [t for t in range(tasks) if all(row[t] is not None for row in table)]
    if not whole:
        with pytest.raises(UserError):
            account(results(table, graded), 1.0)
        return
    ledger = account(results(table, graded), 1.0)
    assert ledger.trajectories == ledger.right + ledger.wrong + ledger.dropped == candidates * tasks
    assert ledger.right == sum(row[t] or 0 for row in table for t in whole)
    assert ledger.dropped == candidates * (tasks - len(whole))
    assert ledger.failures.total() == sum(outcome is None for row in table for outcome in row)
    # All candidates are measured on the same tasks.
    kept = [{g.task_id for g in ledger.kept if g.candidate == c} for c in range(candidates)]
    assert kept == [{f"t{t}" for t in whole}] * candidates
    wanted = [sum(row[t] or 0 for t in whole) / len(whole) for row in table]
    assert ledger.fitness(candidates).tolist() == pytest.approx(wanted)


def test_fitness_is_the_mean_reward_over_the_kept_tasks(graded: Make) -> None:
    ledger = account(results([[1, 0, 1, None], [0, 0, 1, 1], [1, 1, 1, 1]], graded), 0.25)
    fitness = ledger.fitness(3)
    assert fitness.dtype == torch.float32
    assert fitness.tolist() == pytest.approx([2 / 3, 1 / 3, 1.0])
    assert (ledger.right, ledger.wrong, ledger.dropped) == (6, 3, 3)
    assert ledger.mean_reward == pytest.approx(2 / 3)


def test_a_task_that_one_candidate_lost_is_dropped_for_all(graded: Make) -> None:
    ledger = account(results([[1, None], [0, 1]], graded), 0.5)
    assert {(g.candidate, g.task_id) for g in ledger.kept} == {(0, "t0"), (1, "t0")}
    assert ledger.fitness(2).tolist() == [1.0, 0.0]


def test_results_in_any_order_give_the_same_fitness(graded: Make) -> None:
    found = results([[1, 0, None], [0, 0, 1], [1, 1, 1]], graded)
    assert torch.equal(account(found[::-1], 0.5).fitness(3), account(found, 0.5).fitness(3))


def test_over_the_allowed_share_the_generation_fails_and_names_agents_and_causes(graded: Make) -> None:
    found = results([[1, 1, 1, 1], [1, 1, 1, 1]], graded)
    found[0] = Failure(0, "t0", "gpt", "timeout")
    assert account(found, 0.25).dropped == 2
    found[5] = Failure(1, "t1", "gpt", "timeout")
    found[1] = Failure(0, "t1", "claude", "quota")
    with pytest.raises(UserError, match=r"4 of 8 .*gpt: timeout \(2x\), claude: quota \(1x\).*0\.25"):
        account(found, 0.25)


def test_nothing_kept_is_refused_whatever_the_share() -> None:
    with pytest.raises(UserError, match=r"1 of 1 .*gpt: quota"):
        account([Failure(0, "t0", "gpt", "quota")], 1.0)


def test_failures_are_counted_by_agent_and_cause(graded: Make) -> None:
    found = [
        graded(0, "t0", 1),
        Failure(0, "t1", "a", "x"),
        Failure(0, "t2", "a", "x"),
        Failure(0, "t3", "b", "y"),
    ]
    assert account(found, 1.0).failures == Counter({("a", "x"): 2, ("b", "y"): 1})


def test_metrics_are_counts_of_what_was_kept_and_costs_of_all(graded: Make) -> None:
    plan = Turn(0, Role.THINKER, Completion("plan", 10, 5, 0.25), "plan")
    work = Turn(1, Role.WORKER, Completion("4", 20, 7, 0.5, "length"), "4")
    check = Turn(1, Role.VERIFIER, Completion("yes", 30, 9, 0.25), "yes", None, 0.5, 0.25)
    again = Turn(1, Role.WORKER, Completion("4", 20, 7, 0.0, "length", source="shared"), "4")
    found = [
        graded(0, "t0", 1, plan, work, check, stop="accepted"), graded(1, "t0", 0, again),
        graded(0, "t1", 1, work), Failure(1, "t1", "a", "timeout", Paid(0.125, 1, 10, 5)),
    ]  # fmt: skip
    metrics = account(found, 0.5).metrics(["a", "b", "c"])
    assert metrics == {
        "prompt_tokens": 100.0, "completion_tokens": 35.0, "paid_tokens": 123.0,
        "cost_usd": 1.625, "calls": 5.0, "calls_shared": 1.0, "calls_cached": 0.0, "trajectories/all": 4.0,
        "cut_by_length": 2.0, "cut_by_length/a": 0.0, "cut_by_length/b": 2.0, "cut_by_length/c": 0.0,
        "trajectories/right": 1.0, "trajectories/wrong": 1.0, "trajectories/dropped": 2.0,
        "trajectories/failed": 1.0, "failures/a/timeout": 1.0,
    }  # fmt: skip


def test_judging_and_what_was_thrown_away_are_paid_for_and_refusals_counted(graded: Make) -> None:
    thrown = Completion("4", 20, 7, 0.5, wasted=Paid(0.25, 2, 40, 14))
    refused = Completion("", finish_reason="refused", refusal="status 403", source="cache")
    one = graded(0, "t0", 1, Turn(0, Role.WORKER, thrown, "4"), Turn(1, Role.WORKER, refused, ""))
    judged = replace(one, judged=(Completion("VERDICT: SAME", 9, 1, 0.125),))
    metrics = account([judged], 0.5).metrics(["a", "b"])
    assert (metrics["cost_usd"], metrics["calls"], metrics["paid_tokens"]) == (0.875, 4.0, 91.0)
    assert (metrics["prompt_tokens"], metrics["completion_tokens"]) == (20.0, 7.0)
    assert {tag: n for tag, n in metrics.items() if tag.startswith("refusals")} == {
        "refusals/b/status 403": 1.0
    }
