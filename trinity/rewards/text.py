"""Free-form references (as in RLPR, arXiv 2506.18254): the same words, or the same mathematical value."""

import re
import unicodedata

from trinity.rewards.exact_text import bare, exact_answer
from trinity.rewards.extraction import MAX_ANSWER, last_box, math_answer, tail, without_thinking
from trinity.rewards.grade import NO_ANSWER, Grade
from trinity.rewards.math import AlgebraQuestion, compare_math

_TEXT_COMMAND = re.compile(r"\\(?:text|mathrm|textbf|mbox)\s*\{([^{}]*)\}")
_PUNCTUATION = re.compile(r"[^\w\s%°$€£+=<>/^*\\-]|(?<!\w)-(?=\s)|(?<=\w)[.,](?=\s|$)")
_LABEL = re.compile(r"(?i)[\s>*_#]*(?:final )?answer[*_ ]*[:\uff1a]")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_WORD = re.compile(r"(?<!\\)(?<![a-zA-Z])(?!(?:sin|cos|tan|log|ln|exp|pi|sqrt)\b)[a-zA-Z]{3,}")
_VALUE = re.compile(r"\d|\\[a-zA-Z]+|[=^]|\b[a-z]\b")


def free_answer(output: str) -> str | None:
    """What an output gives for its answer: last box, "Answer: ...", "the answer is ...", or last line."""
    text = tail(without_thinking(output))
    if last_box(text) is None and (found := _labelled(text)) is not None:
        return found
    return math_answer(text) or exact_answer(text)


def _labelled(text: str) -> str | None:
    lines = [line for line in text.splitlines() if _LABEL.match(line)]
    return exact_answer(lines[-1]) if lines else None


def normal_words(text: str) -> str:
    r"""Words in small letters, one space apart, without articles, punctuation and \text{}."""
    text = unicodedata.normalize("NFKC", _TEXT_COMMAND.sub(r" \1 ", bare(text))).casefold()
    text = _PUNCTUATION.sub(" ", text.replace("\u2019", "'").replace("'", "").replace("$", " "))
    return " ".join(_ARTICLES.sub(" ", text).split())


def is_mathematical(reference: str) -> bool:
    """Whether a reference is a value or formula (perhaps with a unit), so that algebra may compare it.

    Words are never given to algebra, which would take them for products of letters: dog = god.
    """
    without_units = _TEXT_COMMAND.sub(" ", reference)
    number, _, unit = without_units.strip().partition(" ")
    if re.fullmatch(r"[+-]?[\d.,]+%?", number) and re.fullmatch(r"[A-Za-z°/^0-9 .-]*", unit):
        return True
    if _WORD.search(without_units) or (
        without_units.strip(" .").isalpha() and len(without_units.strip()) > 1
    ):
        return False
    return _VALUE.search(without_units) is not None


def grade_free(output: str, reference: str) -> Grade | AlgebraQuestion:
    """Equal words after `normal_words`, or an equal value by the table of `trinity.rewards.structure`."""
    answer = free_answer(output)
    if not answer:
        return NO_ANSWER
    if len(answer) > MAX_ANSWER:
        return Grade(0, answer[:100], f"answer longer than {MAX_ANSWER} characters")
    wanted = normal_words(reference)
    if wanted and normal_words(answer) == wanted:
        return Grade(1, answer, "the same words")
    return compare_math(answer, reference) if is_mathematical(reference) else Grade.of(False, answer)
