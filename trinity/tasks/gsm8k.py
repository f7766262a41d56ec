"""GSM8K: grade-school word problems with whole-number answers (Cobbe et al. 2021, arXiv 2110.14168)."""

import re

from trinity.errors import UserError
from trinity.tasks.hub import hub_rows
from trinity.tasks.jsonl import Row, read_rows
from trinity.tasks.splits import Named, Share, split_two
from trinity.tasks.task import Task, TaskSource, TaskSplits


class GSM8KTasks(TaskSource):
    """The benchmark's own 7,473 training and 1,319 test problems.

    Args:
        train_path, test_path: JSON Lines with {id, question, answer}; None is openai/gsm8k on the hub. The
            answer is the final number, alone or after "####". A row without an id is named by its place.
        validation: how much of the training problems validates the mean theta instead: a float is a fraction,
            an int a count.
    """

    def __init__(
        self, train_path: str | None = None, test_path: str | None = None, *, validation: Share = 0.1
    ) -> None:
        self.train_path = train_path
        self.test_path = test_path
        self.validation = validation

    def load(self) -> TaskSplits:
        train, test = _read("train", self.train_path), _read("test", self.test_path)
        return split_two(train, test, validation=self.validation)


def _read(split: str, path: str | None) -> list[Named]:
    rows = read_rows(path) if path else hub_rows("openai/gsm8k", "main", split)
    return [(_task(row, f"gsm8k-{split}-{number:04d}"), row.where) for number, row in enumerate(rows)]


def _task(row: Row, fallback_id: str) -> Task:
    return Task(
        id=row.text("id") if "id" in row.values else fallback_id,
        domain="gsm8k",
        query=row.text("question"),
        reference=_final_number(row),
        grader="math",
        answer_format="boxed",
    )


def _final_number(row: Row) -> str:
    number = row.text("answer").rpartition("####")[2].strip().replace(",", "")
    if not re.fullmatch(r"-?\d+(\.\d+)?", number):
        raise UserError(f'{row.where}: "answer" ends in {number[-40:]!r}, not a number; mend the row.')
    return number
