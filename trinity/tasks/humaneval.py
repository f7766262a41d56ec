"""HumanEval: Python functions to complete (Chen et al. 2021, arXiv 2107.03374)."""

import json

from trinity.tasks.hub import hub_rows
from trinity.tasks.jsonl import Row, read_rows
from trinity.tasks.splits import Share, split_one
from trinity.tasks.task import Task, TaskSource, TaskSplits


class HumanEvalTasks(TaskSource):
    """The 164 problems, split by a hash of their id.

    Args:
        path: JSON Lines with {task_id, prompt, test, entry_point}; None is openai/openai_humaneval on the
            hub.
        test: how much is reported on: a float is a fraction, an int a count.
        validation: how much of the rest validates the mean theta, likewise.
    """

    def __init__(self, path: str | None = None, *, test: Share = 0.5, validation: Share = 0.2) -> None:
        self.path = path
        self.test = test
        self.validation = validation

    def load(self) -> TaskSplits:
        rows = read_rows(self.path) if self.path else hub_rows("openai/openai_humaneval", None, "test")
        named = [(_task(row), row.where) for row in rows]
        return split_one(named, test=self.test, validation=self.validation)


def _task(row: Row) -> Task:
    prompt = row.text("prompt")
    return Task(
        id=row.text("task_id"),
        domain="humaneval",
        query=f"Complete this function:\n```python\n{prompt.strip()}\n```",
        reference=json.dumps(
            {"prompt": prompt, "test": row.text("test"), "entry_point": row.text("entry_point")}
        ),
        grader="code",
        answer_format="code",
    )
