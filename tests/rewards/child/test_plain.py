import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity.rewards.child.plain import decode, encode

hashable = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=5,
)
plain = st.recursive(
    hashable | st.complex_numbers(allow_nan=False),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(hashable, inner, max_size=3)
        | st.sets(hashable, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=10,
)


@settings(max_examples=150, deadline=None)
@given(plain)
def test_round_trip_through_json(value):
    back = decode(json.loads(json.dumps(encode(value))))
    assert back == value
    assert type(back) is type(value)
    assert repr(back) == repr(value) or isinstance(value, dict | set | frozenset | list | tuple)


def test_integers_are_exact_at_any_size():
    for number in (2**63 - 1, 2**63, -(2**63), -(2**64) - 1, 3**20_000):
        assert decode(json.loads(json.dumps(encode(number)))) == number


class Liar(int):
    def __eq__(self, other):
        return True

    def __index__(self):
        return 3

    def __hash__(self):
        return 3


class Text(str):
    def __str__(self):
        return "right"


class Items(list):
    def __iter__(self):
        return iter(["right"])


def test_a_subclass_crosses_as_what_it_is():
    assert encode(Liar(7)) == 7
    assert encode(Text("wrong")) == "wrong"
    assert encode(Items(["wrong"])) == ["list", "wrong"]


@pytest.mark.parametrize("value", [object(), len, iter([]), int, type("A", (), {})(), [object()]])
def test_other_values_do_not_cross(value):
    with pytest.raises(TypeError, match="not plain"):
        encode(value)


@pytest.mark.parametrize(
    "tree",
    [
        {}, [], {"a": 1}, 1.5, ["os"], ["int"], ["int", 5], ["int", "x"], ["float", "x"], ["list", []],
        ["bytes", "0"], ["dict", 1], ["dict", ["list"], 1], ["set", ["list"]], ["complex", 1, 2],
        ["int", "1", "2"], [["list"]], ["set", *range(10_001)],
    ],
)  # fmt: skip
def test_what_is_no_tree_is_refused(tree):
    with pytest.raises(ValueError, match=r"\w"):
        decode(tree)


@settings(max_examples=150, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.builds(
                lambda tag, items: [tag, *items],
                st.sampled_from(["int", "float", "bytes", "set", "dict", "complex", "tuple"]),
                st.lists(inner, max_size=3),
            )
        ),
        max_leaves=8,
    )
)
def test_any_json_gives_a_value_or_a_value_error(tree):
    try:
        decode(tree)
    except (ValueError, OverflowError):
        return
