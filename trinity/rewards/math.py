"""Mathematical answers: what can be decided here and now, and what only algebra can tell.

Most answers are numbers and are compared exactly in this process, within microseconds. The rest goes to
`trinity.rewards.algebra`, in another process, which may be killed.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from trinity.rewards.extraction import MAX_ANSWER, last_number, math_answer
from trinity.rewards.grade import NO_ANSWER, Grade
from trinity.rewards.latex import nesting
from trinity.rewards.number import equal_numbers
from trinity.rewards.structure import FUNCTION_NAMES, compare, value_of
from trinity.rewards.value import Value

MathFallback = Literal["none", "last_number"]

_MAX_NESTING = 30
_WORD = re.compile(rf"(?<![\\a-zA-Z])(?!(?:{FUNCTION_NAMES})(?![a-zA-Z]))[a-zA-Z]{{3,}}")
_INTEGER = re.compile(r"-?\d{1,18}")
_parsed = lru_cache(maxsize=4096)(value_of)  # candidates share their tasks


@dataclass(frozen=True, slots=True)
class AlgebraQuestion:
    """Is `answer` equal to `reference`? Both as LaTeX, both short."""

    reference: str
    answer: str


def grade_math(output: str, reference: str, fallback: MathFallback = "none") -> Grade | AlgebraQuestion:
    """Take the answer out of a whole output and compare it (see `trinity.rewards.structure`).

    Args:
        fallback: what is taken from an output that commits to no answer.
    """
    answer = math_answer(output)
    if answer is None and fallback == "last_number":
        answer = last_number(output)
    return NO_ANSWER if answer is None else compare_math(answer, reference)


def compare_math(answer: str, reference: str) -> Grade | AlgebraQuestion:
    """Compare an extracted answer, or hand back the question that algebra must decide."""
    if len(answer) > MAX_ANSWER:
        return Grade(0, answer[:100], f"answer longer than {MAX_ANSWER} characters")
    if _INTEGER.fullmatch(answer) and _INTEGER.fullmatch(reference):
        return Grade.of(int(answer) == int(reference), answer)
    if nesting(answer) > _MAX_NESTING:
        return Grade(0, answer[:100], "brackets nested too deeply")
    try:
        verdict = compare(_parsed(reference), value_of(answer), equal_here)
    except RecursionError:
        return Grade(0, answer[:100], "nested too deeply")
    return AlgebraQuestion(reference, answer) if verdict is None else Grade.of(verdict, answer)


def equal_here(reference: Value, answer: Value) -> bool | None:
    """Leaves whose equality needs no algebra; None for the others.

    Algebra would take words for products of letters: "not 0" = n o t 0 = 0.
    """
    if answer.number is None and _WORD.search(answer.text) and not _WORD.search(reference.text):
        return False
    if reference.number is not None and answer.number is not None:
        return equal_numbers(reference.number, answer.number)
    return True if reference.text == answer.text else None


def needs_algebra(reference: str) -> bool:
    """Whether only algebra can tell if a reference can be read. Raises ValueError if it is empty or huge."""
    if not reference.strip() or len(reference) > MAX_ANSWER or nesting(reference) > _MAX_NESTING:
        raise ValueError("empty, too long or nested too deeply")
    return _has_expression(value_of(reference))


def _has_expression(value: Value) -> bool:
    return value.kind in ("expression", "equation", "relation") or any(map(_has_expression, value.items))
