import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from trinity.evaluation.statistics import (
    Estimate,
    adjusted,
    bootstrap_mean,
    detectable_difference,
    paired_difference,
    proportion,
    seed_test,
    sign_test,
)

Z = 1.959963984540054  # the 97.5 % point of the normal distribution


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [
        # Newcombe (1998), Statistics in Medicine 17, table I, method 3: the score interval.
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_proportions_have_wilsons_interval(right: int, n: int, low: float, high: float) -> None:
    found = proportion([1] * right + [0] * (n - right))
    assert (found.mean, found.n) == (right / n, n)
    assert (found.low, found.high) == (pytest.approx(low, abs=6e-5), pytest.approx(high, abs=6e-5))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.sampled_from([0, 1]), min_size=1, max_size=400))
def test_proportions_follow_wilsons_formula(rewards: list[int]) -> None:
    n, p = len(rewards), sum(rewards) / len(rewards)
    middle = (p + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    found = proportion(rewards)
    assert found.low == pytest.approx(middle - half, abs=1e-9)
    assert found.high == pytest.approx(middle + half, abs=1e-9)


def named(outcomes: str, start: int = 0) -> dict[str, int]:
    return {f"t{start + i}": int(outcome) for i, outcome in enumerate(outcomes)}


def test_the_paired_difference_is_that_of_the_shared_tasks() -> None:
    found = paired_difference(named("1101") | {"mine": 1}, named("0110") | {"yours": 1})
    assert (found.mean, found.n) == (0.25, 4)


def test_the_paired_difference_is_zero_wide_where_policies_never_differ() -> None:
    assert paired_difference(named("1100"), named("1100")) == Estimate(0.0, 0.0, 0.0, 4)
    assert paired_difference(named("111"), named("000")) == Estimate(1.0, 1.0, 1.0, 3)


def test_the_paired_interval_is_the_bootstraps() -> None:
    # 30 tasks better, 10 worse, 60 equal: variance of one difference 0.4 - 0.2² = 0.36.
    ours, theirs = named("1" * 30 + "0" * 10 + "1" * 60), named("0" * 30 + "1" * 10 + "1" * 60)
    found = paired_difference(ours, theirs)
    half = Z * math.sqrt(0.36 / 100)
    assert found.mean == pytest.approx(0.2)
    assert found.low == pytest.approx(0.2 - half, abs=0.0101)
    assert found.high == pytest.approx(0.2 + half, abs=0.0101)
    assert paired_difference(theirs, ours).mean == pytest.approx(-0.2)


def test_pairing_makes_the_interval_narrower_than_that_of_two_samples() -> None:
    ours, theirs = named("1" * 55 + "0" * 45), named("1" * 50 + "0" * 50)
    found = paired_difference(ours, theirs)
    assert found.low > 0, "5 better and none worse is a difference, though each interval holds the other mean"
    assert proportion(ours.values()).low < proportion(theirs.values()).mean


def test_the_same_rewards_give_the_same_interval_in_any_order() -> None:
    ours, theirs = named("1101001110"), named("0110101100")
    backwards = dict(reversed(ours.items()))
    assert paired_difference(ours, theirs) == paired_difference(backwards, theirs)


@pytest.mark.parametrize(("tasks", "disagreement"), [(300, 0.3), (500, 0.1), (12, 0.4)])
def test_the_detectable_difference_is_mcnemars(tasks: int, disagreement: float) -> None:
    # By hand: (1.95996 + 0.84162) √(psi / n).
    assert detectable_difference(tasks, disagreement) == pytest.approx(
        2.801585 * math.sqrt(disagreement / tasks), rel=1e-5
    )


def test_the_detectable_difference_is_found_with_the_power_it_names() -> None:
    n, psi = 400, 0.25
    d = detectable_difference(n, psi)
    # Among n tasks, better ~ psi/2 + d/2 and worse ~ psi/2 - d/2; the test statistic's own distribution.
    sd = math.sqrt((psi - d * d) / n)
    power = stats.norm.sf((Z * math.sqrt(psi / n) - d) / sd)
    assert power == pytest.approx(0.8, abs=0.02)
    assert power > 0.8, "leaving d² out errs on the safe side"


def test_the_detectable_difference_shrinks_with_tasks_and_grows_with_what_is_asked() -> None:
    assert detectable_difference(400, 0.2) == pytest.approx(detectable_difference(100, 0.2) / 2)
    assert detectable_difference(100, 0.2, power=0.9) > detectable_difference(100, 0.2)
    assert detectable_difference(100, 0.2, level=0.01) > detectable_difference(100, 0.2)


def test_an_estimate_prints_its_interval() -> None:
    assert str(Estimate(0.5, 0.25, 0.75, 8)) == "0.500 [0.250, 0.750]"


def test_the_sign_test_is_mcnemars_exact_test_with_one_outcome_a_task() -> None:
    # 10 tasks for one side, 2 for the other: 2 x (C(12,0) + C(12,1) + C(12,2)) / 2^12.
    outcomes = [1] * 10 + [-1] * 2 + [0] * 50
    assert sign_test(outcomes) == pytest.approx(2 * 79 / 4096)
    assert sign_test([-x for x in outcomes]) == sign_test(outcomes)
    assert sign_test([0, 0, 0]) == sign_test([]) == 1.0
    assert sign_test([1 / 3, 2 / 3, -1 / 3, 1e-17]) == pytest.approx(1.0)


def test_the_seed_test_is_welchs() -> None:
    ours, theirs = [0.9, 0.88, 0.92], [0.5, 0.7, 0.6, 0.65]
    a, b = (np.var(x, ddof=1) / len(x) for x in (ours, theirs))
    t = (np.mean(ours) - np.mean(theirs)) / math.sqrt(a + b)
    freedom = (a + b) ** 2 / (a**2 / (len(ours) - 1) + b**2 / (len(theirs) - 1))
    assert seed_test(ours, theirs) == pytest.approx(2 * stats.t.sf(abs(t), freedom))


def test_the_seed_test_needs_two_seeds_a_side_and_bears_equal_ones() -> None:
    assert seed_test([0.5], [0.1, 0.2, 0.3]) is None
    assert seed_test([0.5, 0.5], [0.4, 0.4]) is None, "no spread to measure a difference by"
    assert seed_test([0.5, 0.5], [0.5, 0.5, 0.5]) == 1.0
    assert seed_test([0.5, 0.5], [0.5, 0.6]) == pytest.approx(0.5)


def test_p_values_are_adjusted_for_their_number() -> None:
    # Holm: the smallest times 4, the next times 3, ..., never below the one before.
    p = [0.01, 0.04, 0.03, 0.005]
    assert adjusted(p) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert adjusted(p, "bonferroni") == pytest.approx([0.04, 0.16, 0.12, 0.02])
    assert adjusted([0.5, 0.9]) == [1.0, 1.0]
    assert adjusted([]) == []


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_never_stricter_than_bonferroni(p: list[float]) -> None:
    for raw, holm, bonferroni in zip(p, adjusted(p), adjusted(p, "bonferroni"), strict=True):
        assert raw <= holm <= bonferroni <= 1


def test_the_mean_over_tasks_has_the_bootstraps_interval() -> None:
    values = [1.0] * 40 + [2 / 3] * 30 + [0.0] * 30
    found = bootstrap_mean(values)
    half = Z * np.std(values) / math.sqrt(100)
    assert found.mean == pytest.approx(0.6)
    assert found.low == pytest.approx(0.6 - half, abs=0.01)
    assert found.high == pytest.approx(0.6 + half, abs=0.01)
    assert bootstrap_mean(values) == found
