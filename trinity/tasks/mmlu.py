"""MMLU: multiple choice in 57 subjects (Hendrycks et al. 2020, arXiv 2009.03300)."""

from trinity.errors import UserError
from trinity.tasks.hub import hub_rows
from trinity.tasks.jsonl import Row, read_rows
from trinity.tasks.splits import Share, split_one
from trinity.tasks.task import Task, TaskSource, TaskSplits

_LETTERS = "ABCD"


class MMLUTasks(TaskSource):
    """The test questions, split by a hash of their id; the domain is the subject.

    Args:
        path: JSON Lines with {id?, subject, question, choices (four texts), answer (a letter, or 0 to 3)};
            None is cais/mmlu on the hub. A row without an id is named by its place: the n-th is mmlu-n.
        test: how much is reported on: a float is a fraction, an int a count.
        validation: how much of the rest validates the mean theta, likewise.
    """

    def __init__(self, path: str | None = None, *, test: Share = 0.5, validation: Share = 0.2) -> None:
        self.path = path
        self.test = test
        self.validation = validation

    def load(self) -> TaskSplits:
        rows = read_rows(self.path) if self.path else hub_rows("cais/mmlu", "all", "test")
        named = [(_task(row, number), row.where) for number, row in enumerate(rows)]
        return split_one(named, test=self.test, validation=self.validation)


def _task(row: Row, number: int) -> Task:
    options = row.texts("choices")
    answer = row.text("answer").strip()
    letter = _LETTERS[int(answer)] if answer in ("0", "1", "2", "3") else answer.upper()
    if len(options) != len(_LETTERS) or letter not in tuple(_LETTERS):
        raise UserError(
            f"{row.where}: {len(options)} choices and the answer {answer!r}; give four choices and the "
            "answer as a letter from A to D or a number from 0 to 3."
        )
    listed = "\n".join(f"{name}) {option}" for name, option in zip(_LETTERS, options, strict=True))
    return Task(
        id=row.text("id") if "id" in row.values else f"mmlu-{number:05d}",
        domain=row.text("subject"),
        query=f"{row.text('question')}\n\n{listed}",
        reference=letter,
        grader="choice",
        answer_format="letter",
        letters=_LETTERS,
        options=options,
    )
