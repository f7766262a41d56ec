"""Questions to which real LLMs' answers were recorded, for pools that replay them."""

from pathlib import Path

from trinity.errors import UserError
from trinity.tasks.jsonl import read_rows
from trinity.tasks.splits import Named, Share, split_one
from trinity.tasks.task import GraderKind, Task, TaskSource, TaskSplits

_GRADERS: dict[str, GraderKind] = {"gsm": "json_number", "math-l5": "json_math", "crux": "json_literal"}


class RecordedTasks(TaskSource):
    """The questions of `<set>.jsonl.gz` files with rows {id, question, reference, outputs: {model: text}}.

    Split in halves by a hash of the question's id alone, so the test half is the same whichever sets and
    options a run takes. The domain is the set's name; the query is the question, verbatim.

    Args:
        folder: holds the files.
        sets: of gsm (a number), math-l5 (mathematics), crux (a Python literal).
        validation: how much of the half that is not reported on validates the mean theta: a float is a
            fraction, an int a count.
    """

    def __init__(
        self, folder: str, *, sets: tuple[str, ...] = ("gsm", "math-l5", "crux"), validation: Share = 0.2
    ) -> None:
        self.folder = folder
        self.sets = sets
        self.validation = validation

    def load(self) -> TaskSplits:
        if not self.sets:
            raise UserError(f"RecordedTasks got no sets: name some of {', '.join(_GRADERS)}.")
        named = [named_task for name in self.sets for named_task in self._read(name)]
        return split_one(named, test=0.5, validation=self.validation)

    def _read(self, name: str) -> list[Named]:
        if name not in _GRADERS:
            raise UserError(f"There is no recorded set {name!r}: choose among {', '.join(_GRADERS)}.")
        return [
            (
                Task(
                    id=row.text("id"),
                    domain=name,
                    query=row.text("question"),
                    reference=row.text("reference"),
                    grader=_GRADERS[name],
                    answer_format="json",
                ),
                row.where,
            )
            for row in read_rows(Path(self.folder) / f"{name}.jsonl.gz")
        ]
