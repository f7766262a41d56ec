"""Reading finished runs."""

from pathlib import Path

import pytest

from tests.evaluation.finished_runs import outcomes, write_run
from trinity.errors import UserError
from trinity.evaluation.runs import find_runs, read_run


def test_a_run_is_read_from_its_folder(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "sep", 3, outcomes(60), trajectories=80, usd=1.5, single=outcomes(40))
    run = read_run(tmp_path / "a")
    assert (run.label, run.seed, run.trajectories, run.usd) == ("sep", 3, 80.0, 1.5)
    assert sum(run.trained.values()) == 60
    assert list(run.singles) == ["gpt"]
    assert run.curve("spent/usd") == [(1.5, 0.5)]


def test_without_a_label_the_name_is_it(tmp_path: Path) -> None:
    write_run(tmp_path / "a", "", 0, outcomes(60))
    assert read_run(tmp_path / "a").label == "run"


def test_folders_are_searched_and_each_run_is_found_once(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / "deep" / f"version_{seed}", "sep", seed, outcomes(60))
    found = find_runs([tmp_path, tmp_path / "deep" / "version_0"])
    assert sorted(run.seed for run in found) == [0, 1]


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda f: (f / "summary.json").unlink(), "holds no finished run"),
        (lambda f: (f / "held_out.json").unlink(), "lacks held_out.json"),
        (lambda f: (f / "held_out.json").write_text("{"), "can't be read"),
        (lambda f: (f / "held_out.json").write_text("{}"), "can't be read"),
        (lambda f: (f / "held_out.json").write_text("[]"), "can't be read"),
        (lambda f: (f / "config.yaml").write_text("a: ["), "can't be read"),
        (lambda f: (f / "config.yaml").write_text("3"), "can't be read"),
        (lambda f: (f / "generations.csv").write_text("generation\nx\n"), "can't be read"),
        (lambda f: (f / "generations.csv").write_text("generation\n"), "can't be read"),
        (lambda f: (f / "summary.json").write_text("{}"), "can't be read"),
    ],
)
def test_what_can_not_be_read_is_named(tmp_path: Path, spoil, named: str) -> None:
    folder = write_run(tmp_path / "a", "sep", 0, outcomes(60))
    spoil(folder)
    with pytest.raises(UserError, match=named):
        find_runs([folder])


def test_what_is_no_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no folder"):
        find_runs([tmp_path / "nowhere"])
