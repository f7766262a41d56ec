"""Estimates from binary rewards, with intervals."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
