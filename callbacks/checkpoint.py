"""Checkpoints: the last generation, and the best mean theta by validation J."""

import sys

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint


class LastCheckpoint(ModelCheckpoint):
    """`checkpoints/last.ckpt`, written after every generation: a kill loses the one in flight at most."""

    def __init__(self) -> None:
        super().__init__(
            filename="last",
            save_top_k=1,
            save_on_train_epoch_end=True,
            enable_version_counter=False,
        )

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Say how to go on, also after Ctrl-C."""
        super().on_exception(trainer, pl_module, exception)
        if self.best_model_path and trainer.is_global_zero:
            print(f"Stopped. Go on with --ckpt_path {self.best_model_path}", file=sys.stderr)


class BestCheckpoint(ModelCheckpoint):
    """`checkpoints/best.ckpt`: the mean theta with the highest J on the validation tasks so far."""

    def __init__(self) -> None:
        super().__init__(
            filename="best",
            monitor="J/validation",
            mode="max",
            save_top_k=1,
            save_on_train_epoch_end=True,
            enable_version_counter=False,
        )

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save after a validation; before the first one there is nothing to compare."""
        if "J/validation" in trainer.callback_metrics:
            super().on_train_epoch_end(trainer, pl_module)
