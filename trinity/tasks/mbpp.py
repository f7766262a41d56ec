"""MBPP: short Python functions with asserts (Austin et al. 2021, arXiv 2108.07732)."""

import json
from typing import Any

from trinity.errors import UserError
from trinity.tasks.hub import hub_rows
from trinity.tasks.jsonl import Row, read_rows
from trinity.tasks.splits import Named, Share, split_two
from trinity.tasks.task import Task, TaskSource, TaskSplits

_TEST_IDS = range(11, 511)
_HUB_SPLITS = ("prompt", "train", "validation", "test")


class MBPPTasks(TaskSource):
    """The benchmark's 974 problems, in its own split: ids 11 to 510 are reported on.

    The query shows the first assert, which names the function and its arguments. The others are not shown, so
    no program can be written around them.

    Args:
        path: JSON Lines with {task_id, text, test_list, test_setup_code}; None is
            google-research-datasets/mbpp on the hub.
        validation: how much of the other problems validates the mean theta: a float is a fraction, an int a
            count.
    """

    def __init__(self, path: str | None = None, *, validation: Share = 0.2) -> None:
        self.path = path
        self.validation = validation

    def load(self) -> TaskSplits:
        if self.path:
            rows = list(read_rows(self.path))
        else:
            parts = [hub_rows("google-research-datasets/mbpp", "full", split) for split in _HUB_SPLITS]
            rows = [row for part in parts for row in part]
        train: list[Named] = []
        test: list[Named] = []
        for row in rows:
            reported = row.values.get("task_id") in _TEST_IDS
            (test if reported else train).append((_task(row), row.where))
        return split_two(train, test, validation=self.validation)


def _task(row: Row) -> Task:
    tests: Any = row.values.get("test_list")
    if not (isinstance(tests, list) and tests and all(isinstance(test, str) for test in tests)):
        raise UserError(f'{row.where}: "test_list" is {json.dumps(tests)[:60]}; give a list of asserts.')
    reference: dict[str, Any] = {"tests": tests}
    shown = tests[0]
    if row.values.get("test_setup_code"):
        setup = row.text("test_setup_code").replace("\r\n", "\n")
        reference["test_setup_code"] = setup
        shown = f"{setup}\n{shown}"
    return Task(
        id=f"mbpp-{row.text('task_id')}",
        domain="mbpp",
        query=f"{row.text('text').strip()}\n\nYour code must pass tests such as:\n```python\n{shown}\n```",
        reference=json.dumps(reference),
        grader="code",
        answer_format="code",
    )
