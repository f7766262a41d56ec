"""Which differences between runs are differences of the conditions, and which are the methods' own."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from trinity.evaluation.conditions import mismatches
from trinity.evaluation.runs import Run

MODELS = [{"model": "openrouter/a", "concurrency": 4, "provider": None}, {"model": "openrouter/b"}]
CONFIG: dict[str, Any] = {
    "model": {
        "pool": {"class_path": "LiteLLMPool", "init_args": {"models": MODELS, "timeout": 600.0}},
        "rewards": None,
        "optimizer": {"init_args": {"sigma0": 0.1}},
        "budget": {"usd": None},
        "episode": {"max_turns": 5, "roles": ["worker"], "agents": None, "decode": {"max_tokens": 4096}},
    },
    "data": {"minibatch": 16, "source": {"init_args": {"path": "a.jsonl"}}, "test": None, "seed": 0},
}


def run(label: str, seed: int = 0, tasks: int = 3, trajectories: float = 100.0, **changes: Any) -> Run:
    """A run whose config has these values, by dotted names with __."""
    config = deepcopy(CONFIG)
    for name, value in changes.items():
        *above, last = name.split("__")
        section: Any = config
        for part in above:
            section = section[int(part) if part.isdigit() else part]
        section[last] = value
    held_out = {"trained coordinator": {f"t{i}": 1 for i in range(tasks)}}
    return Run(Path(label), label, seed, config, held_out, [{"spent/trajectories": trajectories}])


DIFFERENT = {
    "model": ({"model__pool__init_args__models__1__model": "openrouter/c"}, "pool", "models.1.model is"),
    "a model more": (
        {"model__pool__init_args__models": [*MODELS, {"model": "openrouter/c"}]},
        "pool",
        "models.length is 2 (a), 3",
    ),
    "provider": (
        {"model__pool__init_args__models__0__provider": {"order": ["x"]}},
        "pool",
        "provider is None (a), set (b)",
    ),
    "another pool": (
        {"model__pool__class_path": "SimulatedPool"},
        "pool",
        "class_path is LiteLLMPool (a), Sim",
    ),
    "tasks": ({"data__source__init_args__path": "b.jsonl"}, "tasks", "path is a.jsonl (a), b.jsonl (b)"),
    "how many": ({"data__test": 10}, "tasks", "data.test is None (a), 10 (b)"),
    "tokens": (
        {"model__episode__decode__max_tokens": 100},
        "decode settings",
        "max_tokens is 4096 (a), 100 (b)",
    ),
    "turns": ({"model__episode__max_turns": 1}, "budget", "max_turns is 5 (a), 1 (b)"),
    "dollars": ({"model__budget__usd": 3.0}, "budget", "usd is None (a), 3.0 (b)"),
    "graders": (
        {"model__rewards": {"class_path": "Rewards"}},
        "graders",
        "model.rewards is None (a), set (b)",
    ),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_what_is_not_the_same_is_named(case: str) -> None:
    changes, kind, named = DIFFERENT[case]
    [sentence] = mismatches([run("a"), run("b", **changes)])
    assert sentence.startswith(f"The runs differ in their {kind}: ")
    assert named in sentence


@pytest.mark.parametrize(
    "changes",
    [
        {"model__optimizer__init_args__sigma0": 1.0},
        {"model__episode__agents": [0]},
        {"model__episode__roles": ["worker", "verifier"]},
        {"data__minibatch": 4},
        {"data__seed": 3},
        {"model__pool__init_args__timeout": 5.0},
        {"model__pool__init_args__models__0__concurrency": 1},
    ],
)
def test_what_a_method_may_choose_is_no_mismatch(changes: dict[str, Any]) -> None:
    assert mismatches([run("a"), run("b", **changes)]) == []


def test_one_run_of_a_method_is_enough() -> None:
    """Not only the first run of each method is looked at."""
    runs = [run("a", 0), run("a", 1), run("b", 0), run("b", 1, data__test=10)]
    assert mismatches(runs) == ["The runs differ in their tasks: data.test is None (a, b), 10 (b)."]


def test_many_options_are_counted() -> None:
    other = {f"model__episode__decode__{name}": 1 for name in ("max_tokens", "top_p", "turns", "temperature")}
    one = {f"model__episode__decode__{name}": 2 for name in ("max_tokens", "top_p", "turns", "temperature")}
    [sentence] = mismatches([run("a", **one), run("b", **other)])
    assert sentence.endswith("; and 1 more options.")


def test_tasks_that_not_all_finished_and_other_training_are_named() -> None:
    found = mismatches([run("a", tasks=3), run("b", tasks=2, trajectories=50.0)])
    assert found == [
        "The runs differ in the held-out tasks they finished: of 3 only the 2 that all of them finished are "
        "compared.",
        "The methods differ in the trajectories that they trained on: a 100, b 50.",
    ]
    assert mismatches([run("a"), run("b", trajectories=109.0)]) == []
