"""Outputs that hold a JSON object with "reasoning" and "answer": where the field is, and how it compares.

Models write this object by hand: backslashes of LaTeX stand unescaped in it, text stands around it, and the
endless loops among them never reach the field. So the field is searched for, not parsed out of the object.
"""

import ast
import json
import re
import warnings

from trinity.rewards.extraction import MAX_ANSWER
from trinity.rewards.grade import NO_ANSWER, Grade
from trinity.rewards.latex import nesting
from trinity.rewards.math import AlgebraQuestion, compare_math
from trinity.rewards.number import exact

_KEY = re.compile(r'"answer"\s*:\s*')
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_LINE = re.compile(r"[^\n]*")
_ESCAPED = re.compile(r'\\(["\\/])')
_NUMBERS = re.compile(r"[+-]?(?:\d[\d,]*\.?\d*|\.\d+)")
_MAX_NESTING = 20


def answer_field(output: str) -> str | None:
    r"""The raw content of the last "answer" field: a string's inside, or else the rest of the line."""
    keys = list(_KEY.finditer(output))
    if not keys:
        return None
    start = keys[-1].end()
    string = _STRING.match(output, start, start + MAX_ANSWER + 2)
    if string:
        return string[1]
    line = _LINE.match(output, start)
    assert line is not None
    return line[0][: MAX_ANSWER + 1].strip().rstrip(",}").strip()


def grade_json_number(output: str, reference: str) -> Grade:
    """The number in the field against the reference, exactly.

    Currency signs and thousands commas are dropped. A field with several numbers answers with the first if
    it starts with it ("2:00 pm", "6 pizzas (3 each)"), else, or in an equation, with the last ("4 blue and 6
    red: 10 boxes").
    """
    field = answer_field(output)
    if not field:
        return NO_ANSWER
    text = field[:MAX_ANSWER].replace("$", "").strip()
    numbers = _NUMBERS.findall(text)
    wanted = exact(reference)
    if not numbers or wanted is None:
        return Grade(0, field[:100], "no number in the answer field")
    taken = numbers[0] if _NUMBERS.match(text) and "=" not in text else numbers[-1]
    found = exact(taken.rstrip(",.").replace(",", ""))
    return Grade.of(found is not None and found.value == wanted.value, taken)


def grade_json_math(output: str, reference: str) -> Grade | AlgebraQuestion:
    """The field as mathematics, compared as `trinity.rewards.structure` says."""
    field = answer_field(output)
    return compare_math(_ESCAPED.sub(r"\1", field), reference) if field else NO_ANSWER


def grade_json_literal(output: str, reference: str) -> Grade:
    """The field as a Python literal: the same text, or the same value with the same types.

    The bare contents of a string literal count as that string.
    """
    field = answer_field(output)
    if field is None:
        return NO_ANSWER
    if len(field) > MAX_ANSWER:
        return Grade(0, field[:100], f"answer longer than {MAX_ANSWER} characters")
    readings = (field, _ESCAPED.sub(r"\1", field), _decoded(field))
    return Grade.of(any(_same_literal(text, reference) for text in readings), field)


def _same_literal(text: str, reference: str) -> bool:
    if text.strip() == reference:
        return True
    wanted = literal(reference)
    if isinstance(wanted, str) and text == wanted:
        return True
    try:
        return _same(literal(text), wanted)
    except ValueError:
        return False


def _same(left: object, right: object) -> bool:
    """Equality that tells True from 1 and 1 from 1.0, in containers too. Dicts and sets have no order."""
    if type(left) is not type(right):
        return False
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        ours = {(type(key), key): value for key, value in left.items()}
        theirs = {(type(key), key): value for key, value in right.items()}
        return ours.keys() == theirs.keys() and all(_same(ours[key], theirs[key]) for key in ours)
    if isinstance(left, set) and isinstance(right, set):
        return {(type(item), item) for item in left} == {(type(item), item) for item in right}
    return left == right


def _decoded(field: str) -> str:
    try:
        decoded = json.loads(f'"{field}"', strict=False)
    except ValueError:
        return field
    return str(decoded)


def literal(text: str) -> object:
    """A Python literal's value. Raises ValueError for anything else, or anything long or deep.

    `ast.literal_eval` runs no code, but its parser recurses in C: the caps on length and nesting keep its
    stack small.
    """
    if len(text) > MAX_ANSWER or nesting(text) > _MAX_NESTING:
        raise ValueError("too long or too deep for a literal")
    try:
        with warnings.catch_warnings():  # e.g. "invalid decimal literal" of a text that is none
            warnings.simplefilter("ignore", SyntaxWarning)
            value: object = ast.literal_eval(text.strip())
            return value
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("no Python literal") from error
