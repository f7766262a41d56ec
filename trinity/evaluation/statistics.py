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
    """Mean of ours - theirs over the tasks that both have, with the percentile bootstrap over tasks."""
    shared = sorted(ours.keys() & theirs.keys())
    differences = np.array([ours[task] - theirs[task] for task in shared], dtype=float)
    rng = keyed.generator("bootstrap", len(shared))
    means = differences[rng.integers(len(shared), size=(resamples, len(shared)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Estimate(float(differences.mean()), float(low), float(high), len(shared))


def detectable_difference(tasks: int, disagreement: float, power: float = 0.8, level: float = 0.05) -> float:
    """The smallest difference of two accuracies that a paired test on `tasks` tasks finds.

    Normal approximation of McNemar's test (Connor 1987): two-sided at `level`, found with probability
    `power`, where the two policies differ in outcome on a share `disagreement` of the tasks.
    """
    z = stats.norm.ppf(1 - level / 2) + stats.norm.ppf(power)
    return float(z * math.sqrt(disagreement / tasks))
