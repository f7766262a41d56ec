"""What every evolution strategy shares, tried on SepCMAES with few parameters."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import Parameter

from tests.optimizers.trials import run, through_file
from trinity.errors import UserError
from trinity.optimizers.sep_cma import SepCMAES


def two_blocks(scale: float = 5.0, **options: Any) -> tuple[SepCMAES, Parameter, Parameter]:
    head, scales = Parameter(torch.zeros(2, 3)), Parameter(torch.ones(4))
    groups: list[dict[str, Any]] = [{"params": [head], "scale": scale}, {"params": [scales]}]
    return SepCMAES(groups, **options), head, scales


def test_the_first_mean_is_the_start_and_theta_runs_in_group_order() -> None:
    strategy, head, scales = two_blocks()
    assert strategy.n == 10
    assert torch.equal(strategy.mean, torch.cat([head.detach().flatten(), scales.detach()]))
    assert strategy.ask().shape == (strategy.population_size, 10)
    assert strategy.ask().dtype == torch.float32


def test_a_step_writes_the_mean_into_the_parameters() -> None:
    strategy, head, scales = two_blocks()
    returned = strategy.step(lambda: torch.arange(float(strategy.population_size)))
    assert torch.equal(returned, torch.arange(float(strategy.population_size)))
    assert torch.equal(torch.cat([head.detach().flatten(), scales.detach()]), strategy.mean)
    assert not torch.equal(scales.detach(), torch.ones(4))
    assert head.requires_grad and head.shape == (2, 3)


def test_parameters_of_another_dtype_get_the_rounded_mean() -> None:
    parameter = Parameter(torch.zeros(8, dtype=torch.bfloat16))
    strategy = SepCMAES([parameter])
    strategy.step(lambda: torch.arange(float(strategy.population_size)))
    assert parameter.dtype == torch.bfloat16
    assert torch.equal(parameter.detach(), strategy.mean.to(torch.bfloat16))


def test_asking_again_gives_the_pending_population() -> None:
    strategy, *_ = two_blocks()
    first = strategy.ask()
    assert torch.equal(first, strategy.ask())
    strategy.step(lambda: torch.arange(float(strategy.population_size)))
    assert not torch.equal(first, strategy.ask())


def test_a_population_changed_by_the_caller_stays_as_it_was() -> None:
    strategy, *_ = two_blocks()
    first = strategy.ask()
    kept = first.clone()
    first.zero_()
    assert torch.equal(strategy.ask(), kept)


def test_spread_of_each_block_is_sigma_times_its_scale() -> None:
    head, scales = Parameter(torch.zeros(4000)), Parameter(torch.ones(4000))
    strategy = SepCMAES([{"params": [head], "scale": 30.0}, {"params": [scales]}], sigma0=0.2)
    population = strategy.ask()
    assert population[:, :4000].std().item() == pytest.approx(0.2 * 30, rel=0.02)
    assert population[:, 4000:].std().item() == pytest.approx(0.2, rel=0.02)
    assert population[:, 4000:].mean().item() == pytest.approx(1.0, abs=0.01)


def test_two_groups_without_scale_search_as_one() -> None:
    together = SepCMAES([Parameter(torch.zeros(6)), Parameter(torch.ones(4))])
    apart, *_ = two_blocks(scale=1.0)
    assert torch.equal(run(together, 3)[-1], run(apart, 3)[-1])


@pytest.mark.parametrize("pending", [False, True])
@pytest.mark.parametrize("done", [0, 4])
def test_resume_is_bit_for_bit(done: int, pending: bool) -> None:
    whole, *_ = two_blocks(seed=3)
    expected = run(whole, 9)

    interrupted, *_ = two_blocks(seed=3)
    run(interrupted, done)
    asked = interrupted.ask() if pending else None
    state = through_file(interrupted.state_dict())

    resumed, head, scales = two_blocks(scale=1.0, seed=99, sigma0=7.0)
    resumed.ask()
    resumed.load_state_dict(state)
    assert resumed.generation == done
    assert torch.equal(torch.cat([head.detach().flatten(), scales.detach()]), resumed.mean)
    if asked is not None:
        assert torch.equal(resumed.ask(), asked)
    for mean, other in zip(run(resumed, 9 - done), expected[done:], strict=True):
        assert torch.equal(mean, other)
    assert resumed.sigma == whole.sigma


def test_resume_in_parameters_that_already_hold_the_saved_mean() -> None:
    """A trainer restores the module first: the start must come from the state, not from the parameters."""
    whole, *_ = two_blocks()
    expected = run(whole, 6)[-1]
    interrupted, head, scales = two_blocks()
    run(interrupted, 3)
    resumed = SepCMAES([{"params": [head], "scale": 5.0}, {"params": [scales]}])
    resumed.load_state_dict(through_file(interrupted.state_dict()))
    assert torch.equal(run(resumed, 3)[-1], expected)


def test_a_state_of_another_n_is_refused_by_name() -> None:
    state = SepCMAES([Parameter(torch.zeros(7))]).state_dict()
    strategy, *_ = two_blocks()
    with pytest.raises(UserError, match=r"n = 7, this run 10"):
        strategy.load_state_dict(state)


def test_a_state_of_other_blocks_is_refused_by_name() -> None:
    state = SepCMAES([Parameter(torch.zeros(10))]).state_dict()
    strategy, *_ = two_blocks()
    with pytest.raises(UserError, match=r"block sizes = \[10\], this run \[6, 4\]"):
        strategy.load_state_dict(state)


def test_a_state_of_another_population_size_is_refused_by_name() -> None:
    state = two_blocks(population_size=8)[0].state_dict()
    strategy, *_ = two_blocks(population_size=12)
    before = strategy.ask()
    with pytest.raises(UserError, match="population_size = 8, this run 12"):
        strategy.load_state_dict(state)
    assert torch.equal(strategy.ask(), before)


def test_a_state_of_another_optimizer_is_refused() -> None:
    parameter = Parameter(torch.zeros(7))
    with pytest.raises(UserError, match="another optimizer saved it"):
        SepCMAES([parameter]).load_state_dict(torch.optim.Adam([parameter]).state_dict())


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 9), st.sampled_from([float("nan"), float("inf"), float("-inf")]))
def test_fitness_that_is_not_finite_changes_nothing(candidate: int, value: float) -> None:
    strategy, head, _ = two_blocks(population_size=10)
    asked = strategy.ask()
    fitness = torch.zeros(10)
    fitness[candidate] = value
    with pytest.raises(UserError, match=f"candidate {candidate} is {value}"):
        strategy.step(lambda: fitness)
    assert strategy.generation == 0
    assert torch.equal(head.detach(), torch.zeros(2, 3))
    assert torch.equal(strategy.ask(), asked)


@pytest.mark.parametrize("shape", [(9,), (10, 1), ()])
def test_fitness_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    strategy, *_ = two_blocks(population_size=10)
    with pytest.raises(UserError, match=r"shape \(10,\)"):
        strategy.step(lambda: torch.zeros(shape))


def test_a_closure_that_gives_nothing_is_refused() -> None:
    strategy, *_ = two_blocks(population_size=10)
    with pytest.raises(UserError, match="not NoneType"):
        strategy.step(lambda: None)  # type: ignore[arg-type, return-value]


def test_a_closure_that_raises_leaves_the_population_pending() -> None:
    strategy, *_ = two_blocks()
    asked = strategy.ask()

    def interrupted() -> Tensor:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        strategy.step(interrupted)
    assert strategy.generation == 0
    assert torch.equal(strategy.ask(), asked)


@pytest.mark.parametrize("size", [1, 0, -3])
def test_fewer_than_two_candidates_are_refused(size: int) -> None:
    with pytest.raises(UserError, match=f"at least 2 .* not {size}"):
        SepCMAES([Parameter(torch.zeros(7))], population_size=size)


@pytest.mark.parametrize("scale", [0.0, -1.0, float("nan"), float("inf")])
def test_a_scale_that_is_not_positive_is_refused(scale: float) -> None:
    with pytest.raises(UserError, match=f"scale must be above 0, not {scale}"):
        two_blocks(scale=scale)


def test_state_survives_a_file_on_disk(tmp_path: Path) -> None:
    strategy, *_ = two_blocks()
    run(strategy, 2)
    torch.save(strategy.state_dict(), tmp_path / "state.pt")
    other, *_ = two_blocks()
    other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    assert torch.equal(other.ask(), strategy.ask())
