"""Several benchmarks at once: a few questions of each, so that there is something to route between."""

from pathlib import Path
from typing import Literal, get_args

from trinity.errors import UserError
from trinity.tasks.gsm8k import GSM8KTasks
from trinity.tasks.mbpp import MBPPTasks
from trinity.tasks.mmlu import MMLUTasks
from trinity.tasks.splits import carve
from trinity.tasks.task import Task, TaskSource, TaskSplits

Benchmark = Literal["gsm8k", "mmlu", "mbpp"]


class MixedTasks(TaskSource):
    """GSM8K, MMLU and MBPP in one; the domain of every task is its benchmark's name.

    Args:
        folder: where gsm8k_train.jsonl.gz, gsm8k_test.jsonl.gz, mmlu_test_sample.jsonl.gz and mbpp.jsonl.gz
            lie; a benchmark without files there is read from the hub.
        benchmarks: which.
        train, validation, test: so many tasks of each benchmark.
    """

    def __init__(
        self,
        folder: str = "../shared/data",
        benchmarks: list[Benchmark] | None = None,
        *,
        train: int = 100,
        validation: int = 10,
        test: int = 50,
    ) -> None:
        self.folder = Path(folder)
        self.benchmarks = list(get_args(Benchmark)) if benchmarks is None else benchmarks
        self.sizes = {"train": train, "validation": validation, "test": test}

    def load(self) -> TaskSplits:
        if not self.benchmarks:
            raise UserError(f"MixedTasks got no benchmarks: name some of {', '.join(get_args(Benchmark))}.")
        parts = [self._part(name) for name in self.benchmarks]
        return TaskSplits(*([task for part in parts for task in part[split]] for split in self.sizes))

    def _part(self, name: Benchmark) -> dict[str, list[Task]]:
        loaded = self._source(name).load()
        whole = {"train": loaded.train, "validation": loaded.validation, "test": loaded.test}
        return {split: carve(tasks, self.sizes[split], split)[0] for split, tasks in whole.items()}

    def _source(self, name: Benchmark) -> TaskSource:
        def found(file: str) -> str | None:
            path = self.folder / file
            return str(path) if path.is_file() else None

        match name:
            case "gsm8k":
                train, test = found("gsm8k_train.jsonl.gz"), found("gsm8k_test.jsonl.gz")
                # Both or none: the hub's rows have other ids.
                return GSM8KTasks(train, test) if train and test else GSM8KTasks()
            case "mmlu":
                return MMLUTasks(found("mmlu_test_sample.jsonl.gz"))
            case "mbpp":
                return MBPPTasks(found("mbpp.jsonl.gz"))
