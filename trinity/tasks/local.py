"""Tasks of the user's own, from JSON Lines files."""

import hashlib
import json
from typing import Any, get_args

from trinity.errors import UserError
from trinity.tasks.jsonl import Row, read_rows
from trinity.tasks.splits import Named, Share, split_one, split_two
from trinity.tasks.task import AnswerFormat, GraderKind, Task, TaskSource, TaskSplits

_FIELDS = ("id", "domain", "query", "reference", "grader", "answer_format", "letters", "options")
_FORMATS: dict[GraderKind, AnswerFormat] = {
    "math": "boxed",
    "choice": "letter",
    "text": "line",
    "exact": "line",
    "json_number": "json",
    "json_math": "json",
    "json_literal": "json",
    "code": "code",
}


class JsonLinesTasks(TaskSource):
    """One task a line. Each row needs a query and a reference; the rest has defaults here.

    A row without an id gets one from its query, reference and options: the same wherever it stands. Two such
    rows that are alike are refused, since one of them could be trained and the other reported on.

    Args:
        path: one file, split by a hash of the task's id. Or instead:
        train_path, test_path: two files; only the validation split is carved, from the first.
        fields: where a task's field has another name in the file, e.g. {query: question, reference: answer}.
            Fields: id, domain, query, reference, grader, answer_format, letters, and options (a list of the
            options' texts, by which a choice may be answered, too; the query has to show them).
        domain: of rows that name none.
        grader: of rows that name none: math, choice, text (free-form), exact (letter for
            letter), json_number, json_math, json_literal, code.
        answer_format: of rows that name none; None is the grader's usual one (math: boxed, choice: letter,
            text and exact: line, json_*: json, code: code).
        test: how much of `path` is reported on: a float is a fraction, an int a count.
        validation: how much of the rest validates the mean theta, likewise.
    """

    def __init__(
        self,
        path: str | None = None,
        *,
        train_path: str | None = None,
        test_path: str | None = None,
        fields: dict[str, str] | None = None,
        domain: str = "local",
        grader: GraderKind = "text",
        answer_format: AnswerFormat | None = None,
        test: Share = 0.3,
        validation: Share = 0.2,
    ) -> None:
        self.path = path
        self.train_path = train_path
        self.test_path = test_path
        self.fields = fields or {}
        self.defaults = {"domain": domain, "grader": grader, "letters": "ABCD"}
        if answer_format is not None:
            self.defaults["answer_format"] = answer_format
        self.test = test
        self.validation = validation

    def load(self) -> TaskSplits:
        for field in self.fields:
            if field not in _FIELDS:
                raise UserError(f"A task has no field {field!r}: map some of {', '.join(_FIELDS)}.")
        named: dict[str, str] = {}
        if self.path and not (self.train_path or self.test_path):
            return split_one(self._read(self.path, named), test=self.test, validation=self.validation)
        if self.train_path and self.test_path and not self.path:
            train, held_out = self._read(self.train_path, named), self._read(self.test_path, named)
            return split_two(train, held_out, validation=self.validation)
        raise UserError(
            f"Got path = {self.path}, train_path = {self.train_path}, test_path = {self.test_path}: give"
            " path, or both train_path and test_path."
        )

    def _read(self, path: str, named: dict[str, str]) -> list[Named]:
        """The tasks of a file; `named` collects the ids that were made of contents, and where."""
        return [(_task(_identified(self._renamed(row), named)), row.where) for row in read_rows(path)]

    def _renamed(self, row: Row) -> Row:
        for field, name in self.fields.items():
            if name not in row.values:
                raise UserError(f'{row.where}: there is no "{name}" to read the {field} from; mend `fields`.')
        given = row.values | {field: row.values[name] for field, name in self.fields.items()}
        return Row(
            self.defaults | {field: value for field, value in given.items() if value is not None}, row.where
        )


def _identified(row: Row, named: dict[str, str]) -> Row:
    """The row with an id. Raises UserError where an earlier row without one has the same content."""
    if "id" in row.values:
        return row
    content = [row.text("query"), row.text("reference"), row.values.get("options")]
    made = hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]
    first = named.setdefault(made, row.where)
    if first != row.where:
        raise UserError(f"{row.where} asks and expects the same as {first}: remove one, or give each an id.")
    return Row(row.values | {"id": made}, row.where)


def _task(row: Row) -> Task:
    grader: GraderKind = _known(row, "grader", get_args(GraderKind))
    if "answer_format" not in row.values:
        row = Row(row.values | {"answer_format": _FORMATS[grader]}, row.where)
    task = Task(
        id=row.text("id"),
        domain=row.text("domain"),
        query=row.text("query"),
        reference=row.text("reference"),
        grader=grader,
        answer_format=_known(row, "answer_format", get_args(AnswerFormat)),
        letters=row.text("letters"),
        options=row.texts("options") if "options" in row.values else (),
    )
    if grader == "choice" and task.reference not in tuple(task.letters):
        raise UserError(
            f"{row.where} (id {task.id!r}): the reference {task.reference[:40]!r} is none of the letters"
            f" {task.letters}; give one of them."
        )
    if task.options and len(task.options) != len(task.letters):
        raise UserError(
            f"{row.where} (id {task.id!r}) has {len(task.options)} options for the letters {task.letters}; "
            "give one for each."
        )
    return task


def _known(row: Row, field: str, known: tuple[str, ...]) -> Any:
    value = row.text(field)
    if value not in known:
        raise UserError(f"{row.where}: {field} {value!r} is unknown; give one of {', '.join(known)}.")
    return value
