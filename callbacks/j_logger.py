"""J(theta) and everything beside it, to TensorBoard and to a CSV file."""

import csv
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from trinity.module import CoordinatorModule

FILE_NAME = "generations.csv"


class JLogger(Callback):
    """Logs one row a generation, with the generation as TensorBoard's step.

    Tags: `J/population_mean`, `J/population_best`, `J/validation` (mean theta, in the generations that
    validate), `sigma`, `agent_share/*`, `role_share/*`, `turns`, tokens, cost, `trajectories/*` and the
    cumulative `spent/*`: trajectories of the training, and all that was paid for until then, validations and
    whatever was measured before the training included. `by_trajectories/*` repeats J with the trajectories
    spent as the step, so that runs of different optimizers, whose generations cost different sums, share one
    axis. The history travels in the checkpoint, so a resumed run has the whole series.
    """

    def __init__(self) -> None:
        self.rows: list[dict[str, float]] = []
        self._validation: float | None = None

    @property
    def j_series(self) -> list[float | None]:
        """Population mean of J, by generation; None where the objective plays no policy, as imitation."""
        return [row.get("J/population_mean") for row in self.rows]

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Write a resumed run's history, which may have no generation left to go."""
        folder = trainer.log_dir
        if self.rows and folder is not None and trainer.is_global_zero:
            self._write(Path(folder) / FILE_NAME)

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Keep J of the mean theta for the row of the generation that it follows."""
        self._validation = float(trainer.callback_metrics["J/validation"])

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Log the generation that just ended."""
        assert isinstance(pl_module, CoordinatorModule)
        update = pl_module.update
        if update is None:
            return
        row = {"generation": float(update.generation), **update.metrics}
        row |= update.ledger.metrics(pl_module.pool.agents)
        row["spent/trajectories"] = self._spent("spent/trajectories") + row["trajectories/all"]
        spent = pl_module.spent
        row |= {
            "spent/usd": spent.usd,
            "spent/calls": float(spent.calls),
            "spent/tokens": float(spent.tokens),
        }
        if self._validation is not None:
            row["J/validation"], self._validation = self._validation, None
        self.rows.append(row)
        for logger in trainer.loggers:
            logger.log_metrics({k: v for k, v in row.items() if k != "generation"}, step=update.generation)
            logger.log_metrics(self._by_trajectories(row), step=int(row["spent/trajectories"]))
        folder = trainer.log_dir  # asked by every process: they agree on it together
        if folder is not None and trainer.is_global_zero:
            self._write(Path(folder) / FILE_NAME)

    @staticmethod
    def _by_trajectories(row: dict[str, float]) -> dict[str, float]:
        kinds = ("population_mean", "validation")
        return {f"by_trajectories/J_{kind}": row[f"J/{kind}"] for kind in kinds if f"J/{kind}" in row}

    def _spent(self, tag: str) -> float:
        return self.rows[-1][tag] if self.rows else 0.0

    def _write(self, path: Path) -> None:
        columns = list(dict.fromkeys(column for row in self.rows for column in row))
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")  # a full disk leaves the file of before
        with part.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(self.rows)
        part.replace(path)

    def state_dict(self) -> dict[str, Any]:
        """The history."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on with the history of a checkpoint."""
        self.rows = [dict(row) for row in state_dict["rows"]]
