"""A Verifier's text -> verdict."""

import re
from dataclasses import dataclass
from enum import StrEnum

_VERDICT_LINE = re.compile(r"verdict", re.IGNORECASE)
_CLEAR_ACCEPT = re.compile(r"verdict\s*:\s*accept\s*\.?", re.IGNORECASE)
_MARKDOWN = re.compile(r"[*_`#>]+")


class Verdict(StrEnum):
    """What a Verifier decides."""

    ACCEPT = "ACCEPT"
    REVISE = "REVISE"


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, and the diagnosis that stands above its line."""

    verdict: Verdict
    diagnosis: str


def parse_judgement(text: str) -> Judgement:
    """Read the last line that holds the word verdict; it is ACCEPT only if the whole line says so.

    Markdown marks and a final full stop aside, the line must read `VERDICT: ACCEPT`. Anything else, also no
    such line at all, is REVISE: a doubtful judgement costs a turn, a wrong ACCEPT costs the answer. So a last
    line `VERDICT REVISE`, or one with a full-width colon, withdraws an ACCEPT further up.
    """
    lines = text.strip().splitlines()
    for index in range(len(lines) - 1, -1, -1):
        line = _MARKDOWN.sub("", lines[index]).strip()
        if _VERDICT_LINE.search(line):
            clear = _CLEAR_ACCEPT.fullmatch(line) is not None
            diagnosis = "\n".join(lines[:index]).strip()
            return Judgement(Verdict.ACCEPT if clear else Verdict.REVISE, diagnosis)
    return Judgement(Verdict.REVISE, text.strip())
