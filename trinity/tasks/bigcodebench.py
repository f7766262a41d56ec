"""BigCodeBench: tasks that call many libraries, with unit tests (Zhuo et al. 2024, arXiv 2406.15877)."""

import json

from trinity.tasks.hub import hub_rows
from trinity.tasks.jsonl import Row, read_rows
from trinity.tasks.splits import Share, split_one
from trinity.tasks.task import Task, TaskSource, TaskSplits


class BigCodeBenchTasks(TaskSource):
    """The 1,140 problems as instructions, split by a hash of their id.

    Their unit tests need the libraries that the benchmark lists, in the Python that runs this. The tests run
    in the program's own process: see docs/rewards_code.md for what that cannot defend.

    Args:
        path: JSON Lines with {task_id, instruct_prompt, code_prompt, test, entry_point}; None is
            bigcode/bigcodebench on the hub.
        test: how much is reported on: a float is a fraction, an int a count.
        validation: how much of the rest validates the mean theta, likewise.
    """

    def __init__(self, path: str | None = None, *, test: Share = 0.5, validation: Share = 0.2) -> None:
        self.path = path
        self.test = test
        self.validation = validation

    def load(self) -> TaskSplits:
        rows = read_rows(self.path) if self.path else hub_rows("bigcode/bigcodebench", None, "v0.1.4")
        named = [(_task(row), row.where) for row in rows]
        return split_one(named, test=self.test, validation=self.validation)


def _task(row: Row) -> Task:
    return Task(
        id=row.text("task_id"),
        domain="bigcodebench",
        query=row.text("instruct_prompt"),
        reference=json.dumps(
            {
                "prompt": row.text("code_prompt"),
                "test": row.text("test"),
                "entry_point": row.text("entry_point"),
            }
        ),
        grader="code",
        answer_format="code",
    )
