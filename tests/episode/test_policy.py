from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trinity import keyed
from trinity.episode.policy import choose, probabilities
from trinity.errors import UserError

finite = st.floats(-1e4, 1e4)
logits = st.lists(finite | st.just(float("-inf")), min_size=1, max_size=8).filter(
    lambda values: any(np.isfinite(values))
)
uniforms = st.floats(0, 1, exclude_max=True) | st.sampled_from([0.0, 1 - 2.0**-53, 0.5])


@settings(max_examples=300, deadline=None)
@given(logits, uniforms)
def test_a_sampled_index_is_valid_and_never_one_of_probability_0(values: list[float], uniform: float) -> None:
    index, probability = choose(np.array(values), "sample", uniform)
    assert 0 <= index < len(values)
    assert np.isfinite(values[index])
    assert probability == probabilities(np.array(values))[index] > 0


@settings(max_examples=200, deadline=None)
@given(logits, uniforms)
def test_sampling_inverts_the_cumulative_distribution(values: list[float], uniform: float) -> None:
    p = probabilities(np.array(values))
    index, _ = choose(np.array(values), "sample", uniform)
    assert p[:index].sum() <= uniform + 1e-12
    assert uniform <= p[: index + 1].sum() + 1e-12


def test_a_sum_that_rounds_below_1_leaves_no_gap_at_the_end() -> None:
    rows = [keyed.generator("rounding", i).normal(size=8) for i in range(300)]
    assert any(np.cumsum(probabilities(values))[-1] < 1 for values in rows), "else this shows nothing"
    assert {choose(values, "sample", 1 - 2.0**-53)[0] for values in rows} == {7}


@settings(max_examples=100, deadline=None)
@given(logits, uniforms)
def test_argmax_takes_the_largest_logit_whatever_the_number(values: list[float], uniform: float) -> None:
    index, probability = choose(np.array(values), "argmax", uniform)
    assert values[index] == max(values)
    assert index == values.index(max(values)), "of equal ones the first"
    assert probability == probabilities(np.array(values)).max()


def test_frequencies_over_a_grid_of_keys_are_the_probabilities() -> None:
    wanted = np.array([0.5, 0.2, 0.0, 0.3])
    with np.errstate(divide="ignore"):
        values = np.log(wanted)
    drawn = [
        choose(values, "sample", keyed.uniform(0, "t", g, turn))[0] for g in range(1000) for turn in range(5)
    ]
    shares = np.bincount(drawn, minlength=4) / len(drawn)
    # Four standard deviations of a share over 5,000 draws.
    assert np.all(np.abs(shares - wanted) <= 4 * np.sqrt(wanted * (1 - wanted) / len(drawn)))


@settings(max_examples=50, deadline=None)
@given(st.lists(finite, min_size=1, max_size=8), st.floats(-1e3, 1e3))
def test_softmax_sums_to_1_and_ignores_a_shift(values: list[float], shift: float) -> None:
    p = probabilities(np.array(values))
    assert p.sum() == pytest.approx(1.0, abs=1e-12)
    assert probabilities(np.array(values) + shift) == pytest.approx(p, abs=1e-9)


@pytest.mark.parametrize("selection", ["sample", "argmax"])
@pytest.mark.parametrize("values", [[0.0, float("nan")], [float("-inf")] * 3, [float("inf"), 0.0]])
def test_logits_that_are_no_numbers_are_refused(values: list[float], selection: Any) -> None:
    with pytest.raises(UserError, match="logits"):
        choose(np.array(values), selection, 0.5)
