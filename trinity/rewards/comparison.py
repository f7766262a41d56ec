"""When a program's output or value is the expected one."""

import cmath
import math
import re
from decimal import Decimal
from typing import Any

_RELATIVE, _ABSOLUTE = 1e-6, 1e-12
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_INTEGER = re.compile(r"[+-]?\d+", re.ASCII)


def same_output(printed: str, expected: str) -> bool:
    """As LiveCodeBench compares: line by line, without white space around text and lines.

    A line that differs as text is equal if both are numbers throughout, of equal values. Where the expected
    number is an integer the value is exact, at any size. Where it has a decimal point or an exponent,
    it is equal within 1e-6 of it (LiveCodeBench: exactly).
    """
    ours, theirs = printed.strip(), expected.strip()
    if ours.count("\n") != theirs.count("\n"):
        return False
    return ours == theirs or all(map(_same_line, ours.split("\n"), theirs.split("\n")))


def _same_line(printed: str, expected: str) -> bool:
    if printed.strip() == expected.strip():
        return True
    theirs = expected.split()
    ours = printed.split(maxsplit=len(theirs))
    return len(ours) == len(theirs) and all(map(_same_number, ours, theirs))


def _same_number(printed: str, expected: str) -> bool:
    if not (_NUMBER.fullmatch(printed) and _NUMBER.fullmatch(expected)):
        return False
    try:
        if Decimal(printed) == Decimal(expected):
            return True
    except ArithmeticError:  # an exponent beyond all bounds
        return False
    return not _INTEGER.fullmatch(expected) and _close(float(printed), float(expected))


def same_value(value: Any, expected: Any, *, from_json: bool = False) -> bool:
    """Whether two plain values are equal.

    As Python compares, but an expected float is equal within 1e-6 of it. Integers are exact, at any size.

    Args:
        from_json: whether `expected` was JSON: that tells true from 1, but not a tuple from a list. (In
            Python, and so for the asserts of MBPP, True equals 1, and a tuple is no list.)
    """
    if from_json and isinstance(value, tuple):
        value = list(value)
    if from_json and (isinstance(value, bool) or isinstance(expected, bool)):
        return value is expected
    if isinstance(expected, int | float | complex):
        return isinstance(value, int | float | complex) and _same_scalar(value, expected)
    if isinstance(expected, list | tuple):
        return (
            type(value) is type(expected)
            and len(value) == len(expected)
            and all(same_value(a, b, from_json=from_json) for a, b in zip(value, expected, strict=True))
        )
    if isinstance(expected, dict):
        return (
            isinstance(value, dict)
            and len(value) == len(expected)
            and all(
                key in value and same_value(value[key], wanted, from_json=from_json)
                for key, wanted in expected.items()
            )
        )
    if isinstance(expected, set | frozenset):
        return isinstance(value, set | frozenset) and value == expected
    return type(value) is type(expected) and bool(value == expected)


def _same_scalar(value: complex, expected: complex) -> bool:
    if value == expected:
        return True
    if isinstance(expected, int):
        return False
    try:
        return _close(value, expected)
    except OverflowError:  # an integer beyond every float
        return False


def _close(value: complex, expected: complex) -> bool:
    if cmath.isnan(expected):
        return cmath.isnan(value)
    if isinstance(value, complex) or isinstance(expected, complex):
        return cmath.isfinite(value) and cmath.isclose(value, expected, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
    return math.isfinite(value) and math.isclose(value, expected, rel_tol=_RELATIVE, abs_tol=_ABSOLUTE)
