import math
import time

import pytest

from trinity.rewards.comparison import same_output, same_value


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("5 \n\n", "5\n"), ("  5", "5"), ("a\nb", "a\nb\n"), ("a \nb", "a\nb"), ("1 2", "1  2"),
        ("1.0", "1"), ("1", "1.0"), ("1e3", "1000"), ("0.30000000000000004", "0.3"),
        ("0.333333", "0.33333333"),
        ("-0", "0"), ("007", "7"), ("+5", "5"), ("", "\n"), ("é", "é"), ("1" * 5000, "1" * 5000 + "\n"),
        ("5\r\n6\r\n", "5\n6\n"), ("1 0.50 3", "1 0.5 3"), ("NaN", "NaN"),
    ],
)  # fmt: skip
def test_equal_outputs(printed, expected):
    assert same_output(printed, expected)


@pytest.mark.parametrize(
    ("printed", "expected"),
    [
        ("", "5"), ("5", ""), ("5\n6", "5"), ("5 6", "5"), ("5", "5 6"), ("a\n\nb", "a\nb"), ("a  b", "a b"),
        ("A", "a"), ("1000001", "1000000"), ("1000000.1", "1000000"), ("1" * 5000, "1" * 4999 + "2"),
        ("0.3001", "0.3"), ("2e-9", "1e-9"), ("True", "1"), ("1_0", "10"), ("１", "1"), ("nan", "0.5"),
        ("inf", "1e400"), ("1e400", "1e500"), ("1e999999999999999999999", "1.5"), ("0x5", "5"), ("5.", "a"),
        ("10000000000000001", "10000000000000000"), ("0.9999999999", "1"),
    ],
)  # fmt: skip
def test_different_outputs(printed, expected):
    assert not same_output(printed, expected)


@pytest.mark.parametrize(
    "printed", ["\n" * 9_000_000 + "6", "6\n" * 5_000_000, "6 " * 8_000_000, "9" * 9_000_000]
)
def test_a_flood_is_compared_in_no_time(printed):
    started = time.process_time()
    assert not same_output(printed, "5")
    assert time.process_time() - started < 1.5


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 5), (10**30, 10**30), (0.1 + 0.2, 0.3), (3, 3.0), (3.0, 3), (math.nan, math.nan), (None, None),
        ("a", "a"), ([1, [2.0000000001]], [1, [2.0]]), ({"a": 0.1 + 0.2}, {"a": 0.3}), (True, True),
        (math.inf, math.inf), (1e-300, 1e-300), (b"a", b"a"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("from_json", [True, False])
def test_equal_values(value, expected, from_json):
    assert same_value(value, expected, from_json=from_json)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (5, 6), (10**30 + 1, 10**30), (0.31, 0.3), (2e-9, 1e-9), (math.inf, 1e308), (math.nan, 1.0),
        (1.0, math.nan), ("5", 5), (5, "5"), ([1], [1, 2]), ([1, 2], [1]), ([2, 1], [1, 2]), (None, 0),
        (0, None), ("", None), ([], None), ({"a": 1}, {"b": 1}), ({}, []), ("a", ["a"]), ("A", "a"),
        (10**400, 1.5), (5.0000001, 5), (float(10**16), 10**16 + 1), ({1}, [1]), (b"a", "a"), ("a ", "a"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("from_json", [True, False])
def test_different_values(value, expected, from_json):
    assert not same_value(value, expected, from_json=from_json)


def test_json_tells_true_from_one_but_not_tuples_from_lists():
    for value, expected in [(True, 1), (1, True), (0, False), ([True], [1]), (True, 1.0)]:
        assert not same_value(value, expected, from_json=True)
        assert same_value(value, expected)
    for value, expected in [((1, 2), [1, 2]), ([(1, 2)], [[1, 2]]), ({"a": (1,)}, {"a": [1]})]:
        assert same_value(value, expected, from_json=True)
        assert not same_value(value, expected)


def test_python_values():
    assert same_value((1, {2}), (1, {2}))
    assert same_value({1, 2}, frozenset({1, 2}))
    assert same_value(1j * (0.1 + 0.2), 0.3j)
    assert not same_value({1}, {2})
    assert not same_value([1], (1,))
