"""Comparing methods: real differences are found, and none where there is none."""

from pathlib import Path

import numpy as np
import pytest

from tests.evaluation.finished_runs import outcomes, write_run
from trinity import keyed
from trinity.errors import UserError
from trinity.evaluation.methods import compare_methods
from trinity.evaluation.runs import Run, read_run


@pytest.fixture
def add(tmp_path: Path):
    def make(label: str, seed: int, trained: dict[str, int], **options) -> Run:
        folder = tmp_path / f"{label}-{seed}-{len(list(tmp_path.iterdir()))}"
        return read_run(write_run(folder, label, seed, trained, **options))

    return make


def test_a_method_that_is_right_on_more_tasks_with_every_seed_wins(add) -> None:
    runs = [add("good", s, outcomes(90 + s)) for s in range(3)]
    runs += [add("bad", s, outcomes(50 + s)) for s in range(3)]
    found = compare_methods(runs)
    assert [m.label for m in found.methods] == ["good", "bad"]
    assert found.winner == "good"
    [pair] = found.pairs
    assert (pair.first, pair.verdict) == ("good", "good is better")
    assert pair.difference.mean == pytest.approx(0.4)
    assert found.methods[0].accuracy.mean == pytest.approx(0.91)
    assert found.methods[0].seed_deviation == pytest.approx(0.01)
    by_task = found.methods[0].by_task
    assert found.methods[0].task_error == pytest.approx(np.std(by_task, ddof=1) / 10)
    assert found.conclusion == "good is better than every other method."


def test_what_another_seed_may_turn_is_no_difference_between_methods(add) -> None:
    """On these tasks the policies differ beyond doubt, but one method's seeds differ as much."""
    runs = [add("steady", s, outcomes(80)) for s in range(3)]
    runs += [add("lucky", s, outcomes(right)) for s, right in enumerate((90, 50, 20))]
    [pair] = compare_methods(runs).pairs
    assert pair.p_tasks < 1e-6
    assert pair.p_seeds is not None and pair.p_seeds > 0.2
    assert pair.verdict == "not distinguishable"


def test_what_other_tasks_may_turn_is_none_either(add) -> None:
    """Each seed of one method is a little better, by the same three tasks."""
    runs = [add("a", s, outcomes(53)) for s in range(3)] + [add("b", s, outcomes(50)) for s in range(3)]
    [pair] = compare_methods(runs).pairs
    assert pair.p_seeds is None, "neither side's seeds differ among themselves"
    assert pair.p_tasks == pytest.approx(0.25)
    assert not pair.distinguishable
    assert compare_methods(runs).winner is None


def test_methods_that_are_alike_are_told_apart_as_rarely_as_the_level_says() -> None:
    """Two methods of one kind, whose tasks and seeds vary by chance: over 200 such pairs at most 5 % and a
    margin of sampling are called different."""
    called = 0
    for trial in range(200):
        rng = keyed.generator("alike", trial)
        hard = rng.beta(2, 1, size=60)
        runs = [
            Run(
                Path(f"{label}{seed}"),
                label,
                seed,
                {},
                {"trained coordinator": {f"t{i}": int(x) for i, x in enumerate(drawn)}},
                [{"spent/trajectories": 1.0, "spent/usd": 0.0}],
            )
            for label in ("a", "b")
            for seed in range(3)
            for drawn in [rng.random(60) < np.clip(hard + rng.normal(0, 0.1), 0, 1)]
        ]
        called += compare_methods(runs).winner is not None
    assert called <= 18


def test_with_one_seed_the_test_is_over_tasks_alone(add) -> None:
    [pair] = compare_methods([add("a", 0, outcomes(60)), add("b", 0, outcomes(50))]).pairs
    assert pair.p_seeds is None
    assert pair.p_adjusted == pair.p_tasks == pytest.approx(2 / 2**10)


def test_p_values_are_corrected_over_all_pairs(add) -> None:
    runs = [add("a", 0, outcomes(60)), add("b", 0, outcomes(54)), add("c", 0, outcomes(30))]
    plain = {(p.first, p.second): p.p_tasks for p in compare_methods(runs).pairs}
    assert plain["a", "b"] == pytest.approx(2 / 2**6)
    holm = {(p.first, p.second): p for p in compare_methods(runs).pairs}
    assert holm["a", "b"].p_adjusted == plain["a", "b"]
    strict = {(p.first, p.second): p for p in compare_methods(runs, "bonferroni").pairs}
    assert strict["a", "b"].p_adjusted == pytest.approx(3 * plain["a", "b"])
    assert holm["a", "b"].distinguishable and not strict["a", "b"].distinguishable
    assert compare_methods(runs).winner == "a"
    assert compare_methods(runs, "bonferroni").winner is None
    assert "not distinguishable from b" in compare_methods(runs, "bonferroni").conclusion


def test_only_tasks_that_all_runs_finished_count(add) -> None:
    partly = outcomes(60)
    del partly["t0"], partly["t99"]
    found = compare_methods([add("a", 0, partly), add("b", 0, outcomes(60))])
    assert len(found.methods[0].tasks) == 98
    assert found.pairs[0].difference.mean == 0.0


def test_runs_on_other_tasks_are_refused(add) -> None:
    other = {f"other-{task}": reward for task, reward in outcomes(50).items()}
    with pytest.raises(UserError, match="0 of 200 held-out tasks in common"):
        compare_methods([add("a", 0, outcomes(60)), add("b", 0, other)])


def test_a_seed_that_stands_twice_is_refused(add) -> None:
    with pytest.raises(UserError, match="a has the seed 1 more than once"):
        compare_methods([add("a", 1, outcomes(60)), add("a", 1, outcomes(61))])


def test_methods_are_measured_against_the_best_single_agent(add) -> None:
    found = compare_methods([add("a", 0, outcomes(60), single=outcomes(45))])
    assert found.best_single is not None and found.best_single[0] == "gpt"
    gain = found.over_best_single(found.methods[0])
    assert gain is not None and gain.mean == pytest.approx(0.15)
    assert found.random == 0.0
    assert found.winner is None and "nothing to compare" in found.conclusion


def test_the_best_single_agent_is_that_of_all_runs(add) -> None:
    """The first run is an ablation with one agent, which is not the best."""
    ablation = add("one_model", 0, outcomes(60), singles={"weak": outcomes(25)})
    whole = [
        add("full", seed, outcomes(90), singles={"weak": outcomes(25), "strong": outcomes(75)})
        for seed in range(2)
    ]
    for runs in ([ablation, *whole], [*whole, ablation]):
        found = compare_methods(runs)
        assert found.best_single is not None and found.best_single[0] == "strong"
        gain = found.over_best_single(found.methods[0])
        assert gain is not None and gain.mean == pytest.approx(0.15)


def test_a_single_agent_that_differs_from_run_to_run_counts_with_its_mean(add) -> None:
    runs = [add("a", s, outcomes(60), singles={"x": outcomes(40 + 20 * s)}) for s in range(2)]
    found = compare_methods(runs)
    assert found.best_single is not None
    assert sum(found.best_single[1].values()) / 100 == pytest.approx(0.5)


def test_a_single_agent_with_the_whole_budget_may_be_the_best(add) -> None:
    singles = {"x": outcomes(40), "x, 5 x 4,096 tokens": outcomes(55)}
    found = compare_methods([add("a", 0, outcomes(60), singles=singles)])
    assert found.best_single is not None and found.best_single[0] == "x, 5 x 4,096 tokens"


def test_a_single_agent_that_lost_most_tasks_is_not_chosen(add) -> None:
    lost = {f"t{i}": 1 for i in range(5)}
    found = compare_methods([add("a", 0, outcomes(60), singles={"lucky": lost, "steady": outcomes(50)})])
    assert found.best_single is not None and found.best_single[0] == "steady"


def test_seeds_without_any_spread_decide_nothing_by_themselves(add) -> None:
    """Two tasks apart with every seed: other tasks may turn that, whatever seeds say."""
    runs = [add("a", s, outcomes(52)) for s in range(3)] + [add("b", s, outcomes(50)) for s in range(3)]
    [pair] = compare_methods(runs).pairs
    assert (pair.p_seeds, pair.p_adjusted) == (None, pytest.approx(0.5))
    assert not pair.distinguishable
