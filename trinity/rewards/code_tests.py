"""A code task's reference -> its tests.

The reference is JSON, in one of these forms:

    {"tests": [{"input", "output", "testtype": "stdin" | "functional"}], "fn_name"?}   LiveCodeBench
    {"tests": ["assert ...", ...], "test_setup_code"?}                                 MBPP
    {"test": "def check(candidate): ...", "entry_point", "prompt"?}                    HumanEval
    {"test": "class TestCases(unittest.TestCase): ...", "entry_point", "prompt"?}      BigCodeBench
"""

import ast
import functools
import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from trinity.rewards.program import defines

_PLAIN_DIGITS = 4_000  # what int() reads whatever its limit is


@dataclass(frozen=True, slots=True)
class StdinTest:
    """A whole program that reads `given` and must print `expected`."""

    given: str
    expected: str


@dataclass(frozen=True, slots=True)
class CallTest:
    """A function, or a method of a class Solution, called with one JSON argument a line."""

    function: str
    arguments: str
    expected: Any


@dataclass(frozen=True, slots=True)
class ValueTest:
    """An expression over the program's names that must have this value: `assert expression == expected`."""

    setup: str
    expression: str
    expected: Any


@dataclass(frozen=True, slots=True)
class CheckTest:
    """Sources of a benchmark that call the program's functions and raise if something is wrong.

    With an entry point, the sources define `check`, which takes that function.
    """

    setup: str
    sources: tuple[str, ...]
    entry_point: str = ""


@dataclass(frozen=True, slots=True)
class UnitTest:
    """Source of unit tests that need the program in their own process."""

    source: str
    entry_point: str


Test = StdinTest | CallTest | ValueTest | CheckTest | UnitTest


@dataclass(frozen=True, slots=True)
class CodeTests:
    """All tests of a task.

    `names` are what its program has to define, as far as the tests tell. `prompt` is the beginning of the
    program that the LLM was asked to complete, "" if it was not.
    """

    tests: tuple[Test, ...]
    names: frozenset[str]
    prompt: str = ""

    def sources(self, program: str) -> list[str]:
        """What to execute: the prompt's imports and helpers, then the program, whole or a completion."""
        if not self.prompt:
            return [program]
        if any(defines(program, name) for name in self.names):
            return [_stub(self.prompt), program]
        return [f"{self.prompt.rstrip()}\n{program}"]


def _stub(prompt: str) -> str:
    return f"{prompt.rstrip()}\n    pass\n"


@functools.lru_cache(maxsize=32)
def read_tests(reference: str) -> CodeTests:
    """Raises ValueError for anything but the forms above, and where there are no tests."""
    try:
        data = json.loads(reference)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(data, dict):
        raise ValueError("not an object")
    if "test" in data:
        return _one_check(data)
    tests = data.get("tests")
    if not isinstance(tests, list) or not tests:
        raise ValueError("there are no tests, so any program would pass")
    setup = _text(data, "test_setup_code", "")
    function = data.get("fn_name")
    read = tuple(
        _assert(test, setup) if isinstance(test, str) else _example(test, function) for test in tests
    )
    return CodeTests(tuple(read), frozenset().union(*map(_names, read)))


def _text(data: dict[str, Any], field: str, default: str | None = None) -> str:
    value = data.get(field, default)
    if not isinstance(value, str):
        raise ValueError(f"{field} is {value!r:.40}, not text")
    return value


def _example(test: Any, function: Any) -> Test:
    if not isinstance(test, dict):
        raise ValueError(f"a test is {test!r:.40}")
    given, expected, kind = _text(test, "input"), _text(test, "output"), _text(test, "testtype", "stdin")
    if kind == "stdin":
        return StdinTest(given, expected)
    if kind != "functional" or not isinstance(function, str):
        raise ValueError(f"a test of type {kind!r} for the function {function!r}")
    for line in given.split("\n"):
        _json(line.strip() or "null")
    return CallTest(function, given, _json(expected))


def _json(text: str) -> Any:
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError as error:
        raise ValueError("a value nested too deeply") from error


def _integer(digits: str) -> int:
    """Of any length, in linear time."""
    return int(digits) if len(digits) <= _PLAIN_DIGITS else int(Decimal(digits))


def _parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"the test {source[:60]!r} is not Python: {error}") from error


def _assert(source: str, setup: str) -> Test:
    """`assert call == value`, either way round, is split; anything else stays a check."""
    _parsed(setup)
    match _parsed(source).body:
        case [ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]))]:
            for call, value in ((left, right), (right, left)):
                try:
                    return ValueTest(setup, ast.unparse(call), ast.literal_eval(value))
                except ValueError:
                    continue
    return CheckTest(setup, (setup, source))


def _one_check(data: dict[str, Any]) -> CodeTests:
    source, entry_point = _text(data, "test"), _text(data, "entry_point")
    prompt = _text(data, "prompt", "")
    body = _parsed(source).body
    test: Test
    if any(isinstance(node, ast.FunctionDef) and node.name == "check" for node in body):
        test = CheckTest("", (_stub(prompt) if prompt else "", source), entry_point)
    elif any(isinstance(node, ast.ClassDef) for node in body):
        test = UnitTest(source, entry_point)
    else:
        raise ValueError("the test defines neither check nor a class of unit tests")
    return CodeTests((test,), frozenset({entry_point}), prompt)


def _names(test: Test) -> frozenset[str]:
    match test:
        case CallTest(function=function):
            return frozenset({function})
        case ValueTest(expression=expression):
            return _called(expression)
        case CheckTest(sources=sources):
            return _called(sources[-1])
    return frozenset()


def _called(source: str) -> frozenset[str]:
    return frozenset(re.findall(r"\b([A-Za-z_]\w*)\s*\(", source))
