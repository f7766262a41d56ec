r"""The unit at the end of an answer: \text{ inches}, degrees, currency, percent.

The percent sign is a unit like any other: 15% equals 15, and never 0.15.
"""

import re
from collections.abc import Callable
from fractions import Fraction

from trinity.rewards.latex import DEGREE, DOLLAR

_CURRENCY = f"{DOLLAR}€£¥"
_POWER = r"\s*(?:\^\s*\{?\s*(?P<power>\d)\s*\}?)?$"
_TEXT_UNIT = re.compile(rf"\s*\\text\s*\{{([^{{}}]*)\}}{_POWER}")
_SIGN_UNIT = re.compile(rf"\s*([%{DEGREE}{_CURRENCY}])$")
_WORDS = re.compile(rf"(\s*)(([A-Za-z]{{2,}})[A-Za-z ./-]*?){_POWER}")
_SQUARE = re.compile(r"(square|sq\.?|cubic|cu\.?)\s+(.+)")
_KNOWN = frozenset((
    "in", "ft", "yd", "mi", "mm", "cm", "dm", "km", "mg", "kg", "lb", "lbs", "oz", "ml", "hr", "hrs",
    "min", "mins", "sec", "secs", "mph", "kph", "usd", "eur", "deg", "rad", "sq", "cu", "inch", "inches",
    "foot", "feet", "yard", "yards", "mile", "miles", "meter", "meters", "metre", "metres", "centimeter",
    "centimeters", "kilometer", "kilometers", "gram", "grams", "kilogram", "kilograms", "liter",
    "liters", "litre", "litres", "dollar", "dollars", "cent", "cents", "euro", "euros", "pound",
    "pounds", "unit", "units", "day", "days", "week", "weeks", "month", "months", "year", "years",
    "hour", "hours", "minute", "minutes", "second", "seconds",
))  # fmt: skip
_SHORTEST = 3
_RATE = re.compile(
    r"\s+((?:[ckm]?m|mi|ft|[mk]?g|mol|[kM]?J|N|W|V|m?L)/(?:s|h|hr|min|[ck]?m|k?g|mol|K|L|C|A))" + _POWER
)
_SIGNS = f"%{DEGREE}{_CURRENCY}"
_LONGEST = 60
_LETTERS = re.compile(r"[A-Za-z]")
_SAME = {
    DEGREE: "degree", "deg": "degree", DOLLAR: "dollar", "usd": "dollar", "€": "euro", "£": "pound",
    "%": "percent", "inche": "inch", "in": "inch", "feet": "foot", "ft": "foot", "cm": "centimeter",
    "m": "meter", "km": "kilometer", "mm": "millimeter", "kg": "kilogram", "g": "gram", "hr": "hour",
    "h": "hour", "min": "minute", "sec": "second",
}  # fmt: skip
_TENS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_MULTIPLES = {
    "dozen": Fraction(12),
    **{f"{word}s?": Fraction(10**power) for word, power in _TENS.items()},
    **{f"{word}ths": Fraction(1, 10**power) for word, power in {"ten": 1, **_TENS}.items()},
    **{f"{word}s": Fraction(1, part) for part, word in enumerate(("third", "fourth", "fifth"), 3)},
}
_MULTIPLE = re.compile(
    rf"(?P<rest>.*\S)\s*(?:\\text ?\{{\s*)?\b(?P<word>{'|'.join(_MULTIPLES)})\b(?P<more>[A-Za-z .]*)\}}?",
    re.DOTALL,
)
_OF = re.compile(  # of a cup, of the total; not of x, of 8
    r"\s*(?:\\text ?\{)?\s*\bof (?:(?:an?|the|one|each|every|all|his|her|its|their|my|your) )*[A-Za-z]{3,}"
    r"(?: [A-Za-z]{2,})*\.?\s*\}?$"
)
_NO_UNIT = re.compile(
    r"\b(?:times|more|less|fewer|over|plus|minus|divided|multiplied|choose|mod|squared|cubed)\b(?!$)"
)
ANGLE_OF = re.compile(r"\\?(?:sin|cos|tan|cot|sec|csc)(?![a-z])")


def split_multiple(text: str) -> tuple[str, Fraction, str | None]:
    """(the number in front of dozen, million, tenths, ..., what that is, the unit behind it); 0 for none."""
    found = _MULTIPLE.fullmatch(text)
    if not found:
        return text, Fraction(0), None
    unit = found["more"].strip(" .")
    factor = next(value for word, value in _MULTIPLES.items() if re.fullmatch(word, found["word"]))
    return found["rest"].removesuffix("\\text{").strip(), factor, _one_spelling(unit) if unit else None


def split_unit(text: str, is_number: Callable[[str], bool]) -> tuple[str, str | None]:
    """(the rest, the unit in one spelling); (text, None) where there is none.

    Plain words count as a unit only behind what `is_number` says is a number, and if they are a known unit
    or stand behind a space and can't be a product of two variables: `3cm`, `5 apples`, not `2xy`, `2 pi x`.
    """
    if (whole := _OF.search(text)) and whole.start():
        rest, unit = split_unit(text[: whole.start()].strip(), is_number)
        if unit is not None or is_number(rest):
            return rest, unit or _one_spelling(whole[0].strip())
    if text[:1] in _CURRENCY and text[:1]:
        return text[1:].strip(), _one_spelling(text[0])
    if text[:1] == "-" and text[1:2] in _CURRENCY and text[1:2]:
        return "-" + text[2:].strip(), _one_spelling(text[1])
    found = _SIGN_UNIT.search(text) or _TEXT_UNIT.search(text)
    rest = text[: found.start()].strip() if found else ""
    if found and (_NO_UNIT.search(found[1]) or (found[1] == DEGREE and ANGLE_OF.search(rest))):
        return text, None
    if found and rest and (_LETTERS.search(found[1]) or found[1] in _SIGNS):
        return rest, _one_spelling(found[1], found.groupdict().get("power"))
    if (rate := _RATE.search(text)) and is_number(text[: rate.start()].strip()):
        return text[: rate.start()].strip(), _one_spelling(rate[1], rate["power"])
    words = _WORDS.search(text, max(0, len(text) - _LONGEST))
    if words and is_number(text[: words.start()].strip()):
        known = words[3].lower() in _KNOWN
        if not _NO_UNIT.search(words[2]) and (known or (words[1] and len(words[3]) >= _SHORTEST)):
            return text[: words.start()].strip(), _one_spelling(words[2], words["power"])
    return text, None


def _one_spelling(unit: str, power: str | None = None) -> str:
    unit = unit.strip().lower().strip(".").strip()
    if square := _SQUARE.fullmatch(unit):
        return _one_spelling(square[2], "2" if square[1].startswith("s") else "3")
    if power not in (None, "1"):
        return f"{_one_spelling(unit)}^{power}"
    singular = unit[:-1] if len(unit) > 2 and unit.endswith("s") else unit
    return _SAME.get(singular, singular)
