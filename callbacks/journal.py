"""The run's journal: one line for each finished trajectory."""

from pathlib import Path

from lightning.pytorch import Callback, LightningModule, Trainer

from trinity.episode.journal import Journal
from trinity.module import CoordinatorModule

FILE_NAME = "journal.jsonl"


class TrajectoryJournal(Callback):
    """Writes `journal.jsonl` into the run's folder while trajectories finish (see `trinity.episode.journal`).

    Each process of a distributed run writes a file of its own: `journal-1.jsonl` and so on.
    """

    def __init__(self) -> None:
        self._journal: Journal | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Open the file."""
        assert isinstance(pl_module, CoordinatorModule)
        folder = trainer.log_dir  # asked by every process: they agree on it together
        if folder is None or self._journal is not None:
            return
        name = FILE_NAME if trainer.is_global_zero else f"journal-{trainer.global_rank}.jsonl"
        self._journal = pl_module.player.journal = Journal(Path(folder) / name)
