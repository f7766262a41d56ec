"""Figures of a comparison, as PNG files."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from trinity.evaluation.methods import Method, MethodComparison

_AXES = {
    "trajectories": ("spent/trajectories", "trajectories played in training"),
    "dollars": ("spent/usd", "US dollars paid in training"),
}


def draw(comparison: MethodComparison, folder: Path) -> list[Path]:
    """J against trajectories, against dollars where anything was paid, and the held-out accuracies."""
    written = [_curves(comparison, "trajectories", folder)]
    if any(method.usd > 0 for method in comparison.methods):
        written.append(_curves(comparison, "dollars", folder))
    return [*written, _accuracies(comparison, folder)]


def _curves(comparison: MethodComparison, against: str, folder: Path) -> Path:
    column, name = _AXES[against]
    figure, axes = _figure(7.5, 4.5)
    for index, method in enumerate(comparison.methods):
        curves = [curve for run in method.runs if (curve := run.curve(column))]
        if not curves:
            continue
        colour = f"C{index}"
        for curve in curves:
            axes.plot(*zip(*curve, strict=True), color=colour, alpha=0.25, linewidth=1)
        points = mean_curve(curves)
        axes.plot(*zip(*points, strict=True), "o-", color=colour, markersize=3, label=method.label)
    _reference_lines(axes, comparison)
    axes.set(xlabel=name, ylabel="J of the mean theta, validation tasks", ylim=(0, 1))
    axes.set_xlim(left=0)
    axes.legend(fontsize="small", loc="lower right")
    return _save(figure, folder / f"j_by_{against}.png")


def mean_curve(curves: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """The mean over seeds, point by point; as long as the shortest."""
    return [
        (float(np.mean([x for x, _ in points])), float(np.mean([y for _, y in points])))
        for points in zip(*curves, strict=False)
    ]


def _accuracies(comparison: MethodComparison, folder: Path) -> Path:
    methods: list[Method] = comparison.methods[::-1]
    figure, axes = _figure(7.5, 1.5 + 0.45 * len(methods))
    for place, method in enumerate(methods):
        found = method.accuracy
        error = [[found.mean - found.low], [found.high - found.mean]]
        axes.errorbar(found.mean, place, xerr=error, fmt="o", color="C0", capsize=3)
        axes.plot(method.by_seed, [place] * len(method.runs), "|", color="C1", markersize=12)
    if comparison.best_single is not None:
        rewards = comparison.best_single[1]
        axes.axvline(sum(rewards.values()) / len(rewards), color="grey", linestyle=":")
    axes.set_yticks(range(len(methods)), [method.label for method in methods])
    axes.set(xlabel="J on held-out tasks: mean of seeds, 95 % over tasks; bars: single seeds", xlim=(0, 1))
    return _save(figure, folder / "held_out.png")


def _reference_lines(axes: Axes, comparison: MethodComparison) -> None:
    if comparison.best_single is not None:
        name, rewards = comparison.best_single
        mean = sum(rewards.values()) / len(rewards)
        axes.axhline(mean, color="grey", linestyle=":", label=f"best single ({name}), held-out tasks")


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    # Not pyplot, which keeps every figure in a global list.
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, dpi=130)
    return path
