import subprocess
import sys

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity import keyed

keys = st.lists(st.integers() | st.text(), min_size=1, max_size=4).map(tuple)


@settings(max_examples=100, deadline=None)
@given(keys)
def test_the_same_key_gives_the_same_number_whatever_was_drawn_between(key: tuple[str | int, ...]) -> None:
    first = keyed.uniform(*key)
    keyed.uniform("another", *key)
    assert keyed.uniform(*key) == first
    assert 0.0 <= first < 1.0


@settings(max_examples=100, deadline=None)
@given(keys, keys)
def test_different_keys_give_different_numbers(
    one: tuple[str | int, ...], other: tuple[str | int, ...]
) -> None:
    assert (keyed.uniform(*one) == keyed.uniform(*other)) is (one == other)


def test_a_key_is_more_than_its_letters() -> None:
    likely_mixed_up = [(1, 2), ("1", 2), ("1", "2"), (12,), ("12",), ("1, 2",), ("1', '2",), (2, 1)]
    assert len({keyed.uniform(*key) for key in likely_mixed_up}) == len(likely_mixed_up)
    assert len({keyed.generator(*key).random() for key in likely_mixed_up}) == len(likely_mixed_up)


def test_numbers_over_a_grid_of_keys_are_uniform() -> None:
    drawn = np.array(
        [keyed.uniform(0, "train", generation, turn) for generation in range(500) for turn in range(8)]
    )
    counts = np.histogram(drawn, bins=20, range=(0, 1))[0]
    # 19 degrees of freedom: beyond 50 once in about 10,000 sets of keys.
    assert ((counts - 200) ** 2 / 200).sum() < 50
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.06


def test_generators_of_one_key_agree_and_do_not_share_a_stream() -> None:
    one, other = keyed.generator("minibatch", 0, 3), keyed.generator("minibatch", 0, 3)
    first = one.random(5)
    assert np.array_equal(first, other.random(5))
    assert not np.array_equal(first, one.random(5))


def test_another_process_draws_the_same_numbers() -> None:
    program = (
        "from trinity import keyed; print(keyed.uniform(1, 'a', 2), keyed.generator('b', 3).integers(10**9))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert printed.split() == [
        str(keyed.uniform(1, "a", 2)), str(keyed.generator("b", 3).integers(10**9)),
    ]  # fmt: skip
