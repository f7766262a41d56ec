"""The plain evolution strategy with a step size for each block."""

import numpy as np
import pytest
import torch
from torch.nn import Parameter

from trinity.errors import UserError
from trinity.optimizers.block_es import BlockES


def blocks(*sizes: int, **options: object) -> BlockES:
    return BlockES([{"params": [Parameter(torch.ones(size))]} for size in sizes], **options)  # type: ignore[arg-type]


def test_it_is_the_textbook_strategy_on_one_block() -> None:
    """(μ/μ_w, λ)-CSA-ES as in Hansen 2016, written out, on the same draws."""
    n, lam, sigma = 30, 12, 0.3
    strategy = blocks(n, sigma0=sigma, population_size=lam, seed=4)
    w = np.log(6.5) - np.log(np.arange(1, 7))
    w /= w.sum()
    mu_eff = 1 / np.square(w).sum()
    c = (mu_eff + 2) / (n + mu_eff + 5)
    d = 1 + c + 2 * max(0.0, np.sqrt((mu_eff - 1) / (n + 1)) - 1)
    chi = np.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n * n))
    m, p = np.ones(n), np.zeros(n)
    for _ in range(25):
        z = strategy._directions().numpy()
        order = np.argsort(np.square(m + sigma * z).sum(axis=1))[:6]
        strategy.step(lambda: -strategy.ask().double().square().sum(dim=1))
        z_w = w @ z[order]
        m = m + sigma * z_w
        p = (1 - c) * p + np.sqrt(c * (2 - c) * mu_eff) * z_w
        sigma *= np.exp(c / d * (np.linalg.norm(p) / chi - 1))
    assert strategy.mean.numpy() == pytest.approx(m, abs=1e-5)
    assert strategy.sigma == pytest.approx(sigma, rel=1e-6)
    assert np.square(m).sum() < 5


def test_a_block_without_effect_keeps_its_step_size_and_the_other_adapts() -> None:
    strategy = blocks(20, 20, seed=0)
    for _ in range(300):
        strategy.step(lambda: -strategy.ask()[:, :20].square().sum(dim=1))
    near, idle = strategy.sigmas.tolist()
    assert near < 1e-3
    assert idle > 10 * near


def test_pairs_lie_on_both_sides_and_only_the_better_of_each_counts() -> None:
    strategy = blocks(6, population_size=8, antithetic=True)
    x = strategy.ask() - 1
    torch.testing.assert_close(x[0::2], -x[1::2])
    z = strategy._directions()
    fitness = torch.tensor([0.9, 0.8, 0.1, 0.7, 0.3, 0.2, 0.0, 0.0])
    before = strategy.mean.clone()
    strategy.step(lambda: fitness)
    w = torch.tensor(np.log(2.5) - np.log([1.0, 2.0]))
    w /= w.sum()
    torch.testing.assert_close(strategy.mean, (before + 0.1 * (w @ z[[0, 3]])).float())


@pytest.mark.parametrize("size", [2, 7])
def test_populations_without_pairs_are_refused(size: int) -> None:
    with pytest.raises(UserError, match=f"population_size is {size}"):
        blocks(6, population_size=size, antithetic=True)
