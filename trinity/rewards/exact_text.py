# ruff: noqa: RUF001 - quotes as models write them
"""Exact text: one line, letter for letter."""

import re

from trinity.rewards.extraction import MAX_ANSWER, last_box, tail, without_thinking
from trinity.rewards.grade import NO_ANSWER, Grade

_ANSWER_LINE = re.compile(r"(?im)^[ \t>*_#]{0,9}(?:final[ \t])?answer[*_ \t]{0,9}:[*_ \t]*(\S.*)$")
_PAIRS = (('"', '"'), ("'", "'"), ("`", "`"), ("“", "”"), ("‘", "’"), ("**", "**"))


def exact_answer(output: str) -> str | None:
    r"""The line that an output gives for its answer: last \boxed, else last "Answer: ...", else last line."""
    text = tail(without_thinking(output))
    box = last_box(text) if "\\" in text else None
    if box is not None:
        return bare(box)
    labelled = _ANSWER_LINE.findall(text)
    if labelled:
        return bare(labelled[-1])
    last = text.rstrip().rpartition("\n")[2]
    return bare(last) or None


def bare(line: str) -> str:
    """A line without the spaces, one final full stop, and the quotes or bold marks around it."""
    line = line.strip()
    before = None
    while line != before:
        before = line
        for opening, closing in _PAIRS:
            inner = line[len(opening) : -len(closing)]
            if inner and line == opening + inner + closing:
                line = inner.strip()
    if line.endswith("."):
        return bare(line[:-1]) if line[:-1] else line
    return line


def grade_exact(output: str, reference: str) -> Grade:
    """Equal letter for letter, capitals and inner spaces included, after `bare` on both sides."""
    answer = exact_answer(output)
    if not answer:
        return NO_ANSWER
    if len(answer) > MAX_ANSWER:
        return Grade(0, answer[:100], f"answer longer than {MAX_ANSWER} characters")
    return Grade.of(answer == bare(reference), answer)
