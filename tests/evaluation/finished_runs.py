"""Folders of finished runs with outcomes that a test chooses."""

import csv
import json
from pathlib import Path
from typing import Any

import yaml


def write_run(
    folder: Path,
    label: str,
    seed: int,
    trained: dict[str, int],
    *,
    trajectories: float = 100.0,
    usd: float = 0.0,
    config: dict[str, Any] | None = None,
    single: dict[str, int] | None = None,
    singles: dict[str, dict[str, int]] | None = None,
) -> Path:
    """What trinity-fit leaves in a run's folder, as far as comparisons read it."""
    folder.mkdir(parents=True)
    everything = {"name": "run", "label": label, "seed_everything": seed, **(config or {})}
    (folder / "config.yaml").write_text(yaml.safe_dump(everything))
    (folder / "summary.json").write_text(json.dumps({"seed": seed}))
    held_out = {"trained coordinator": trained, "random routing": dict.fromkeys(trained, 0)}
    if single is not None:
        held_out["single: gpt"] = single
    held_out |= {f"single: {name}": rewards for name, rewards in (singles or {}).items()}
    (folder / "held_out.json").write_text(json.dumps(held_out))
    with (folder / "generations.csv").open("w", newline="") as file:
        writer = csv.DictWriter(
            file, ["generation", "J/population_mean", "J/validation", "spent/trajectories", "spent/usd"]
        )
        writer.writeheader()
        for generation in (0, 1):
            share = (generation + 1) / 2
            writer.writerow(
                {
                    "generation": generation,
                    "J/population_mean": 0.5,
                    "J/validation": "" if generation == 0 else 0.5,
                    "spent/trajectories": share * trajectories,
                    "spent/usd": share * usd,
                }
            )
    return folder


def outcomes(right: int, tasks: int = 100, first: int = 0) -> dict[str, int]:
    """Right on `right` tasks from the `first` on, of so many."""
    return {f"t{i}": int(first <= i < first + right) for i in range(tasks)}
