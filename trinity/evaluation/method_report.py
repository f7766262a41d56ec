"""A comparison of methods as tables: in the terminal and in Markdown."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from trinity.evaluation.conditions import flat
from trinity.evaluation.methods import MethodComparison
from trinity.evaluation.report import INTERVALS
from trinity.evaluation.statistics import Correction, Estimate

_RANKING = (
    "method",
    "seeds",
    "J [95 %, tasks]",
    "sd, seeds",
    "se, tasks",
    "minus best single",
    "trajectories",
    "US$",
)
_PAIRS = ("pair", "difference [95 %, tasks]", "p, tasks", "p, seeds", "p, corrected", "result")


class MethodReport:
    """What a comparison found.

    Args:
        comparison: the methods and their pairs.
        correction: how p values were corrected for the number of pairs.
    """

    def __init__(self, comparison: MethodComparison, correction: Correction) -> None:
        self._comparison = comparison
        self._correction = correction

    def print(self, console: Console) -> None:
        """What the runs don't share, both tables, and the conclusion."""
        for line in self._warnings():
            console.print(line, markup=False)
        for title, columns, rows in (
            (self._title(), _RANKING, self._ranking()),
            ("Pairs", _PAIRS, self._pairs()),
        ):
            table = Table(title=title)
            for place, column in enumerate(columns):
                table.add_column(column, justify="left" if place in (0, 5) else "right")
            for row in rows:
                table.add_row(*map(escape, row))
            if table.row_count:
                console.print(table)
        for line in (self._comparison.conclusion, *self._notes()):
            console.print(line, markup=False)

    def markdown(self, figures: Sequence[str]) -> str:
        """The same, with figures by file name and what the methods' configs differ in."""
        warnings = self._warnings()
        parts = ["# Comparison", *warnings, self._comparison.conclusion, f"## {self._title()}"]
        parts.append(_markdown_table(_RANKING, self._ranking()))
        if self._comparison.pairs:
            parts += ["## Pairs", _markdown_table(_PAIRS, self._pairs())]
        parts += self._notes()
        parts += [f"![{name}]({name})" for name in figures]
        differing = self._differences()
        if differing:
            labels = [method.label for method in self._comparison.methods]
            parts += ["## What the configs differ in", _markdown_table(("option", *labels), differing)]
        runs = [
            f"- {m.label}, seed {run.seed}: {run.folder}" for m in self._comparison.methods for run in m.runs
        ]
        parts += ["## Runs", "\n".join(runs)]
        return "\n\n".join(parts) + "\n"

    def _warnings(self) -> list[str]:
        found = self._comparison.mismatches
        start = "NOT UNDER THE SAME CONDITIONS, so a difference need not be the methods'. "
        return [start + found[0], *found[1:]] if found else []

    def _title(self) -> str:
        return f"Ranking on {len(self._comparison.methods[0].tasks)} held-out tasks"

    def _ranking(self) -> Iterator[tuple[str, ...]]:
        for method in self._comparison.methods:
            deviation, gain = method.seed_deviation, self._comparison.over_best_single(method)
            yield (
                method.label,
                str(len(method.runs)),
                str(method.accuracy),
                "-" if deviation is None else f"{deviation:.3f}",
                f"{method.task_error:.3f}",
                "-" if gain is None else _signed(gain),
                f"{method.trajectories:,.0f}",
                f"{method.usd:,.2f}",
            )

    def _pairs(self) -> Iterator[tuple[str, ...]]:
        for pair in self._comparison.pairs:
            yield (
                f"{pair.first} - {pair.second}",
                _signed(pair.difference),
                _p(pair.p_tasks),
                "-" if pair.p_seeds is None else _p(pair.p_seeds),
                _p(pair.p_adjusted),
                pair.verdict,
            )

    def _notes(self) -> list[str]:
        comparison = self._comparison
        notes = []
        if comparison.best_single is not None:
            name, rewards = comparison.best_single
            mean = sum(rewards.values()) / len(rewards)
            blind = "" if comparison.random is None else f"; random routing {comparison.random:.3f}"
            notes.append(
                f"Best single agent, chosen with hindsight among the single rows of all runs: {name}, "
                f"{mean:.3f}{blind}."
            )
        notes.append(
            "Each interval holds by itself in 95 % of cases, not corrected for their number; p values are."
            if comparison.pairs
            else INTERVALS
        )
        if comparison.pairs:
            notes.append(
                "p, tasks: exact sign test over tasks (McNemar's exact test with one seed each). p, seeds: "
                "Welch's t test between seeds. The larger one, corrected over the pairs "
                f"({self._correction.title()}), must lie below {comparison.pairs[0].level}."
            )
        level = comparison.pairs[0].level if comparison.pairs else 0.0
        if any(p.p_tasks < level <= (p.p_seeds or 0.0) for p in comparison.pairs):
            notes.append(
                "Some pairs differ on these tasks, but not by more than their seeds do among themselves: "
                "more seeds may tell them apart."
            )
        if any(pair.p_seeds is None for pair in comparison.pairs):
            notes.append(
                "Where p, seeds is missing there is one seed, or seeds that do not differ at all: a "
                "difference is then between trained policies, not between methods: another seed may turn it."
            )
        return notes

    def _differences(self) -> list[tuple[str, ...]]:
        """Options whose values are not the same in all methods, by the config of each method's first run."""
        configs = [flat(method.runs[0].config) for method in self._comparison.methods]
        keys = list(dict.fromkeys(key for config in configs for key in config))
        ignored = ("name", "label", "seed_everything", "trainer.default_root_dir", "ckpt_path")
        return [
            (key, *(str(config.get(key, "")) for config in configs))
            for key in keys
            if key not in ignored and len({str(config.get(key, "")) for config in configs}) > 1
        ]


def _signed(estimate: Estimate) -> str:
    return f"{estimate.mean:+.3f} [{estimate.low:+.3f}, {estimate.high:+.3f}]"


def _p(value: float) -> str:
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def _markdown_table(columns: Sequence[str], rows: Iterator[tuple[str, ...]] | list[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)
