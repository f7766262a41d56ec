import json
from collections.abc import Callable

import pytest

from trinity.tasks import bigcodebench
from trinity.tasks.bigcodebench import BigCodeBenchTasks
from trinity.tasks.jsonl import Row

ROW = {
    "instruct_prompt": "Write task_func.",
    "complete_prompt": "unused",
    "code_prompt": "import re\ndef task_func(x):\n",
    "test": "import unittest\nclass TestCases(unittest.TestCase):\n    pass",
    "entry_point": "task_func",
}


def test_a_problem(write_rows: Callable[..., str]) -> None:
    path = write_rows("a.jsonl", [ROW | {"task_id": f"BigCodeBench/{number}"} for number in range(4)])
    splits = BigCodeBenchTasks(path, test=2, validation=1).load()
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [1, 1, 2]
    task = splits.train[0]
    assert (task.query, task.grader, task.answer_format) == ("Write task_func.", "code", "code")
    reference = {"prompt": ROW["code_prompt"], "test": ROW["test"], "entry_point": "task_func"}
    assert json.loads(task.reference) == reference


def test_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def hub_rows(repository: str, config: None, split: str) -> list[Row]:
        assert (repository, config, split) == ("bigcode/bigcodebench", None, "v0.1.4")
        return [Row(ROW | {"task_id": f"BigCodeBench/{number}"}, "row") for number in range(4)]

    monkeypatch.setattr(bigcodebench, "hub_rows", hub_rows)
    assert len(BigCodeBenchTasks(test=1, validation=1).load().train) == 2
