"""Finished runs, read from their folders."""

import csv
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from trinity.errors import UserError
from trinity.evaluation.report import FILE_NAME, HELD_OUT_NAME
from trinity.evaluation.statistics import Rewards

TRAINED = "trained coordinator"
RANDOM = "random routing"
_SINGLE = "single: "


@dataclass(frozen=True)
class Run:
    """One finished run.

    `held_out` holds each policy's rewards by held-out task, `rows` what was logged by generation.
    """

    folder: Path
    label: str
    seed: int
    config: dict[str, Any]
    held_out: dict[str, Rewards]
    rows: list[dict[str, float]]

    @property
    def trained(self) -> Rewards:
        """The trained coordinator's rewards."""
        return self.held_out[TRAINED]

    @property
    def singles(self) -> dict[str, Rewards]:
        """Each single agent's rewards, by its name."""
        found = {label: rewards for label, rewards in self.held_out.items() if label.startswith(_SINGLE)}
        return {label.removeprefix(_SINGLE): rewards for label, rewards in found.items()}

    @property
    def trajectories(self) -> float:
        """How many trajectories the training played."""
        return self.rows[-1]["spent/trajectories"]

    @property
    def usd(self) -> float:
        """What the training's calls cost, in US dollars."""
        return self.rows[-1]["spent/usd"]

    def curve(self, against: str) -> list[tuple[float, float]]:
        """J of the mean theta on the validation tasks, against a column of the log."""
        return [(row[against], row["J/validation"]) for row in self.rows if "J/validation" in row]


def find_runs(places: Sequence[Path]) -> list[Run]:
    """The runs in these folders or anywhere below them.

    Raises UserError for a folder without a finished run, and for files that can't be read.
    """
    runs: dict[Path, Run] = {}
    for place in places:
        if not place.is_dir():
            raise UserError(f"{place} is no folder; give a run's folder, or one that holds runs.")
        found = sorted(path.parent for path in place.rglob(FILE_NAME))
        if not found:
            raise UserError(
                f"{place} holds no finished run (no {FILE_NAME}); finish it with --ckpt_path, or give "
                "another folder."
            )
        runs |= {folder.resolve(): read_run(folder) for folder in found}
    return list(runs.values())


def read_run(folder: Path) -> Run:
    """One run. Raises UserError where a file is missing or can't be read."""
    try:
        config = yaml.safe_load((folder / "config.yaml").read_text())
        summary = json.loads((folder / FILE_NAME).read_text())
        held_out = json.loads((folder / HELD_OUT_NAME).read_text())
        with (folder / "generations.csv").open(newline="") as file:
            rows = [{k: float(v) for k, v in row.items() if v} for row in csv.DictReader(file)]
        label = str(config.get("label") or config["name"])
        run = Run(folder, label, int(summary["seed"]), config, held_out, rows)
        if not (run.trained and run.rows):
            raise KeyError(TRAINED)
    except FileNotFoundError as error:
        raise UserError(
            f"{folder} lacks {Path(str(error.filename)).name}; compare runs of this version of trinity."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise UserError(f"The run {folder} can't be read ({type(error).__name__}: {error}).") from None
    return run
