import json
from pathlib import Path

import pytest

from trinity.errors import UserError
from trinity.tasks import humaneval
from trinity.tasks.humaneval import HumanEvalTasks
from trinity.tasks.jsonl import Row


def test_the_benchmark_file(shared_data: Path) -> None:
    splits = HumanEvalTasks(str(shared_data / "humaneval.jsonl.gz"), test=100, validation=10).load()
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [54, 10, 100]
    task = next(task for part in (splits.train, splits.test) for task in part if task.id == "HumanEval/2")
    reference = json.loads(task.reference)
    assert reference["entry_point"] == "truncate_number"
    assert task.query == f"Complete this function:\n```python\n{reference['prompt'].strip()}\n```"
    assert (task.grader, task.answer_format) == ("code", "code")


def test_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    def hub_rows(repository: str, config: None, split: str) -> list[Row]:
        assert (repository, config, split) == ("openai/openai_humaneval", None, "test")
        row = {"prompt": "def f():\n", "test": "def check(f): pass", "entry_point": "f"}
        return [Row(row | {"task_id": f"HumanEval/{number}"}, "row") for number in range(4)]

    monkeypatch.setattr(humaneval, "hub_rows", hub_rows)
    assert len(HumanEvalTasks(test=1, validation=1).load().train) == 2


def test_a_missing_field_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(humaneval, "hub_rows", lambda *_: [Row({"task_id": "a", "prompt": "p"}, "row 0")])
    with pytest.raises(UserError, match=r'row 0: "test" is missing'):
        HumanEvalTasks().load()
