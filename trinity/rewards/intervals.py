r"""Sets of real numbers: intervals, unions of them, the whole line, and the inequalities that describe them.

`-2 < x \le 7` is the interval (-2, 7]; `x < 1 \text{ or } x > 2` and `x \ne 3` are unions; `x > 1` and
`x < 3` at once are (1, 3); \mathbb{R} and "all real numbers" are the whole line.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from math import inf

from trinity.rewards.latex import REALS, split_top
from trinity.rewards.value import Value

Parse = Callable[[str], Value]

NAME = r"(?:\\?[a-zA-Z]+(?:_\{?\w+\}?)?'?)"
_SIGN = r"(<|>|\\le(?![a-z])|\\ge(?![a-z]))"
_BETWEEN = re.compile(rf"([^<>]+?)\s*{_SIGN}\s*({NAME})\s*{_SIGN}\s*([^<>]+)")
_ABOVE = re.compile(rf"({NAME})\s*{_SIGN}\s*([^<>=]+)")
_BELOW = re.compile(rf"([^<>=]+?)\s*{_SIGN}\s*({NAME})")
_POINT = re.compile(rf"({NAME})\s*=\s*([^<>=]+)")
_EXCEPT = re.compile(
    rf"{NAME}\s*\\(?:neq?)(?![a-z])\s*(?P<point>[^<>=,]+)"
    rf"|{REALS}\s*(?:\\setminus|\\backslash|-)\s*\\\{{(?P<member>[^<>=,{{}}]+)\\\}}"
)
_MEMBER = re.compile(rf"{NAME}\s*\\in(?![a-zA-Z])\s*")
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_FLIPPED = {"<": ">", ">": "<", "\\le": "\\ge", "\\ge": "\\le"}
_OR = r"(?:\\text ?\{ ?or ?\}|(?<![a-zA-Z\\])or(?![a-zA-Z])|\\(?:lor|vee)(?![a-zA-Z]))"
_AND = r"(?:\\text ?\{ ?and ?\}|(?<![a-zA-Z\\])and(?![a-zA-Z])|\\(?:land|wedge)(?![a-zA-Z]))"
_EITHER_JOINT, _OR_JOINT, _AND_JOINT = (
    re.compile(rf",? ?{word} ?") for word in (f"(?:{_OR}|{_AND})", _OR, _AND)
)
_WHOLE_LINE = re.compile(
    rf"{REALS}|(?:\\text ?\{{ ?)?(?:{NAME} (?:is|can be) )?"
    r"(?:the set of |any |every |the (?:whole|entire) )?(?:all )?(?:the )?"
    r"real(?:s| line| numbers?|(?: values?| numbers?)?(?: of)? [a-z])(?: ?\})?",
    re.IGNORECASE,
)
_NOT_WHOLE = re.compile(r"(?:\\text ?\{ ?)?(?:the )?real(?: number)?(?: ?\})?", re.IGNORECASE)


def without_member(text: str) -> str | None:
    r"""What stands behind `x \in`; None where that is not how the text begins."""
    member = _MEMBER.match(text)
    return text[member.end() :].strip() if member else None


def union(text: str, parse: Parse) -> Value | None:
    r"""Sets joined by \cup."""
    pieces = [piece for piece in split_top(text.replace("\\cup", "\x00"), "\x00") if piece]
    if len(pieces) < 2:
        return None
    return Value("union", text, items=tuple(parse(without_member(piece) or piece) for piece in pieces))


def joined(text: str, parse: Parse) -> Value | None:
    """Inequalities in one variable joined by "or" (a union) or by "and" (an interval); None for all else."""
    pieces = [piece for piece in _EITHER_JOINT.split(text) if piece]
    if len(pieces) < 2 or any(len(split_top(piece, ",;")) > 1 for piece in pieces):
        return None
    solutions = [_solution(piece, parse) for piece in pieces]
    names = {name for name, _ in filter(None, solutions)}
    values = [value for _, value in filter(None, solutions)]
    if len(values) < len(pieces) or all(value.kind == "set" for value in values):
        return None
    if len(names) > 1:
        return Value("list", text, items=tuple(Value("relation", piece) for piece in pieces))
    if not _AND_JOINT.search(text):
        return Value("union", text, items=tuple(values))
    return None if _OR_JOINT.search(text) else _intersection(values)


def _solution(text: str, parse: Parse) -> tuple[str, Value] | None:
    """The variable of an inequality and its interval, or of `x = 1` and the set {1}."""
    if (point := _POINT.fullmatch(text)) and _is_constant(point[2]):
        return point[1], Value("set", "", items=(parse(point[2]),))
    return _inequality(text, parse)


def _intersection(values: Sequence[Value]) -> Value | None:
    """Of intervals with plain numbers at their ends; the empty set where they do not meet."""
    if any(value.kind != "tuple" or None in map(_end, value.items) for value in values):
        return None
    low = max(values, key=lambda value: (_end(value.items[0]), value.text[0] == "("))
    high = min(values, key=lambda value: (_end(value.items[1]), value.text[1] == "]"))
    brackets, ends = low.text[0] + high.text[1], (low.items[0], high.items[1])
    first, last = _end(ends[0]), _end(ends[1])
    assert first is not None and last is not None
    if first < last:
        return Value("tuple", brackets, items=ends)
    return Value("set", "", items=(ends[0],) if first == last and brackets == "[]" else ())


def _end(value: Value) -> float | None:
    """An end of an interval, for its place in the order only."""
    if value.number is not None:
        return float(value.number.value)
    return {"\\infty": inf, "-\\infty": -inf}.get(value.text.replace(" ", ""))


def interval(text: str, parse: Parse) -> Value | None:
    r"""An inequality in one variable, `x \in` a set, \mathbb{R}, or all numbers but one."""
    if (rest := without_member(text)) is not None:
        return parse(rest) if without_member(rest) is None else None
    if _WHOLE_LINE.fullmatch(text) and not _NOT_WHOLE.fullmatch(text):
        return Value("tuple", "()", items=(parse("-\\infty"), parse("\\infty")))
    if (without := _EXCEPT.fullmatch(text)) and _is_constant(without["point"] or without["member"]):
        return _all_but(without["point"] or without["member"], parse)
    found = _inequality(text, parse)
    return found[1] if found else None


def is_whole_line(value: Value) -> bool:
    """Whether a value is the interval of all real numbers."""
    return value.kind == "tuple" and value.text == "()" and [*map(_end, value.items)] == [-inf, inf]


def _all_but(point: str, parse: Parse) -> Value:
    return Value("union", "", items=(_ray("<", point, parse), _ray(">", point, parse)))


def _inequality(text: str, parse: Parse) -> tuple[str, Value] | None:
    """The variable and the interval of an inequality with constant bounds."""
    if "=" in text:
        return None
    if (between := _BETWEEN.fullmatch(text)) and _is_constant(between[1] + between[5]):
        low, high = between[2], between[4]
        falls = low in (">", "\\ge")
        if falls != (high in (">", "\\ge")):
            return None
        brackets = ("(" if low in "<>" else "[") + (")" if high in "<>" else "]")
        ends = (parse(between[1]), parse(between[5]))
        if falls:
            brackets, ends = _mirrored(brackets), ends[::-1]
        return between[3], Value("tuple", brackets, items=ends)
    if (above := _ABOVE.fullmatch(text)) and _is_constant(above[3]):
        return above[1], _ray(above[2], above[3], parse)
    if (below := _BELOW.fullmatch(text)) and _is_constant(below[1]):
        return below[3], _ray(_FLIPPED[below[2]], below[1], parse)
    return None


def _ray(sign: str, bound: str, parse: Parse) -> Value:
    end = parse(bound)
    if sign in ("<", "\\le"):
        return Value("tuple", "()" if sign == "<" else "(]", items=(parse("-\\infty"), end))
    return Value("tuple", "()" if sign == ">" else "[)", items=(end, parse("\\infty")))


def _mirrored(brackets: str) -> str:
    return {"()": "()", "[]": "[]", "(]": "[)", "[)": "(]"}[brackets]


def _is_constant(text: str) -> bool:
    """Whether a text names no variable."""
    return re.search(r"[a-zA-Z]", _COMMAND.sub("", text).replace("e", "")) is None


def of_several_variables(pieces: Iterable[str], parse: Parse) -> bool:
    """Whether a list holds inequalities in more than one variable: `x < 1, y > 2`."""
    return len({found[0] for piece in pieces if (found := _inequality(piece, parse))}) > 1
