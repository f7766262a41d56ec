import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trinity.errors import UserError
from trinity.tasks import mbpp
from trinity.tasks.jsonl import Row
from trinity.tasks.mbpp import MBPPTasks


def problem(number: int, **change: Any) -> dict[str, Any]:
    tests = [f"assert f({number}) == {number}", "assert f(0) == 0"]
    return {"task_id": number, "text": "Write f.", "test_list": tests, "test_setup_code": ""} | change


def test_the_benchmark_file(shared_data: Path) -> None:
    splits = MBPPTasks(str(shared_data / "mbpp.jsonl.gz"), validation=90).load()
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [384, 90, 500]
    assert (splits.test[0].id, splits.test[0].grader, splits.test[0].answer_format) == (
        "mbpp-11",
        "code",
        "code",
    )
    assert len(json.loads(splits.test[0].reference)["tests"]) == 3


def test_the_query_shows_one_assert(write_rows: Callable[..., str]) -> None:
    rows = [problem(2), problem(3), problem(11, test_setup_code="root = Node(1)\r\nx = 2")]
    task = MBPPTasks(write_rows("a.jsonl", rows), validation=1).load().test[0]
    shown = "root = Node(1)\nx = 2\nassert f(11) == 11"
    assert task.query == f"Write f.\n\nYour code must pass tests such as:\n```python\n{shown}\n```"
    assert json.loads(task.reference) == {
        "tests": ["assert f(11) == 11", "assert f(0) == 0"],
        "test_setup_code": "root = Node(1)\nx = 2",
    }


def test_the_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = {"prompt": [2], "test": [11], "validation": [511], "train": [601, 602]}

    def hub_rows(repository: str, config: str, split: str) -> list[Row]:
        assert (repository, config) == ("google-research-datasets/mbpp", "full")
        return [Row(problem(number), "row") for number in ids[split]]

    monkeypatch.setattr(mbpp, "hub_rows", hub_rows)
    splits = MBPPTasks(validation=1).load()
    assert [len(part) for part in (splits.train, splits.validation, splits.test)] == [3, 1, 1]


@pytest.mark.parametrize("tests", [None, [], "assert 1", [1]])
def test_a_row_without_asserts_is_named(write_rows: Callable[..., str], tests: object) -> None:
    with pytest.raises(UserError, match=r'a\.jsonl, line 1: "test_list" is'):
        MBPPTasks(write_rows("a.jsonl", [problem(1, test_list=tests)])).load()
