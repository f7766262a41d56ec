"""Draw J by generation: python docs/j_curve.py RUN_FOLDER... --output docs/j_curve.png"""

import argparse
import csv
import json
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt


def series(rows: list[dict[str, str]], column: str) -> tuple[list[float], list[float]]:
    """Generations and values, where the column holds one."""
    held = [row for row in rows if row.get(column)]
    return [float(row["generation"]) for row in held], [float(row[column]) for row in held]


def main() -> None:
    """One pair of lines a run: the population's mean on its minibatch, the mean theta on validation tasks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--output", type=Path, default=Path("docs/j_curve.png"))
    options = parser.parse_args()
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for index, run in enumerate(options.runs):
        with (run / "generations.csv").open() as file:
            rows = list(csv.DictReader(file))
        summary = json.loads((run / "summary.json").read_text())
        colour, seed = f"C{index}", summary["seed"]
        axes.plot(
            *series(rows, "J/population_mean"),
            color=colour,
            alpha=0.45,
            label=f"seed {seed}: population mean",
        )
        axes.plot(
            *series(rows, "J/validation"), "o-", color=colour, label=f"seed {seed}: mean theta, validation"
        )
        if index == 0:
            best = max(estimate["mean"] for estimate in summary["single"].values())
            axes.axhline(best, color="grey", linestyle=":", label="best single agent, held-out tasks")
            if "state_blind" in summary:
                blind = summary["state_blind"]["mean"]
                axes.axhline(blind, color="grey", linestyle="--", label="best fixed schedule, held-out tasks")
    axes.set(xlabel="generation", ylabel="J", ylim=(0, 1))
    axes.legend(fontsize="small", loc="lower right", ncols=2)
    figure.savefig(options.output, dpi=130)


if __name__ == "__main__":
    main()
