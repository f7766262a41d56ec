"""MATH-500: competition mathematics with LaTeX answers (Lightman et al. 2023, arXiv 2305.20050)."""

from trinity.tasks.hub import hub_rows
from trinity.tasks.jsonl import Row, read_rows
from trinity.tasks.splits import Share, split_one
from trinity.tasks.task import Task, TaskSource, TaskSplits


class Math500Tasks(TaskSource):
    """The 500 problems, split by a hash of their id; the domain is the subject (seven of them).

    Args:
        path: JSON Lines with {id, problem, answer, subject}; None is HuggingFaceH4/MATH-500 on the hub. A row
            without an id is named by its place: the n-th is math500-n, from 000.
        test: how much is reported on: a float is a fraction, an int a count.
        validation: how much of the rest validates the mean theta, likewise.
    """

    def __init__(self, path: str | None = None, *, test: Share = 0.5, validation: Share = 0.2) -> None:
        self.path = path
        self.test = test
        self.validation = validation

    def load(self) -> TaskSplits:
        rows = read_rows(self.path) if self.path else hub_rows("HuggingFaceH4/MATH-500", None, "test")
        named = [(_task(row, number), row.where) for number, row in enumerate(rows)]
        return split_one(named, test=self.test, validation=self.validation)


def _task(row: Row, number: int) -> Task:
    return Task(
        id=row.text("id") if "id" in row.values else f"math500-{number:03d}",
        domain=row.text("subject"),
        query=row.text("problem"),
        reference=row.text("answer"),
        grader="math",
        answer_format="boxed",
    )
