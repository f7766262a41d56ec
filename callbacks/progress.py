"""A progress bar of generations: J, cost, time left."""

import time
from collections import Counter
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from trinity.module import CoordinatorModule


class GenerationProgress(Callback):
    """Shows generation, J, what was spent, and the time left; a line a generation without a terminal."""

    def __init__(self) -> None:
        self._console = Console()
        self._progress: Progress | None = None
        self._task: Any = None
        self._refused: Counter[str] = Counter()
        self._started = 0.0
        self.training_seconds = 0.0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the bar."""
        self._started = time.monotonic()
        self._console.quiet = not trainer.is_global_zero
        if self._console.quiet or not self._console.is_terminal:
            return
        self._progress = Progress(
            TextColumn("generation"),
            MofNCompleteColumn(),
            BarColumn(),
            TextColumn("J {task.fields[j]}  validation {task.fields[validation]}  ${task.fields[cost]:.2f}"),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
        )
        self._progress.start()
        total = trainer.max_steps if trainer.max_steps > 0 else None
        self._task = self._progress.add_task(
            "fit", total=total, completed=trainer.global_step, j="-", validation="-", cost=0.0
        )

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Move on by one generation."""
        assert isinstance(pl_module, CoordinatorModule)
        update = pl_module.update
        if update is None:
            return
        j = update.metrics.get("J/population_mean")
        shown = "-" if j is None else f"{j:.3f}"
        spent = pl_module.spent.usd
        for (place, cause), n in update.ledger.refusals.items():
            self._refused[f"{pl_module.pool.agents[place]}: {cause}"] += n
        found = trainer.callback_metrics.get("J/validation")
        validation = "-" if found is None else f"{float(found):.3f}"
        if self._progress is None:
            self._console.print(
                f"generation {trainer.global_step}/{trainer.max_steps}  J {shown}  validation {validation}  "
                f"${spent:.2f}",
                highlight=False,
            )
        else:
            self._progress.update(
                self._task, completed=trainer.global_step, j=shown, validation=validation, cost=spent
            )

    def state_dict(self) -> dict[str, Any]:
        """What was refused so far."""
        return {"refused": dict(self._refused)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on counting where the checkpoint's run stood."""
        self._refused = Counter(state_dict.get("refused", {}))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say how long it took, validations included."""
        self.training_seconds = time.monotonic() - self._started
        self._close()
        self._console.print(
            f"Trained to generation {trainer.global_step} in {self.training_seconds:.0f} s.", highlight=False
        )
        if self._refused:
            counts = ", ".join(f"{what} ({n}x)" for what, n in self._refused.most_common())
            self._console.print(
                f"Turns without a proper answer, which count as answers all the same: {counts}.",
                highlight=False,
                markup=False,
                soft_wrap=True,
            )

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Close the bar, also after a failure."""
        self._close()

    def _close(self) -> None:
        if self._progress is not None:
            self._progress.stop()
            self._progress = None
