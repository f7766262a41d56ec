"""Random search."""

import pytest
import torch
from torch.nn import Parameter

from trinity.optimizers.random_search import RandomSearch


def test_theta_is_uniform_around_the_start_in_each_blocks_unit() -> None:
    groups = [
        {"params": [Parameter(torch.zeros(4000))], "scale": 6.0},
        {"params": [Parameter(torch.ones(4000))]},
    ]
    population = RandomSearch(groups, half_width=0.5).ask()
    head, scales = population[:, :4000], population[:, 4000:] - 1
    assert 2.99 < head.max() <= 3.0 and -3.0 <= head.min() < -2.99
    assert 0.499 < scales.max() <= 0.5 and -0.5 <= scales.min() < -0.499
    assert head.std().item() == pytest.approx(6 * 0.5 / 3**0.5, rel=0.01)


def test_the_default_spreads_as_sep_cma_es_does_at_first() -> None:
    assert RandomSearch([Parameter(torch.zeros(9))]).sigma == pytest.approx(0.1, rel=0.02)


def test_the_best_candidate_so_far_is_kept_the_first_of_equals() -> None:
    parameter = Parameter(torch.zeros(5))
    search = RandomSearch([parameter], population_size=4)
    first = search.ask()
    search.step(lambda: torch.tensor([0.2, 0.6, 0.6, 0.1]))
    assert torch.equal(parameter.detach(), first[1])
    search.step(lambda: torch.tensor([0.6, 0.0, 0.5, 0.3]))  # no better
    assert torch.equal(parameter.detach(), first[1])
    third = search.ask()
    search.step(lambda: torch.tensor([0.0, 0.0, 0.0, 0.7]))
    assert torch.equal(parameter.detach(), third[3])
