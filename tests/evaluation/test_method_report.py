"""Tables and figures of a comparison."""

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tests.evaluation.finished_runs import outcomes, write_run
from trinity.evaluation.figures import draw, mean_curve
from trinity.evaluation.method_report import MethodReport
from trinity.evaluation.methods import MethodComparison, compare_methods
from trinity.evaluation.runs import find_runs


def comparison(folder: Path, seeds: int = 2, usd: float = 0.0) -> MethodComparison:
    for label, right in (("good [a]", 90), ("bad|b", 40)):
        for seed in range(seeds):
            write_run(
                folder / f"{right}-{seed}", label, seed, outcomes(right + seed), usd=usd, single=outcomes(30),
                config={"model": {"lr": right}, "data": {"m": 3}},
            )  # fmt: skip
    return compare_methods(find_runs([folder]))


def test_the_terminal_shows_ranking_pairs_and_conclusion(tmp_path: Path) -> None:
    screen = StringIO()
    MethodReport(comparison(tmp_path), "holm").print(Console(file=screen, width=150, highlight=False))
    text = screen.getvalue()
    assert "good [a] is better than every other method." in text
    assert text.index("good [a]") < text.index("bad|b")
    assert "0.905" in text and "+0.605" in text  # J, and over gpt's 0.3
    assert (
        "Best single agent, chosen with hindsight among the single rows of all runs: gpt, 0.300; random "
        "routing 0.000." in " ".join(text.split())
    )
    assert "not corrected for their number" in " ".join(text.split())
    assert "Where p, seeds is missing" not in text


def test_one_seed_is_called_what_it_is(tmp_path: Path) -> None:
    text = MethodReport(comparison(tmp_path, seeds=1), "holm").markdown([])
    assert "between trained policies, not between methods" in text


def test_other_conditions_are_named_in_the_first_lines(tmp_path: Path) -> None:
    for label, temperature in (("cold", 0.0), ("warm", 0.7)):
        config = {"model": {"episode": {"decode": {"temperature": temperature}}}}
        write_run(tmp_path / label, label, 0, outcomes(50), config=config)
    report = MethodReport(compare_methods(find_runs([tmp_path])), "holm")
    screen = StringIO()
    report.print(Console(file=screen, width=150, highlight=False))
    for text in (screen.getvalue(), report.markdown([]).removeprefix("# Comparison").lstrip()):
        assert text.startswith("NOT UNDER THE SAME CONDITIONS")
        assert "model.episode.decode.temperature is 0.0 (cold), 0.7 (warm)" in " ".join(text.split())


def test_equal_conditions_are_not_talked_about(tmp_path: Path) -> None:
    assert "CONDITIONS" not in MethodReport(comparison(tmp_path), "holm").markdown([])


def test_markdown_holds_tables_figures_and_what_differs(tmp_path: Path) -> None:
    text = MethodReport(comparison(tmp_path), "bonferroni").markdown(["x.png"])
    assert "![x.png](x.png)" in text
    assert "Bonferroni" in text
    assert "| bad\\|b |" in text
    assert "| model.lr | 90 | 40 |" in text
    assert "data.m" not in text and "seed_everything" not in text
    assert f"good [a], seed 1: {tmp_path / '90-1'}" in text


@pytest.mark.parametrize("usd", [0.0, 2.5])
def test_figures_are_pictures_and_dollars_appear_where_they_were_paid(tmp_path: Path, usd: float) -> None:
    written = draw(comparison(tmp_path / "runs", usd=usd), tmp_path)
    names = ["j_by_trajectories.png", *(["j_by_dollars.png"] if usd else []), "held_out.png"]
    assert [path.name for path in written] == names
    for path in written:
        assert path.read_bytes().startswith(b"\x89PNG")


def test_the_mean_curve_is_as_long_as_the_shortest() -> None:
    curves = [[(10.0, 0.2), (20.0, 0.4)], [(12.0, 0.4), (22.0, 0.6), (32.0, 0.9)]]
    assert mean_curve(curves) == [(11.0, pytest.approx(0.3)), (21.0, 0.5)]
