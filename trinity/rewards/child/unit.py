"""Unit tests beside the program, in one process: for BigCodeBench, whose tests patch and inspect it.

What a program could change here by an everyday trick is noticed. A program that hunts the harness itself
through frames is not kept from it: no process can be kept from itself.
"""

import builtins
import functools
import types
from collections.abc import Callable, Iterator
from typing import Any

_LOOKED_AT = 1_000


def guard() -> Callable[[], bool]:
    """Remember unittest and builtins; the returned function says whether they are still as they were."""
    before = _callables()
    return lambda: _callables() == before


def _callables() -> dict[tuple[str, str], object]:
    from unittest import case, loader, result, suite  # 20 ms that other jobs do not need

    owners: list[Any] = [builtins, case, loader, result, suite]
    owners += [case.TestCase, suite.BaseTestSuite, suite.TestSuite, loader.TestLoader, result.TestResult]
    return {
        (owner.__name__, name): value
        for owner in owners
        for name, value in vars(owner).items()
        if callable(value) and name != "_"
    }


def run(namespace: dict[str, Any], test: str, entry_point: str) -> str:
    """Execute the test's source in the program's namespace and run its cases.

    Returns what failed first, "" if every test ran and passed. Raises KeyError if the program does not define
    the entry point, ValueError if there is no test.
    """
    import unittest

    function = namespace[entry_point]
    if isinstance(function, types.FunctionType):
        namespace[entry_point] = _with_honest_results(function)
    before = set(map(id, namespace.values()))
    exec(compile(test, "test.py", "exec", dont_inherit=True), namespace)
    cases = [
        value
        for value in namespace.values()
        if isinstance(value, type) and issubclass(value, unittest.TestCase) and id(value) not in before
    ]
    suite = unittest.TestSuite(map(unittest.defaultTestLoader.loadTestsFromTestCase, cases))
    count = suite.countTestCases()
    if not count:
        raise ValueError("the test holds no test cases")
    result = unittest.TestResult()
    suite.run(result)
    for test_case, trace in (*result.errors, *result.failures):
        return f"{test_case.id()}: {trace.strip().splitlines()[-1]}"
    # A program can raise SkipTest: a test that was skipped was not passed.
    passed = result.testsRun == count and not result.skipped and not result.unexpectedSuccesses
    return "" if passed else "a test was skipped"


def _with_honest_results(function: types.FunctionType) -> Callable[..., Any]:
    @functools.wraps(function)
    def honest(*arguments: Any, **options: Any) -> Any:
        value = function(*arguments, **options)
        for number, part in enumerate(_parts(value)):
            equality = getattr(type(part), "__eq__", None)
            if getattr(equality, "__globals__", None) is function.__globals__:
                raise AssertionError(f"a result brings its own equality: {type(part).__name__}")
            if number == _LOOKED_AT:
                break
        return value

    return honest


def _parts(value: object) -> Iterator[object]:
    """The value and what lies in it, outermost first."""
    level = [value]
    while level:
        yield from level
        inner: list[object] = []
        for part in level:
            if isinstance(part, dict):
                inner += [*part.keys(), *part.values()]
            elif isinstance(part, list | tuple | set | frozenset):
                inner += part
        level = inner
