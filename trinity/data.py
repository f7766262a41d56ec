"""TaskDataModule: which tasks, which split, which minibatch in which generation."""

from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch.utils.data import DataLoader, Dataset

from trinity import keyed
from trinity.errors import UserError
from trinity.tasks.task import Task, TaskSource, TaskSplits


class _Minibatch(Dataset[list[Task]]):
    """One item an epoch: an epoch is a generation, so that every checkpoint lies between two of them."""

    def __init__(self, data: "TaskDataModule") -> None:
        self._data = data

    def __getitem__(self, index: int) -> list[Task]:
        trainer = self._data.trainer
        return self._data.minibatch(trainer.global_step if trainer is not None else 0)

    def __len__(self) -> int:
        return 1


class TaskDataModule(LightningDataModule):
    """Tasks for training, validation and the final table.

    Args:
        source: where the tasks come from.
        minibatch: m, distinct tasks a generation, shared by all its candidates.
        validation: at most this many validation tasks are used, to bound what a validation costs.
        test: likewise for the final table; None uses all.
        seed: of the minibatches; the run's seed by default.
    """

    def __init__(
        self,
        source: TaskSource,
        minibatch: int = 16,
        validation: int | None = None,
        test: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.source = source
        self.minibatch_size = minibatch
        self.seed = seed
        self._limits = {"validation": validation, "test": test}
        self._splits: TaskSplits | None = None

    @property
    def splits(self) -> TaskSplits:
        """The tasks, read at first use. Raises UserError where they can't be."""
        if self._splits is None:
            loaded = self.source.load()
            if not 1 <= self.minibatch_size <= len(loaded.train):
                raise UserError(
                    f"data.minibatch is {self.minibatch_size}, but must lie between 1 and the number of "
                    f"training tasks, {len(loaded.train)}."
                )
            self._splits = TaskSplits(
                loaded.train,
                self._limited(loaded.validation, "validation"),
                self._limited(loaded.test, "test"),
            )
        return self._splits

    def _limited(self, tasks: Sequence[Task], split: str) -> list[Task]:
        """At most the wanted number, drawn by key from the whole split, whatever its order."""
        limit = self._limits[split]
        if limit is not None and limit < 1:
            raise UserError(f"data.{split} is {limit}, but must be at least 1, or null to use all.")
        ranked = sorted(tasks, key=lambda task: keyed.uniform("subset", split, task.id))
        chosen = {task.id for task in ranked[:limit]}
        return [task for task in tasks if task.id in chosen]

    def minibatch(self, generation: int) -> list[Task]:
        """The distinct training tasks of one generation: a function of (seed, generation) alone."""
        train = self.splits.train
        rng = keyed.generator("minibatch", self.seed, generation)
        return [train[int(i)] for i in rng.choice(len(train), size=self.minibatch_size, replace=False)]

    def train_dataloader(self) -> DataLoader[list[Task]]:
        """One batch, the minibatch of the generation at hand."""
        return DataLoader(_Minibatch(self), batch_size=None)

    def val_dataloader(self) -> DataLoader[list[Task]]:
        """All validation tasks as one batch."""
        return DataLoader([self.splits.validation], batch_size=None)  # type: ignore[arg-type]

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Tasks are text; they stay where they are."""
        return batch
