"""Generated questions of three kinds, so that everything runs with nothing downloaded and nothing paid."""

from collections.abc import Callable

import numpy as np

from trinity import keyed
from trinity.errors import UserError
from trinity.tasks.task import Task, TaskSource, TaskSplits

_ARITHMETIC = (
    "Compute {a} * {b} {op} {c}.",
    "What is the value of {a} * {b} {op} {c}?",
    "Work out {a} * {b} {op} {c} and give the result.",
    "Evaluate the expression {a} * {b} {op} {c}.",
)
_CHOICE = (
    "Which of the options is the {which} number? A) {A} B) {B} C) {C} D) {D}",
    "Pick the {which} number among these options: A) {A} B) {B} C) {C} D) {D}",
    "Of the options below, which number is the {which}? A) {A} B) {B} C) {C} D) {D}",
)
_TRANSFORMATIONS: dict[str, Callable[[str], str]] = {
    "backwards": lambda phrase: phrase[::-1],
    "in capital letters": str.upper,
    "without its vowels": lambda phrase: "".join(c for c in phrase if c not in "aeiou"),
}
_TEXT = (
    "Write the phrase '{phrase}' {how}.",
    "Please spell '{phrase}' {how}.",
    "Take the phrase '{phrase}' and return it {how}.",
)
_SYLLABLES = tuple(consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou")


def _pick(rng: np.random.Generator, options: tuple[str, ...]) -> str:
    return options[int(rng.integers(len(options)))]


def _math(rng: np.random.Generator, number: int) -> Task:
    a, b, c = (int(x) for x in rng.integers(11, 99, size=3))
    op = _pick(rng, ("+", "-"))
    query = _pick(rng, _ARITHMETIC).format(a=a, b=b, c=c, op=op)
    value = a * b + c if op == "+" else a * b - c
    return Task(f"math-{number}", "math", query, str(value), "math", "boxed")


def _choice(rng: np.random.Generator, number: int) -> Task:
    values = [int(x) for x in rng.choice(np.arange(100, 1000), size=4, replace=False)]
    which = _pick(rng, ("largest", "smallest"))
    query = _pick(rng, _CHOICE).format(which=which, **dict(zip("ABCD", values, strict=True)))
    best = max(values) if which == "largest" else min(values)
    return Task(f"choice-{number}", "choice", query, "ABCD"[values.index(best)], "choice", "letter")


def _text(rng: np.random.Generator, number: int) -> Task:
    phrase = " ".join("".join(str(s) for s in rng.choice(_SYLLABLES, size=3)) for _ in range(2))
    how = _pick(rng, tuple(_TRANSFORMATIONS))
    query = _pick(rng, _TEXT).format(phrase=phrase, how=how)
    return Task(f"text-{number}", "text", query, _TRANSFORMATIONS[how](phrase), "exact", "line")


_MAKERS = {"math": _math, "choice": _choice, "text": _text}
DOMAINS = tuple(_MAKERS)


class SyntheticTasks(TaskSource):
    """Arithmetic (boxed), multiple choice (letter) and text transformation (exact line), in equal parts.

    The same seed gives the same tasks. No question stands in two splits.

    Args:
        seed: of the questions; not the seed of the training.
        train, validation, test: how many tasks each split holds.
    """

    def __init__(self, seed: int = 0, train: int = 600, validation: int = 60, test: int = 300) -> None:
        self.seed = seed
        self.counts = (train, validation, test)

    def load(self) -> TaskSplits:
        """Make the tasks. Raises UserError for a split without a task."""
        if min(self.counts) < 1:
            raise UserError(
                f"SyntheticTasks needs at least one task in each split, but got train, validation, test = "
                f"{self.counts}; raise the zero."
            )
        tasks = self._distinct(sum(self.counts))
        train, validation, _ = self.counts
        return TaskSplits(tasks[:train], tasks[train : train + validation], tasks[train + validation :])

    def _distinct(self, count: int) -> list[Task]:
        """`count` tasks with distinct questions; the kinds take turns."""
        seen: set[str] = set()
        tasks: list[Task] = []
        attempt = 0
        while len(tasks) < count:
            domain = DOMAINS[len(tasks) % len(DOMAINS)]
            task = _MAKERS[domain](keyed.generator("synthetic", self.seed, attempt), len(tasks))
            attempt += 1
            if task.query not in seen:
                seen.add(task.query)
                tasks.append(task)
        return tasks
