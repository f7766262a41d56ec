import hashlib
import json
import struct
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

from trinity.episode.roles import Role
from trinity.evaluation.protocol import Comparison, WholeBudget
from trinity.evaluation.report import Report, theta_sha256
from trinity.evaluation.statistics import Rewards
from trinity.pool.base import Paid
from trinity.tasks.task import Task

SPENT = Paid(1.25, 7, 600, 100)
THETA = torch.tensor([0.0, 1.5, -2.25, 1e-30])


def wins(tasks: list[Task], *domains: str) -> Rewards:
    return {task.id: int(task.domain in domains) for task in tasks}


def comparison(tasks: list[Task], **controls: Any) -> Comparison:
    return Comparison(
        initial=wins(tasks, "red"),
        trained=wins(tasks, "red", "green", "blue"),
        single={"a": wins(tasks, "red"), "b": wins(tasks, "green")},
        random=wins(tasks, "blue"),
        **controls,
    )


@pytest.fixture
def report(tasks: list[Task]) -> Report:
    return Report(comparison(tasks), tasks, THETA, 3, [0.25, 0.5], SPENT)


def test_the_hash_is_that_of_the_float32_bytes() -> None:
    wanted = hashlib.sha256(struct.pack("<4f", 0.0, 1.5, -2.25, 1e-30)).hexdigest()
    assert theta_sha256(THETA) == wanted
    assert theta_sha256(THETA.double()) == wanted
    assert theta_sha256(torch.stack([THETA, THETA + 1], dim=1)[:, 0].requires_grad_()) == wanted
    assert theta_sha256(THETA + 1e-6) != wanted


def test_the_summary_holds_what_programs_read(report: Report) -> None:
    summary = report.summary()
    assert (summary["seed"], summary["generations"], summary["j_series"]) == (3, 2, [0.25, 0.5])
    assert (summary["theta_sha256"], summary["theta_n"]) == (theta_sha256(THETA), 4)
    assert set(summary["single"]) == {"a", "b"}
    means = {
        "initial": 1 / 3,
        "trained": 1.0,
        "random": 1 / 3,
        "per_question_best": 2 / 3,
        "best_by_domain": 2 / 3,
    }
    for name, estimate in [
        *((n, summary[n]) for n in means),
        *(("single", e) for e in summary["single"].values()),
    ]:
        assert set(estimate) >= {"mean", "low", "high", "n"}
        assert estimate["mean"] == pytest.approx(means.get(name, 1 / 3))
        assert 0 <= estimate["low"] <= estimate["mean"] <= estimate["high"] <= 1
        assert estimate["n"] == 30
    assert summary["gain_over_best_single"]["mean"] == pytest.approx(2 / 3)
    assert summary["gain_over_best_single"]["low"] > 0.4
    assert "state_blind" not in summary and "shuffled" not in summary


def test_the_summary_holds_the_controls_where_they_were_played(tasks: list[Task]) -> None:
    controls = {"state_blind": wins(tasks, "red"), "schedule": ((1, Role.WORKER), (0, Role.VERIFIER))}
    found = Report(comparison(tasks, shuffled=wins(tasks), **controls), tasks, THETA, 0, [], SPENT).summary()
    assert found["state_blind"]["schedule"] == [[1, "worker"], [0, "verifier"]]
    assert (found["state_blind"]["mean"], found["shuffled"]["mean"]) == (pytest.approx(1 / 3), 0.0)


def test_rows_say_how_many_tokens_a_single_agent_had(tasks: list[Task]) -> None:
    """And the gain is over the best of them all."""
    whole = [WholeBudget("a", 5, 4096, wins(tasks, "red", "blue")), WholeBudget("b", 5, 1000, {})]
    report = Report(comparison(tasks, whole_budget=whole), tasks, THETA, 0, [], SPENT)
    labels = [row.label for row in report.rows()]
    assert [label for label in labels if label.startswith("single")] == [
        "single: a", "single: b", "single: a, 5 x 4,096 tokens",
    ]  # fmt: skip
    summary = report.summary()
    assert summary["single_whole_budget"]["a"]["mean"] == pytest.approx(2 / 3)
    assert summary["single_whole_budget"]["a"]["turns"] == 5
    assert summary["single_whole_budget"]["a"]["tokens_a_turn"] == 4096
    assert summary["single_whole_budget"]["b"] is None
    gain = summary["gain_over_best_single"]
    assert (gain["agent"], gain["whole_budget"]) == ("a", True)
    assert gain["mean"] == pytest.approx(1 / 3)
    notes = " ".join(report.notes())
    assert "where the row says 5 x, with those of all 5 turns" in notes
    assert "Could not be played: b, 5 x 1,000 tokens." in notes
    assert "Best single, chosen with hindsight among all single rows: a, 5 x 4,096 tokens." in notes


def test_a_run_of_one_turn_speaks_of_no_other_budget(report: Report) -> None:
    assert not any(" x " in note for note in report.notes())
    assert report.summary()["gain_over_best_single"]["whole_budget"] is False


def test_the_intervals_are_said_to_be_uncorrected(report: Report) -> None:
    console = Console(file=StringIO(), width=200)
    report.print(console)
    printed = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert "not corrected for their number" in printed
    assert "not corrected for their number" in report.summary()["intervals"]


def test_the_file_reads_back_as_it_was(report: Report, tmp_path: Path) -> None:
    path = report.write(tmp_path)
    assert path == tmp_path / "summary.json"
    assert json.loads(path.read_text(), parse_constant=pytest.fail) == report.summary()


def test_a_policy_that_lost_tasks_is_measured_on_the_rest(tasks: list[Task]) -> None:
    whole = comparison(tasks)
    part = {task: reward for task, reward in whole.single["b"].items() if task != "t1"}
    found = Comparison(whole.initial, whole.trained, {"a": whole.single["a"], "b": part}, whole.random)
    summary = Report(found, tasks, THETA, 0, [], SPENT).summary()
    assert (summary["single"]["a"]["n"], summary["single"]["b"]["n"]) == (30, 29)
    assert (summary["per_question_best"]["n"], summary["trained"]["n"]) == (29, 30)


def test_rows_pair_every_policy_with_the_trained_one(report: Report) -> None:
    rows = {row.label: row for row in report.rows()}
    assert rows["trained coordinator"].gain is None
    for label, row in rows.items():
        if row.gain is not None:
            assert row.gain.mean == pytest.approx(1 - row.estimate.mean), label
    assert {label for label in rows if label.startswith("single")} == {"single: a", "single: b"}


def test_the_table_shows_every_row_with_its_interval(report: Report) -> None:
    console = Console(file=StringIO(), width=200)
    report.print(console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    for row in report.rows():
        assert row.label in printed
        assert str(row.estimate) in printed
    assert "seed 3" in printed
    assert "paid $1.25 for 7 calls of 700 tokens" in printed


def test_what_was_spent_lies_beside_the_summary(report: Report, tmp_path: Path) -> None:
    report.write(tmp_path)
    assert json.loads((tmp_path / "spent.json").read_text()) == {"usd": 1.25, "calls": 7, "tokens": 700}


def test_what_could_not_be_measured_is_null_and_has_no_row(tasks: list[Task]) -> None:
    lonely = Comparison(initial={}, trained=wins(tasks, "red"), single={}, random={tasks[0].id: 1})
    report = Report(lonely, tasks, THETA, 3, [0.25], SPENT)
    summary = report.summary()
    assert summary["initial"] is summary["per_question_best"] is summary["best_by_domain"] is None
    assert "gain_over_best_single" not in summary
    assert [row.label for row in report.rows()] == ["trained coordinator", "random routing"]


def test_a_name_in_brackets_is_printed_as_it_is(tasks: list[Task]) -> None:
    named = Comparison(initial={}, trained=wins(tasks, "red"), single={"[bold]x[/]": wins(tasks)}, random={})
    screen = StringIO()
    Report(named, tasks, THETA, 3, [0.25], SPENT).print(Console(file=screen, width=120))
    assert "single: [bold]x[/]" in screen.getvalue()
