"""Methods compared: several runs each, on the same held-out tasks."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import stdev

from trinity.errors import UserError
from trinity.evaluation.conditions import mismatches
from trinity.evaluation.runs import RANDOM, Run
from trinity.evaluation.statistics import (
    Correction,
    Estimate,
    adjusted,
    bootstrap_mean,
    seed_test,
    sign_test,
)

_LEAST_SHARED = 0.5


@dataclass(frozen=True)
class Method:
    """Runs that differ in their seed only, on the tasks that all compared runs finished.

    `accuracy` is the mean over seeds with its interval over tasks; `seed_deviation` the standard deviation
    between seeds (None with one), `task_error` the standard error over tasks.
    """

    label: str
    runs: tuple[Run, ...]
    tasks: tuple[str, ...]

    @property
    def by_task(self) -> list[float]:
        """Each task's mean reward over seeds."""
        return [sum(run.trained[task] for run in self.runs) / len(self.runs) for task in self.tasks]

    @property
    def by_seed(self) -> list[float]:
        """Each seed's mean reward over tasks."""
        return [sum(run.trained[task] for task in self.tasks) / len(self.tasks) for run in self.runs]

    @property
    def accuracy(self) -> Estimate:
        """J on the held-out tasks."""
        return bootstrap_mean(self.by_task)

    @property
    def seed_deviation(self) -> float | None:
        """Between seeds, of J."""
        return stdev(self.by_seed) if len(self.runs) > 1 else None

    @property
    def task_error(self) -> float:
        """Over tasks, of J averaged over seeds."""
        return stdev(self.by_task) / len(self.tasks) ** 0.5 if len(self.tasks) > 1 else float("nan")

    @property
    def trajectories(self) -> float:
        """Played in training, mean over seeds."""
        return sum(run.trajectories for run in self.runs) / len(self.runs)

    @property
    def usd(self) -> float:
        """Paid in training, mean over seeds."""
        return sum(run.usd for run in self.runs) / len(self.runs)


@dataclass(frozen=True)
class Pair:
    """One method against another: `first` has the higher mean.

    `p_tasks` asks whether other tasks could turn the difference (exact sign test over tasks; McNemar's exact
    test with one seed each), `p_seeds` whether other seeds could (Welch's t test; None where seeds can't
    tell, see `seed_test`). `p_adjusted` is the larger of both, corrected for the number of pairs: only what
    neither could turn is a difference between methods.
    """

    first: str
    second: str
    difference: Estimate
    p_tasks: float
    p_seeds: float | None
    p_adjusted: float
    level: float

    @property
    def distinguishable(self) -> bool:
        """Whether the first is better."""
        return self.p_adjusted < self.level

    @property
    def verdict(self) -> str:
        """In words."""
        return f"{self.first} is better" if self.distinguishable else "not distinguishable"


@dataclass(frozen=True)
class MethodComparison:
    """Methods from the highest mean to the lowest, and all their pairs.

    `best_single` is the single agent's row with the highest mean of all runs', with its rewards by task,
    averaged over the runs that have it. `mismatches` names the conditions that the runs don't share.
    """

    methods: list[Method]
    pairs: list[Pair]
    best_single: tuple[str, Mapping[str, float]] | None
    random: float | None
    mismatches: list[str]

    @property
    def winner(self) -> str | None:
        """The method that is better than each of the others; None where there is none."""
        top = self.methods[0].label
        beaten = {pair.second for pair in self.pairs if pair.first == top and pair.distinguishable}
        return top if len(self.methods) > 1 and len(beaten) == len(self.methods) - 1 else None

    @property
    def conclusion(self) -> str:
        """One sentence."""
        top = self.methods[0].label
        if len(self.methods) == 1:
            return f"There is only {top}: nothing to compare it with."
        if self.winner is not None:
            return f"{top} is better than every other method."
        rivals = [pair.second for pair in self.pairs if pair.first == top and not pair.distinguishable]
        return f"No single winner: {top} is not distinguishable from {', '.join(rivals)}."

    def over_best_single(self, method: Method) -> Estimate | None:
        """How far a method is above the best single agent, which is chosen with hindsight."""
        if self.best_single is None:
            return None
        theirs = self.best_single[1]
        return bootstrap_mean(
            [
                ours - theirs[task]
                for ours, task in zip(method.by_task, method.tasks, strict=True)
                if task in theirs
            ]
        )


def compare_methods(
    runs: Sequence[Run], correction: Correction = "holm", level: float = 0.05
) -> MethodComparison:
    """Group runs by their label and compare each method with each other.

    Raises UserError where the runs have too few held-out tasks in common, or a label has a seed twice.
    """
    tasks = _shared_tasks(runs)
    labels = list(dict.fromkeys(run.label for run in runs))
    methods = [_method(label, [run for run in runs if run.label == label], tasks) for label in labels]
    methods.sort(key=lambda method: -method.accuracy.mean)
    tests = []
    for ours, theirs in combinations(methods, 2):
        differences = [a - b for a, b in zip(ours.by_task, theirs.by_task, strict=True)]
        tests.append(
            (ours, theirs, differences, sign_test(differences), seed_test(ours.by_seed, theirs.by_seed))
        )
    corrected = adjusted([max(tasks_p, seeds_p or 0.0) for *_, tasks_p, seeds_p in tests], correction)
    pairs = [
        Pair(ours.label, theirs.label, bootstrap_mean(differences), tasks_p, seeds_p, p, level)
        for (ours, theirs, differences, tasks_p, seeds_p), p in zip(tests, corrected, strict=True)
    ]
    return MethodComparison(methods, pairs, _best_single(runs, tasks), _random(runs, tasks), mismatches(runs))


def _method(label: str, runs: Sequence[Run], tasks: tuple[str, ...]) -> Method:
    seeds = [run.seed for run in runs]
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        folders = ", ".join(str(run.folder) for run in runs if run.seed == twice[0])
        raise UserError(
            f"{label} has the seed {twice[0]} more than once ({folders}), which would count one run as two; "
            "give one of them, or runs with different --label."
        )
    return Method(label, tuple(sorted(runs, key=lambda run: run.seed)), tasks)


def _shared_tasks(runs: Sequence[Run]) -> tuple[str, ...]:
    everyone = [set(run.trained) for run in runs]
    shared, union = set.intersection(*everyone), set.union(*everyone)
    if len(shared) < max(2, _LEAST_SHARED * len(union)):
        raise UserError(
            f"The runs have {len(shared)} of {len(union)} held-out tasks in common, too few to compare them "
            "on; give runs with the same data section."
        )
    return tuple(sorted(shared))


def _best_single(runs: Sequence[Run], tasks: tuple[str, ...]) -> tuple[str, Mapping[str, float]] | None:
    """By its mean on the compared tasks, among the single rows of all runs; each task averaged over runs.

    A row that lacks half of the tasks or more is none to choose: it may have lost the hard ones.
    """
    found: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for name, rewards in run.singles.items():
            for task in tasks:
                if task in rewards:
                    found[name][task].append(rewards[task])
    measured = {
        name: {task: sum(values) / len(values) for task, values in by_task.items()}
        for name, by_task in found.items()
        if len(by_task) > _LEAST_SHARED * len(tasks)
    }
    if not measured:
        return None
    name = max(measured, key=lambda single: sum(measured[single].values()) / len(measured[single]))
    return name, measured[name]


def _random(runs: Sequence[Run], tasks: tuple[str, ...]) -> float | None:
    found = [run.held_out[RANDOM][task] for run in runs if RANDOM in run.held_out for task in tasks
             if task in run.held_out[RANDOM]]  # fmt: skip
    return sum(found) / len(found) if found else None
