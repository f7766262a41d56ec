"""Checkpoints: the last generation, and the best mean theta by validation J."""

import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor


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
    """`checkpoints/best.ckpt`: the mean theta with the highest J on the validation tasks so far.

    That J is the highest of several noisy figures, so it promises too much: on other tasks expect less. The
    run says so at its end. The final table, which is about held-out tasks, takes the last theta instead.

    A run that goes on in a new folder takes the best of its earlier part along: the file is copied from
    beside the checkpoint that it goes on from, or from where that run wrote it, and stays there, too. Where
    it is gone, or comes from a later generation than that checkpoint, the best starts anew, with a warning.
    """

    def __init__(self) -> None:
        super().__init__(
            filename="best",
            monitor="J/validation",
            mode="max",
            save_top_k=1,
            save_on_train_epoch_end=True,
            enable_version_counter=False,
        )
        self.validations = 0
        self._resumed_step = 0
        self._earlier: tuple[str, Tensor] | None = None

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count: how far the highest one promises too much depends on how many there were."""
        super().on_validation_end(trainer, pl_module)
        self.validations += 1

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save after a validation; before the first one there is nothing to compare."""
        if "J/validation" in trainer.callback_metrics:
            super().on_train_epoch_end(trainer, pl_module)

    def state_dict(self) -> dict[str, Any]:
        """What Lightning keeps, and how many validations there were."""
        return {**super().state_dict(), "validations": self.validations}

    def on_load_checkpoint(
        self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Learn which generation the run goes on from."""
        self._resumed_step = int(checkpoint["global_step"])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on in the same folder; or in a new one, into which `on_fit_start` takes the file."""
        super().load_state_dict(state_dict)
        self.validations = state_dict.get("validations", 0)  # earlier versions did not count
        if state_dict["dirpath"] != self.dirpath and state_dict["best_model_score"] is not None:
            self._earlier = state_dict["best_model_path"], state_dict["best_model_score"]
            self.best_model_path = ""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Take the best of the run's earlier part into this run's folder."""
        super().on_fit_start(trainer, pl_module)
        if self._earlier is None:
            return
        written, score = self._earlier
        path = str(Path(str(self.dirpath), f"{self.filename}{self.FILE_EXTENSION}"))
        # The first process decides for all: they have to agree on what there is to beat.
        if trainer.strategy.broadcast(trainer.is_global_zero and self._taken_along(trainer, written, path)):
            self.best_model_path = self.kth_best_model_path = path
            self.best_model_score = self.current_score = self.kth_value = score
            self.best_k_models = {path: score}

    def _taken_along(self, trainer: Trainer, written: str, path: str) -> bool:
        """Copy the earlier best to `path`; whether it was there to copy."""
        beside = Path(str(trainer.ckpt_path)).with_name(Path(path).name)
        for source in (beside, Path(written)):
            if source.is_file() and self._is_earlier(source):
                Path(path).parent.mkdir(parents=True, exist_ok=True)
                part = Path(f"{path}.part")
                shutil.copyfile(source, part)
                part.replace(path)
                return True
        warnings.warn(
            f"The best.ckpt of the run up to generation {self._resumed_step} is neither at {beside} nor at "
            f"{written}: the one in this run's folder will be the best of the generations from here on.",
            stacklevel=2,
        )
        return False

    def _is_earlier(self, source: Path) -> bool:
        """Whether a file is the best checkpoint that the run's state speaks of, and not a later one."""
        assert self._earlier is not None
        try:
            found = torch.load(source, map_location="cpu", weights_only=True)
            score, step = found["callbacks"][self.state_key]["best_model_score"], found["global_step"]
        except Exception:  # torch.load has many for a file that is cut off, or something else
            return False
        return float(score) == float(self._earlier[1]) and int(step) <= self._resumed_step

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say what the best is, and what it is not."""
        super().on_fit_end(trainer, pl_module)
        if not trainer.is_global_zero or self.best_model_score is None:
            return
        noisy = (
            f"the highest of {self.validations} noisy ones, so expect less on other tasks"
            if self.validations > 1
            else "the only one so far"
        )
        score = float(self.best_model_score)
        print(f"Best on the validation tasks: J {score:.3f}, {noisy}: {self.best_model_path}")
