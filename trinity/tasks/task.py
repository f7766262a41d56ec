"""What one task is, and what a source of tasks gives."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

GraderKind = Literal["math", "choice", "text", "exact", "json_number", "json_math", "json_literal", "code"]
AnswerFormat = Literal["boxed", "letter", "line", "json", "code"]


@dataclass(frozen=True, slots=True)
class Task:
    """One question with a checkable answer.

    `grader` names the rule that compares (see `trinity.rewards`), `answer_format` tells the LLM how to write
    the answer (see `trinity.episode.prompts`). `letters` are the options on offer of a choice task,
    `options` their texts, in the same order.
    """

    id: str
    domain: str
    query: str
    reference: str
    grader: GraderKind
    answer_format: AnswerFormat
    letters: str = "ABCD"
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskSplits:
    """Disjoint lists of tasks: to train on, to validate the mean theta on, and to report on."""

    train: list[Task]
    validation: list[Task]
    test: list[Task]


class TaskSource(ABC):
    """Where tasks come from. Subclasses take their options in the constructor and do nothing else there."""

    @abstractmethod
    def load(self) -> TaskSplits:
        """Read or make the tasks. Raises UserError where a file is missing, empty, or a row is unusable."""
