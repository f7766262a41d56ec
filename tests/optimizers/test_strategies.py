"""What every evolution strategy must do: climb, resume, keep plain states, leave global generators alone."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from tests.optimizers.trials import run, through_file
from trinity.errors import UserError
from trinity.optimizers.base import EvolutionStrategy
from trinity.optimizers.block_es import BlockES
from trinity.optimizers.pycma import PyCMAES
from trinity.optimizers.random_search import RandomSearch
from trinity.optimizers.sep_cma import SepCMAES

Make = Callable[..., EvolutionStrategy]
STRATEGIES: dict[str, Make] = {
    "sep-CMA-ES": SepCMAES,
    "pycma, CSA": PyCMAES,
    "pycma, TPA": partial(PyCMAES, step_size="tpa"),
    "random": RandomSearch,
    "blocks": BlockES,
    "isotropic": partial(BlockES, blockwise=False),
    "pairs": partial(BlockES, antithetic=True),
}
every = pytest.mark.parametrize("make", STRATEGIES.values(), ids=STRATEGIES.keys())


def two_blocks(make: Make, **options: Any) -> EvolutionStrategy:
    groups = [
        {"params": [Parameter(torch.zeros(2, 3))], "scale": 5.0},
        {"params": [Parameter(torch.ones(4))]},
    ]
    return make(groups, **options)


@every
@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("done", [0, 4])
def test_resume_is_bit_for_bit(make: Make, done: int, pending: bool) -> None:
    whole = two_blocks(make, seed=3)
    expected = run(whole, 9)
    interrupted = two_blocks(make, seed=3)
    run(interrupted, done)
    asked = interrupted.ask() if pending else None
    state = through_file(interrupted.state_dict())

    resumed = two_blocks(make, seed=99)
    resumed.ask()
    resumed.load_state_dict(state)
    assert resumed.generation == done
    if asked is not None:
        assert torch.equal(resumed.ask(), asked)
    for mean, other in zip(run(resumed, 9 - done), expected[done:], strict=True):
        assert torch.equal(mean, other)
    assert resumed.sigma == whole.sigma


@every
def test_a_saved_state_does_not_change_with_the_run(make: Make) -> None:
    strategy = two_blocks(make)
    run(strategy, 2)
    state = strategy.state_dict()
    copy = through_file(state)
    run(strategy, 2)
    strategy.load_state_dict(state)
    run(strategy, 1)
    for key, value in copy.items():
        assert torch.equal(state[key], value) if isinstance(value, Tensor) else state[key] == value


@every
def test_the_state_holds_tensors_and_plain_values(make: Make) -> None:
    strategy = two_blocks(make)
    run(strategy, 2)
    for value in strategy.state_dict().values():
        plain = isinstance(value, Tensor | int | float | str)
        assert plain or all(isinstance(v, int | float) for v in value)


@every
def test_another_optimizers_state_is_refused(make: Make) -> None:
    others = [other for other in STRATEGIES.values() if type(two_blocks(other)) is not type(two_blocks(make))]
    for other in others:
        with pytest.raises(UserError, match=r"another optimizer saved it|resume with the config"):
            two_blocks(make).load_state_dict(two_blocks(other).state_dict())


@every
def test_seeds_give_the_populations(make: Make) -> None:
    asked = [two_blocks(make, seed=seed).ask() for seed in (0, 0, 1)]
    assert torch.equal(asked[0], asked[1])
    assert not torch.equal(asked[0], asked[2])
    handed, own = two_blocks(make), two_blocks(make, seed=0)
    for strategy in (handed, own):
        strategy.use_seed(1)
    assert torch.equal(handed.ask(), asked[2])
    assert torch.equal(own.ask(), asked[0])


@every
def test_ties_rank_by_candidate_index(make: Make) -> None:
    tied, ordered = (make([Parameter(torch.zeros(40))], population_size=32) for _ in range(2))
    levels = torch.tensor([(7 * i) % 3 for i in range(32)]).float()
    by_hand = levels - torch.arange(32) * 1e-3
    for _ in range(4):
        tied.step(lambda: levels)
        ordered.step(lambda: by_hand)
    assert torch.equal(tied.mean, ordered.mean)


@every
def test_all_candidates_equal_is_a_generation_like_another(make: Make) -> None:
    strategy = make([Parameter(torch.zeros(40))])
    strategy.step(lambda: torch.zeros(strategy.population_size))
    assert torch.isfinite(strategy.mean).all()
    assert strategy.sigma > 0


@every
def test_a_sphere_is_climbed(make: Make) -> None:
    strategy = make([Parameter(torch.ones(40))])
    for _ in range(150):
        strategy.step(lambda: -strategy.ask().square().sum(dim=1))
    # Random search stays within its box around the start, ±0.17, and finds little there.
    limit = 38.0 if make is RandomSearch else 1.0
    assert float(strategy.mean.square().sum()) < limit


@every
def test_global_generators_are_left_alone(make: Make) -> None:
    before = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    strategy = make([Parameter(torch.zeros(500))])
    strategy.step(lambda: strategy.ask().sum(dim=1))
    strategy.load_state_dict(strategy.state_dict())
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(np.random.get_state()[1], before[2])


@every
@pytest.mark.parametrize("value", [0.0, -0.1, float("nan")])
def test_a_spread_that_is_not_positive_is_refused(make: Make, value: float) -> None:
    option = "half_width" if make is RandomSearch else "sigma0"
    with pytest.raises(UserError, match=f"{option} must be above 0, not {value}"):
        make([Parameter(torch.zeros(7))], **{option: value})
