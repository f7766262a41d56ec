r"""The unit at the end of an answer: \text{ inches}, degrees, currency, percent.

The percent sign is a unit like any other: 15% equals 15, and never 0.15.
"""

import re
from collections.abc import Callable

from trinity.rewards.latex import DEGREE, DOLLAR

_CURRENCY = f"{DOLLAR}€£¥"
_TEXT_UNIT = re.compile(r"\s*\\text\s*\{([^{}]*)\}\s*(?:\^\s*\{?\s*\d\s*\}?)?$")
_SIGN_UNIT = re.compile(rf"\s*([%{DEGREE}{_CURRENCY}])$")
_WORDS = re.compile(r"\s*([A-Za-z]{2,}[A-Za-z ./-]*?)\s*(?:\^\s*\{?\s*\d\s*\}?)?$")
_SIGNS = f"%{DEGREE}{_CURRENCY}"
_LONGEST = 60
_LETTERS = re.compile(r"[A-Za-z]")
_SAME = {
    DEGREE: "degree", "deg": "degree", DOLLAR: "dollar", "usd": "dollar", "€": "euro", "£": "pound",
    "%": "percent", "inche": "inch", "in": "inch", "feet": "foot", "ft": "foot", "cm": "centimeter",
    "m": "meter", "km": "kilometer", "mm": "millimeter", "kg": "kilogram", "g": "gram", "hr": "hour",
    "h": "hour", "min": "minute", "sec": "second",
}  # fmt: skip


def split_unit(text: str, is_number: Callable[[str], bool]) -> tuple[str, str | None]:
    """(the rest, the unit in one spelling); (text, None) where there is none.

    Plain words count as a unit only behind what `is_number` says is a number: `5 apples`, but not `2 pi x`.
    """
    if text[:1] in _CURRENCY and text[:1]:
        return text[1:].strip(), _one_spelling(text[0])
    if text[:1] == "-" and text[1:2] in _CURRENCY and text[1:2]:
        return "-" + text[2:].strip(), _one_spelling(text[1])
    found = _SIGN_UNIT.search(text) or _TEXT_UNIT.search(text)
    rest = text[: found.start()].strip() if found else ""
    if found and rest and (_LETTERS.search(found[1]) or found[1] in _SIGNS):
        return rest, _one_spelling(found[1])
    words = _WORDS.search(text, max(0, len(text) - _LONGEST))
    if words and is_number(text[: words.start()].strip()):
        return text[: words.start()].strip(), _one_spelling(words[1])
    return text, None


def _one_spelling(unit: str) -> str:
    unit = unit.strip().lower().strip(".").strip()
    singular = unit[:-1] if len(unit) > 2 and unit.endswith("s") else unit
    return _SAME.get(singular, singular)
