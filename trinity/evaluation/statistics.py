"""Estimates from binary rewards, with intervals."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy import stats

from trinity import keyed

Rewards = Mapping[str, int]
"""Reward (0 or 1) by task id."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `n` tasks with its 95 % interval."""

    mean: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.3f} [{self.low:.3f}, {self.high:.3f}]"


def proportion(rewards: Iterable[int]) -> Estimate:
    """Share of ones with Wilson's score interval (scipy.stats.binomtest)."""
    values = list(rewards)
    interval = stats.binomtest(sum(values), len(values)).proportion_ci(0.95, method="wilson")
    return Estimate(sum(values) / len(values), float(interval.low), float(interval.high), len(values))


def paired_difference(ours: Rewards, theirs: Rewards, resamples: int = 5000) -> Estimate:
    """Mean of ours - theirs over the tasks that both have, with the percentile bootstrap over tasks.

    A resample of n differences, each -1, 0 or 1, is a multinomial draw of how often each occurs.
    """
    differences = [ours[task] - theirs[task] for task in ours.keys() & theirs.keys()]
    n = len(differences)
    shares = np.array([differences.count(value) / n for value in (-1, 0, 1)])
    worse, _, better = keyed.generator("bootstrap", n).multinomial(n, shares, size=resamples).T
    low, high = np.quantile((better - worse) / n, [0.025, 0.975])
    return Estimate(sum(differences) / n, float(low), float(high), n)


def detectable_difference(tasks: int, disagreement: float, power: float = 0.8, level: float = 0.05) -> float:
    """The smallest difference of two accuracies that a paired test on `tasks` tasks finds.

    Normal approximation of McNemar's test: two-sided at `level`, found with probability `power`, where the
    two policies differ in outcome on a share psi = `disagreement` of the n tasks:
    d = (z_level + z_power) √(psi / n). Connor (1987) has psi - d² in place of psi beside z_power; leaving d²
    out gives a slightly larger d. Where d > psi, no difference that can occur would be found.
    """
    z = stats.norm.ppf(1 - level / 2) + stats.norm.ppf(power)
    return float(z * math.sqrt(disagreement / tasks))


def sign_test(differences: Iterable[float]) -> float:
    """Two-sided p value of the exact sign test: as many tasks with a difference above 0 as below it?

    With one outcome a task on either side this is McNemar's exact test (McNemar 1947; scipy.stats.binomtest):
    only tasks that exactly one of the two gets right count. 1.0 where there are none.
    """
    values = np.asarray(list(differences))
    above, below = int((values > 1e-12).sum()), int((values < -1e-12).sum())
    return float(stats.binomtest(above, above + below).pvalue) if above + below else 1.0


def seed_test(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Two-sided p value of Welch's t test on the means of single seeds.

    None where seeds can't tell: with fewer than two on a side, and where neither side's seeds differ among
    themselves at all. Such sides may well differ, but the test measures a difference by the spread of seeds,
    and there is none to measure by: p = 0 would claim a certainty that nobody has.
    """
    if min(len(ours), len(theirs)) < 2:
        return None
    if np.ptp(ours) < 1e-12 and np.ptp(theirs) < 1e-12:
        return 1.0 if abs(ours[0] - theirs[0]) < 1e-12 else None
    return float(stats.ttest_ind(ours, theirs, equal_var=False).pvalue)


Correction = Literal["holm", "bonferroni"]


def adjusted(p_values: Sequence[float], correction: Correction = "holm") -> list[float]:
    """p values adjusted for their number, in their order (Holm 1979: step-down; Bonferroni: times m)."""
    m = len(p_values)
    if correction == "bonferroni":
        return [min(1.0, m * p) for p in p_values]
    found = [0.0] * m
    highest = 0.0
    for rank, index in enumerate(sorted(range(m), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (m - rank) * p_values[index]))
        found[index] = highest
    return found


def bootstrap_mean(values: Sequence[float], resamples: int = 5000) -> Estimate:
    """A mean over tasks with its percentile bootstrap interval over tasks."""
    array = np.asarray(values, dtype=float)
    n = len(array)
    drawn = keyed.generator("bootstrap-mean", n).integers(n, size=(resamples, n))
    low, high = np.quantile(array[drawn].mean(axis=1), [0.025, 0.975])
    return Estimate(float(array.mean()), float(low), float(high), n)
