"""What a grader is asked, and what it answers."""

from dataclasses import dataclass
from typing import Protocol


class Gradable(Protocol):
    """A question with a checkable answer, as far as a grader sees it.

    `letters` are the options on offer and `options` their texts, where they are known; only "choice" reads
    them. Only a judge reads `query`, the question's text.
    """

    @property
    def grader(self) -> str: ...
    @property
    def reference(self) -> str: ...
    @property
    def letters(self) -> str: ...
    @property
    def options(self) -> tuple[str, ...]: ...
    @property
    def query(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Grade:
    """A verdict on one answer.

    `reward` is 1 or 0. `extracted` is what was taken for the answer, None where nothing was. `reason` says
    in a few words why.
    """

    reward: int
    extracted: str | None
    reason: str

    @classmethod
    def of(cls, right: bool, extracted: str) -> "Grade":
        """The ordinary grade: an answer was found and compared."""
        return cls(int(right), extracted, "equal" if right else "not equal")


class GraderClosedError(Exception):
    """The graders were closed while an answer was being graded: it has no grade, neither right nor wrong."""

    def __init__(self) -> None:
        super().__init__("the graders were closed while an answer was being graded")


NO_ANSWER = Grade(0, None, "no answer found")
