import json

import pytest

from trinity.rewards.code_tests import (
    CallTest,
    CheckTest,
    CodeTests,
    StdinTest,
    UnitTest,
    ValueTest,
    read_tests,
)

CHECK = "def check(candidate):\n    assert candidate(1) == 2"
UNIT = "import unittest\nclass TestCases(unittest.TestCase):\n    def test(self): pass"


def read(**reference):
    return read_tests(json.dumps(reference))


def test_input_output_tests():
    stdin = {"input": "1\n", "output": "2\n", "testtype": "stdin"}
    call = {"input": '[1]\n"a"', "output": "[2.5]", "testtype": "functional"}
    tests = read(tests=[stdin, call, {"input": "", "output": "x"}], fn_name="f")
    assert tests.tests == (StdinTest("1\n", "2\n"), CallTest("f", '[1]\n"a"', [2.5]), StdinTest("", "x"))
    assert tests.names == {"f"}
    call = {"input": '"a\u2028b"\n', "output": '"x"', "testtype": "functional"}
    assert read(tests=[call], fn_name="f").tests == (CallTest("f", '"a\u2028b"\n', "x"),)


@pytest.mark.parametrize(
    ("source", "expression", "expected"),
    [
        ("assert add(1,2)==3", "add(1, 2)", 3),
        ("assert 3 == add(1,2)", "add(1, 2)", 3),
        ("assert add(1,2) == -3, 'message'", "add(1, 2)", -3),
        ("assert set(f(1)) == {1, 'a'}", "set(f(1))", {1, "a"}),
        ("assert f((1,)) == (1, [None, True], {'a': b'b'})", "f((1,))", (1, [None, True], {"a": b"b"})),
        ("assert (f(1) == 2)", "f(1)", 2),
    ],
)
def test_an_assert_is_split(source, expression, expected):
    assert read(tests=[source], test_setup_code="x = 1").tests == (ValueTest("x = 1", expression, expected),)


@pytest.mark.parametrize(
    "source",
    [
        "assert f(1)", "assert not f(1)", "assert f(1) == g(2)", "assert f(1) == 1 == g(2)",
        "assert f(1) is True",
        "import math\nassert math.isclose(f(1), 2)", "x = f(1)\nassert x == 1", "assert f(1) != 2",
    ],
)  # fmt: skip
def test_what_is_not_split_stays_a_check(source):
    assert read(tests=[source]).tests == (CheckTest("", ("", source)),)


def test_checks_and_unit_tests():
    prompt = "def f(x):\n    '''Add.'''\n"
    tests = read(test=CHECK, entry_point="f", prompt=prompt)
    assert tests.tests == (CheckTest("", ("def f(x):\n    '''Add.'''\n    pass\n", CHECK), "f"),)
    assert tests.prompt == prompt
    assert read(test=UNIT, entry_point="f").tests == (UnitTest(UNIT, "f"),)


def test_a_completion_joins_its_prompt_and_a_program_follows_it():
    tests = CodeTests((StdinTest("", ""),), frozenset({"f"}), "import re\ndef f(x):\n")
    assert tests.sources("    return 1") == ["import re\ndef f(x):\n    return 1"]
    whole = "from __future__ import annotations\ndef f(x):\n    return 1"
    assert tests.sources(whole) == ["import re\ndef f(x):\n    pass\n", whole]
    assert CodeTests(tests.tests, tests.names).sources("a = 1") == ["a = 1"]


def test_expected_integers_of_any_size():
    test = {"input": "", "output": "[" + "7" * 9000 + "]", "testtype": "functional"}
    (read_test,) = read(tests=[test], fn_name="f").tests
    assert read_test.expected[0] == (10**9000 - 1) // 9 * 7


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("", "Expecting"), ("[]", "not an object"), ("{}", "no tests"), ('{"tests": []}', "no tests"),
        ('{"tests": "assert 1"}', "no tests"), ('{"tests": [1]}', "a test is 1"), ("[" * 99_999, "deep"),
        ('{"tests": ["assert f("]}', "not Python"), ('{"tests": [{"input": "1"}]}', "output"),
        ('{"tests": [{"input": "", "output": "1", "testtype": "functional"}]}', "function None"),
        ('{"tests": [{"input": "", "output": "1", "testtype": "shell"}]}', "shell"),
        ('{"tests": [{"input": "x", "output": "1", "testtype": "functional"}], "fn_name": "f"}', "Expecting"),
        ('{"tests": [{"input": "1", "output": "x", "testtype": "functional"}], "fn_name": "f"}', "Expecting"),
        ('{"test": "def check(c): pass"}', "entry_point"),
        ('{"test": "x = 1", "entry_point": "f"}', "neither"),
        ('{"tests": ["assert f(1) == 1"], "test_setup_code": "("}', "not Python"),
    ],
)  # fmt: skip
def test_a_reference_that_tests_nothing_is_refused(reference, message):
    with pytest.raises(ValueError, match=message):
        read_tests(reference)
