r"""The type of a mathematical answer, and the comparison that belongs to it.

What counts as equal is decided by the type of the *reference*; an answer of another type is wrong.

| reference | an answer is equal if |
|---|---|
| number (also fraction, mixed number, 5 million, 3 tenths) | it has exactly the same value; a decimal of at least four significant digits may stand for a fraction without finite decimal expansion, if it is its rounding |
| expression | the difference simplifies to zero, roots and powers taken as real (x^{2/3} is \sqrt[3]{x^2}, \sqrt{x^2} is \|x\|) and degrees inside a function as \pi/180; a decimal as above for one without variables that is no finite decimal |
| equation | it is the same equation up to a constant factor; `x = 5` may be answered by `5` |
| tuple, interval | same brackets, equal parts in order; `(2,4)` may be either; an inequality in one variable is an interval, two joined by "and" are their intersection; \mathbb{R}, "all real numbers" is (-\infty, \infty) |
| union | equal intervals in any order; `x < 1 or x > 2` is one, `x \ne 3` too |
| set, list (commas, "and", "or", `\pm`) | equal elements in any order, none missing; a list may answer a set and the reverse; `x=1, y=2` by name, or without names in this order; with an ellipsis the same elements in the same order |
| matrix | same shape, equal cells |
| ratio | the same proportion (2:3 equals 4:6) |
| time | same hour and minute; 13:30 is 1:30 p.m.; a.m. and p.m. may be missing on one side |
| base-n number | same digits, and the same base or none |
| text | same words, letter case and spaces aside |

A unit or currency sign in the answer is dropped where the reference has none; where it has one, the answer
has the same or none. Percent is a unit: 15% equals 15, never 0.15; so is "of a cup". Where the reference is
no equation, an answer `name = value` stands for its value. A condition behind the value (`, where x > 0`,
`\text{ for } x > 0`, `, k \in \mathbb{Z}`) may be missing on either side; two different intervals differ.
"""  # noqa: E501

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from trinity.rewards.conditions import split_condition
from trinity.rewards.intervals import interval, is_whole_line, joined, of_several_variables, union
from trinity.rewards.latex import DOTS, closing_of, split_top, tidy, unwrap
from trinity.rewards.number import Number, exact
from trinity.rewards.units import split_multiple, split_unit
from trinity.rewards.value import Value

Equal = Callable[["Value", "Value"], bool | None]
"""Compares two leaves (number, expression, equation, relation): None means undecided here."""


_ASIDE = re.compile(r"_\{[^{}]*\}|_\w|(?<=[a-zA-Z])\([^()]*\)")  # subscripts, arguments of functions
_WORD_JOINTS = re.compile(r",? ?(?:\\text ?\{ ?(?:and|or) ?\}|(?<![a-zA-Z\\])(?:and|or)(?![a-zA-Z])) ?")
_MATRIX = re.compile(r"\\begin\{pmatrix\}(.*)\\end\{pmatrix\}", re.DOTALL)
_TIME = re.compile(r"(\d{1,2}) ?: ?(\d{2}) ?(?:\\text ?\{)? ?(?:([ap])\.? ?m\.?)? ?\}?", re.IGNORECASE)
_BASE = re.compile(
    r"(?:\\text\s*\{)?([0-9][0-9A-Fa-f]*|[A-F][0-9A-F]*)\}?\s*"
    r"_\s*(?:\{\s*(?:\\text\s*\{)?\s*(\d+|[a-z]+)\s*\}?\s*\}|(\d+))"
)
_BASE_NAMES = {
    "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "eleven": 11, "twelve": 12, "sixteen": 16,
}  # fmt: skip
_TEXT = re.compile(r"(?:\\text\s*\{[^{}]*\}\s*)+|\(?[A-Z]\)?")
FUNCTION_NAMES = "sin|cos|tan|cot|sec|csc|log|ln|exp|sqrt|pi|abs"
_WORDS = re.compile(rf"(?!(?:{FUNCTION_NAMES})\b)(?:[A-Za-z]{{3,}}|(?i:no|on|up|in)\b)(?:[ -][A-Za-z]+)*")
_TEXT_MARK = re.compile(r"\\text\s*\{([^{}]*)\}")
_RELATION = re.compile(r"<|>|\\(?:le|ge|ne|neq)(?![a-zA-Z])")
_ORDERED_PAIRS = ("()", "(]", "[)", "[]")


def parse(text: str) -> Value:
    """The type and parts of a tidied answer. Never fails: what is nothing else is an expression."""
    text = text.strip()
    number = exact(text)
    if number is not None:
        return Value("number", text, number)
    if multiple := _multiple(text):
        return multiple
    rest, unit = split_unit(text, lambda core: exact(core) is not None)
    if unit is not None and (number := exact(unwrap(rest))) is not None:
        return Value("number", rest, number, unit=unit)
    value, condition = split_condition(text)
    if condition is not None:
        return replace(parse(value), condition=parse(condition))
    return (
        _matrix(text)
        or _colons(text)
        or _base(text)
        or interval(text, parse)
        or _words(text)
        or _sequence(text)
        or _elliptic(text)
        or _comparison(text)
        or _bracketed(text)
        or _scalar(text)
    )


def _multiple(text: str) -> Value | None:
    """5 million, 3 dozen eggs: the number that it is."""
    rest, factor, unit = split_multiple(text)
    number = exact(unwrap(rest)) if factor else None
    if number is None:
        return None
    return Value("number", text, Number(number.value * factor), unit=unit)


def _elliptic(text: str) -> Value | None:
    """What holds an ellipsis and is no list: letter for letter, for no algebra can tell what is left out."""
    if DOTS not in text:
        return None
    return _bracketed(text) or Value("text", text.replace(" ", ""))


def _matrix(text: str) -> Value | None:
    found = _MATRIX.fullmatch(text)
    if not found:
        return None
    rows = [row.split("&") for row in re.split(r"\\\\", found[1]) if row.strip()]
    cells = tuple(parse(unwrap(cell)) for row in rows for cell in row)
    return Value("matrix", "x".join(str(len(row)) for row in rows), items=cells)


def _colons(text: str) -> Value | None:
    time = _TIME.fullmatch(text)
    if time and int(time[1]) <= 24 and int(time[2]) < 60:
        return Value("time", f"{int(time[1])}:{time[2]}", unit=time[3].lower() if time[3] else None)
    parts = text.split(":")
    if len(parts) > 1 and "\\" not in text:
        items = tuple(parse(part) for part in parts)
        if all(item.number is not None for item in items):
            return Value("ratio", text, items=items)
    return None


def _base(text: str) -> Value | None:
    found = _BASE.fullmatch(text)
    if not found:
        return None
    named = found[2] or found[3]
    base = int(named) if named.isdigit() else _BASE_NAMES.get(named, 0)
    if not 2 <= base <= 36 or any(int(digit, 36) >= base for digit in found[1]):
        return None
    return Value("base", f"{found[1].upper().lstrip('0') or '0'}_{base}")


def _words(text: str) -> Value | None:
    if not (_TEXT.fullmatch(text) or _WORDS.fullmatch(text)):
        return None
    words = " ".join(_TEXT_MARK.sub(r"\1", text).split()).strip(" ().,").casefold()
    number = exact(words)
    if number is not None:
        return Value("number", words, number)
    return Value("text", words)


def _sequence(text: str) -> Value | None:
    r"""A list: commas, semicolons, "and", "or" or \pm outside of brackets; or a union of intervals."""
    if sets := union(text, parse) or joined(text, parse):
        return sets
    pieces = _pieces(_WORD_JOINTS.sub(";", text))
    if len(pieces) > 1 and of_several_variables(pieces, parse):
        return Value("list", text, items=tuple(Value("relation", piece) for piece in pieces))
    if len(pieces) > 1:
        return Value("list", text, items=_items(pieces))
    if "\\pm" in text and "=" not in text:
        plus, minus = (re.sub(r"^\+\s*", "", text.replace("\\pm", sign).strip()) for sign in "+-")
        signed = [plus.replace("\\mp", "-"), minus.replace("\\mp", "+")]
        brackets = _bracketed(text)
        if brackets is None:
            return Value("list", text, items=tuple(parse(each) for each in signed))
    return None


def _pieces(text: str, *, in_brackets: bool = False) -> list[str]:
    """Split a list. Where its separators are spaced, a comma without a space may separate thousands."""
    spaced = [piece.replace("\x00", ", ") for piece in split_top(text.replace(", ", "\x00"), "\x00;")]
    pieces: list[str] = []
    for piece in spaced:
        whole = exact(piece) is not None and not (in_brackets and len(spaced) == 1)
        pieces.extend([piece] if whole else split_top(piece, ","))
    return [piece for piece in pieces if piece]


def _items(pieces: Iterable[str]) -> tuple[Value, ...]:
    items: list[Value] = []
    for piece in pieces:
        item = parse(unwrap(piece))
        items.extend(item.items if item.kind == "list" else [item])
    return tuple(items)


def _comparison(text: str) -> Value | None:
    if len(split_top(text, "=")) > 1:
        return Value("equation", text)
    return Value("relation", text) if _RELATION.search(text) else None


def _bracketed(text: str) -> Value | None:
    start = 1 if text.startswith("\\{") else 0
    if text[start : start + 1] not in ("(", "[", "{") or closing_of(text, start) != len(text) - 1:
        return None
    if start:
        members = _items(_pieces(_WORD_JOINTS.sub(";", text[2:-2].strip()), in_brackets=True))
        return Value("set", "", items=_distinct(members))
    brackets, pieces = text[0] + text[-1], _pieces(text[1:-1], in_brackets=True)
    if len(pieces) == 1 and brackets == "()":
        return parse(unwrap(text[1:-1])) if "," not in text else None
    if brackets == "[]" and len(pieces) == 1:
        return Value("list", text, items=_items(pieces))
    if brackets not in _ORDERED_PAIRS:
        return None
    return Value("tuple", brackets, items=tuple(parse(unwrap(piece)) for piece in pieces))


def _distinct(members: Iterable[Value]) -> tuple[Value, ...]:
    """Without what is written twice; what has parts is left as it is."""
    seen = {(item.number or item.text if not item.items else id(item)): item for item in members}
    return tuple(seen.values())


def _scalar(text: str) -> Value:
    rest, unit = split_unit(text, lambda core: exact(core) is not None)
    if unit is not None and rest:
        return Value("expression", unwrap(rest), unit=unit)
    if text.startswith("+"):
        return parse(text[1:])
    if text.startswith("-"):
        inner = parse(text[1:]) if text[1:2] == "(" and closing_of(text, 1) == len(text) - 1 else None
        if inner and inner.number:
            return Value("number", text, replace(inner.number, value=-inner.number.value))
    return Value("expression", text)


def value_of(text: str) -> Value:
    """Tidy and parse."""
    return parse(tidy(text))


def without_name(answer: Value) -> Value:
    r"""`x = 5`, `m + n = 3 + 4 = 7` and `f(x) \approx 5` -> the value; other equations stay what they are."""
    named = _name_and_value(answer)
    return named[1] if named else answer


def _name_and_value(equation: Value) -> tuple[str, Value] | None:
    if equation.kind != "equation":
        return None
    first, *_, last = split_top(equation.text, "=")
    return (first, parse(unwrap(last.split("\\approx")[0]))) if _is_name(first) else None


def _is_name(side: str) -> bool:
    """Whether a left side names a value (x, f(2), m + n) or is plain arithmetic; not 2x, x^2, -x, x + 3."""
    side = _ASIDE.sub("", side)
    letters, digits = (re.search(pattern, side) for pattern in (r"(?<![\\a-zA-Z])[a-zA-Z]", r"\d"))
    return not (letters and (digits or "^" in side or side.startswith("-")))


def compare(reference: Value, answer: Value, equal: Equal) -> bool | None:
    """Whether the answer counts as equal, by the table above; None where `equal` left it undecided."""
    if reference.condition and answer.condition and _contradicts(reference.condition, answer.condition):
        return False
    if reference.kind == "equation":
        named = without_name(reference)
        if named.kind != "equation" and answer.kind != "equation":
            return compare(named, answer, equal)
        return equal(reference, answer) if answer.kind == "equation" else False
    answer = without_name(answer)
    if reference.kind == "time" and answer.kind == "time":
        return _same_time(reference, answer)
    if reference.unit and answer.unit and reference.unit != answer.unit:
        return False
    if reference.kind in ("number", "expression"):
        return equal(reference, answer) if answer.kind in ("number", "expression") else False
    if reference.kind in ("set", "list"):
        return _compare_lists(reference, answer, equal)
    if reference.kind == "base" and answer.kind == "number":
        return reference.text.split("_")[0] == answer.text
    if reference.kind == "ratio" and answer.kind == "time" and not answer.unit:
        answer = replace(answer, kind="ratio", items=tuple(map(parse, answer.text.split(":"))))
    if reference.kind == "union" and answer.kind == "list":  # x < 1 or x > 2
        answer = replace(answer, kind="union")
    if answer.kind != reference.kind:
        return _is_the_letter(reference, answer) or _is_the_letter(answer, reference)
    if reference.kind == "relation":
        return equal(reference, answer)
    if reference.kind == "ratio":
        return _proportional(reference.items, answer.items)
    if reference.kind == "union":
        return _same_elements(reference.items, answer.items, equal)
    if reference.text != answer.text or len(reference.items) != len(answer.items):
        return False
    return _in_order(reference.items, answer.items, equal)


def _is_the_letter(line: Value, letter: Value) -> bool:
    r"""Whether the one is the whole real line, and the other R, for \mathbb{R}."""
    return letter.kind == "text" and letter.text == "r" and is_whole_line(line)


def _contradicts(ours: Value, theirs: Value) -> bool:
    """Whether two conditions are intervals, and different ones; others are not compared."""
    both = ours.kind == theirs.kind == "tuple"
    return both and compare(ours, theirs, lambda left, right: left.text == right.text) is not True


def _compare_lists(reference: Value, answer: Value, equal: Equal) -> bool | None:
    in_order = answer.kind == "tuple" and answer.text == "()"
    written_as_list = answer.kind == "tuple" and answer.text == "[]" and reference.kind == "list"
    if len(reference.items) != len(answer.items):
        return False
    if DOTS in reference.text or any(item.text == DOTS for item in reference.items):
        return reference.kind == answer.kind and _in_order(reference.items, answer.items, equal)
    names = dict(filter(None, map(_name_and_value, reference.items)))
    if len(names) == len(reference.items) > 1:
        theirs = dict(filter(None, map(_name_and_value, answer.items)))
        if theirs:
            ordered = [theirs.get(name, answer) for name in names]
            return _in_order(list(names.values()), ordered, equal) if len(theirs) == len(names) else False
        if in_order or answer.kind == "list":
            return _in_order(list(names.values()), answer.items, equal)
    if answer.kind in ("set", "list") or written_as_list:
        return _same_elements(reference.items, answer.items, equal)
    return False


def _in_order(reference: Sequence[Value], answer: Sequence[Value], equal: Equal) -> bool | None:
    return _all(compare(left, right, equal) for left, right in zip(reference, answer, strict=True))


def _same_time(reference: Value, answer: Value) -> bool:
    if reference.text == answer.text and None in (reference.unit, answer.unit):
        return True
    return _minutes(reference) == _minutes(answer)


def _minutes(time: Value) -> int:
    hours, minutes = map(int, time.text.split(":"))
    if time.unit:
        hours = hours % 12 + (12 if time.unit == "p" else 0)
    return 60 * hours + minutes


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    results = list(verdicts)
    if False in results:
        return False
    return None if None in results else True


def _same_elements(reference: Sequence[Value], answer: Sequence[Value], equal: Equal) -> bool | None:
    """Each element has its own partner. Taking the first that fits is enough, as equality is transitive."""
    if len(reference) != len(answer):
        return False
    left = list(answer)
    undecided = False
    for wanted in reference:
        verdicts = [compare(wanted, candidate, equal) for candidate in left]
        if True in verdicts:
            left.pop(verdicts.index(True))
        elif None in verdicts:
            undecided = True
        else:
            return False
    return None if undecided else True


def _proportional(reference: Sequence[Value], answer: Sequence[Value]) -> bool:
    ours, theirs = ([item.number.value for item in side if item.number] for side in (reference, answer))
    if len(ours) != len(theirs) or not (any(ours) and any(theirs)):
        return False
    pairs = list(zip(ours, theirs, strict=True))
    return all(a * d == b * c for a, b in pairs for c, d in pairs)
