"""S7 and what is particular to separable CMA-ES."""

import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import pytest
import torch
from evotorch import Problem
from evotorch.algorithms import CMAES
from jsonargparse import ArgumentParser
from torch import Tensor
from torch.nn import Parameter
from torch.utils.data import DataLoader

from trinity.keyed import generator
from trinity.optimizers.sep_cma import SepCMAES

N = 13_312


# ---------------------------------------------------------------- S7: the real n


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_s7_population_mean_j_rises_at_the_real_n(seed: int) -> None:
    """Binary rewards of 16 shared tasks whose chance of success grows along one planted direction."""
    direction = torch.from_numpy(generator("direction", seed).standard_normal(N)).float()
    direction /= direction.norm()
    strategy = SepCMAES([Parameter(torch.zeros(N))], seed=seed)

    def fitness() -> Tensor:
        chance = torch.sigmoid(5 * strategy.ask() @ direction - 0.5)
        draws = torch.from_numpy(generator("tasks", seed, strategy.generation).random(16)).float()
        return (draws < chance.unsqueeze(1)).float().mean(dim=1)

    j = [strategy.step(fitness).mean().item() for _ in range(11)]
    assert j[-1] > j[0] + 0.2
    assert (strategy.mean @ direction).item() > 0.3


def test_s7_population_size_is_the_configured_one_and_33_by_default() -> None:
    assert SepCMAES([Parameter(torch.zeros(N))]).population_size == 33
    assert SepCMAES([Parameter(torch.zeros(N))]).ask().shape == (33, N)
    assert SepCMAES([Parameter(torch.zeros(N))], population_size=20).ask().shape == (20, N)


def test_constants_follow_the_formulas() -> None:
    cmaes = SepCMAES([Parameter(torch.zeros(N))])._cmaes
    raw = np.log(17) - np.log(np.arange(1, 17))
    mu_eff = raw.sum() ** 2 / (raw**2).sum()
    assert mu_eff == pytest.approx(9.44, abs=0.005)
    assert float(cmaes.mu_eff) == pytest.approx(mu_eff, rel=1e-5)
    assert cmaes.weights[:16].numpy() == pytest.approx(raw / raw.sum(), rel=1e-5)
    assert float(cmaes.c_1) == pytest.approx(1 / (N + 2 * N**0.5 + mu_eff / N), rel=1e-5)
    assert float(cmaes.c_mu) == pytest.approx(
        (0.25 + mu_eff + 1 / mu_eff - 2) / (N + 4 * N**0.5 + mu_eff / 2), rel=1e-5
    )
    assert float(cmaes.c_sigma) == pytest.approx((mu_eff + 2) / (N + mu_eff + 3), rel=1e-5)


# ---------------------------------------------------------------- against other implementations


def sphere(x: np.ndarray) -> np.ndarray:
    return np.square(x).sum(axis=-1)


def ellipsoid(x: np.ndarray) -> np.ndarray:
    n = x.shape[-1]
    return (100 ** (np.arange(n) / (n - 1)) * np.square(x)).sum(axis=-1)


def ros_hansen(f: Callable[[np.ndarray], np.ndarray], n: int, sigma: float, generations: int) -> float:
    """f/f0 of the mean by sep-CMA-ES as Ros and Hansen (2008) wrote it, table 1 and figure 1."""
    rng = torch.Generator().manual_seed(0)  # SepCMAES's own draws at seed 0
    lam = int(np.ceil(4 + 3 * np.log(n)))
    mu = lam // 2
    w = np.log(mu + 1) - np.log(np.arange(1, mu + 1))
    w /= w.sum()
    mu_eff = 1 / np.square(w).sum()
    c_s = (mu_eff + 2) / (n + mu_eff + 3)
    d_s = 1 + 2 * max(0.0, np.sqrt((mu_eff - 1) / (n + 1)) - 1) + c_s
    c_c = 4 / (n + 4)
    c_cov = 2 / (mu_eff * (n + 2**0.5) ** 2) + (1 - 1 / mu_eff) * min(
        1.0, (2 * mu_eff - 1) / ((n + 2) ** 2 + mu_eff)
    )
    c_cov *= (n + 2) / 3
    chi = np.sqrt(n) * (1 - 1 / (4 * n) + 1 / (21 * n**2))
    m, c, p_s, p_c = np.ones(n), np.ones(n), np.zeros(n), np.zeros(n)
    start = f(m)
    for g in range(generations):
        z = torch.randn(lam, n, generator=rng).double().numpy()
        best = np.argsort(f(m + sigma * np.sqrt(c) * z))[:mu]
        z_w = w @ z[best]
        y_w = np.sqrt(c) * z_w
        m = m + sigma * y_w
        p_s = (1 - c_s) * p_s + np.sqrt(c_s * (2 - c_s) * mu_eff) * z_w
        h = np.linalg.norm(p_s) / np.sqrt(1 - (1 - c_s) ** (2 * g + 2)) < (1.4 + 2 / (n + 1)) * chi
        p_c = (1 - c_c) * p_c + h * np.sqrt(c_c * (2 - c_c) * mu_eff) * y_w
        rank_mu = w @ np.square(np.sqrt(c) * z[best])
        c = (1 - c_cov) * c + c_cov / mu_eff * p_c**2 + c_cov * (1 - 1 / mu_eff) * rank_mu
        sigma *= np.exp(c_s / d_s * (np.linalg.norm(p_s) / chi - 1))
    return float(f(m) / start)


@pytest.mark.parametrize("f", [sphere, ellipsoid])
def test_agrees_with_ros_and_hansen(f: Callable[[np.ndarray], np.ndarray]) -> None:
    n, sigma0, generations = 1000, 0.3, 60
    strategy = SepCMAES([Parameter(torch.ones(n))], sigma0=sigma0)
    for _ in range(generations):
        strategy.step(lambda: torch.from_numpy(-f(strategy.ask().double().numpy())))
    reached = f(strategy.mean.double().numpy()) / f(np.ones(n))
    assert reached < 0.8
    assert reached == pytest.approx(ros_hansen(f, n, sigma0, generations), abs=0.01)


@pytest.mark.filterwarnings("ignore:To copy construct")
def test_is_evotorch_step_for_step() -> None:
    """Without ties, ask and tell are the library's own loop, bit for bit."""

    def fitness(x: Tensor) -> Tensor:
        return -(torch.arange(1, 51) * (x - 0.2).square()).sum(dim=-1)

    problem = Problem("max", fitness, initial_bounds=(-1, 1), solution_length=50, vectorized=True, seed=5)
    library = CMAES(problem, stdev_init=0.3, popsize=16, center_init=[0.0] * 50, separable=True)
    problem.manual_seed(5)
    strategy = SepCMAES([Parameter(torch.zeros(50))], sigma0=0.3, population_size=16, seed=5)
    for _ in range(20):
        library.step()
        strategy.step(lambda: fitness(strategy.ask()))
    assert torch.equal(strategy.mean, library.m)
    assert strategy.sigma == float(library.sigma)


# ---------------------------------------------------------------- ties, seeds, side effects


def test_fitness_differences_below_float32_count() -> None:
    """Float64 fitness is ranked as it is: 1 and 1 + 1e-12 are no tie."""
    fine, coarse = (SepCMAES([Parameter(torch.zeros(40))], population_size=6) for _ in range(2))
    order = torch.tensor([3.0, 0.0, 5.0, 1.0, 4.0, 2.0], dtype=torch.float64)
    fine.step(lambda: 1 + 1e-12 * order)
    coarse.step(lambda: order)
    assert torch.equal(fine.mean, coarse.mean)


@pytest.mark.parametrize("size", [2, 3, 5])
def test_small_populations_still_climb(size: int) -> None:
    strategy = SepCMAES([Parameter(torch.ones(10))], population_size=size)
    for _ in range(200):
        strategy.step(lambda: -strategy.ask().square().sum(dim=1))
    assert strategy.mean.square().sum() < 5


def test_global_generators_and_thread_count_are_left_alone() -> None:
    before = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].copy()
    threads = torch.get_num_threads()
    strategy = SepCMAES([Parameter(torch.zeros(500))])
    strategy.step(lambda: strategy.ask().sum(dim=1))
    strategy.load_state_dict(strategy.state_dict())
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.array_equal(np.random.get_state()[1], before[2])
    assert torch.get_num_threads() == threads


def test_nothing_is_printed_and_no_cluster_is_started() -> None:
    program = """
import logging, sys, torch
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
threads = torch.get_num_threads()
from trinity.optimizers.sep_cma import SepCMAES
strategy = SepCMAES([torch.nn.Parameter(torch.zeros(50))])
strategy.step(lambda: strategy.ask().sum(dim=1))
assert torch.get_num_threads() == threads
assert "ray" not in sys.modules or not sys.modules["ray"].is_initialized()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# ---------------------------------------------------------------- inside Lightning and its command line


class Climber(lightning.LightningModule):
    """Manual optimization as the package uses it: ask, evaluate, step(closure)."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.head = torch.nn.Linear(5, 3, bias=False)
        torch.nn.init.zeros_(self.head.weight)
        self.scales = Parameter(torch.ones(4))
        self.seen: list[float] = []

    def configure_optimizers(self) -> SepCMAES:
        groups = [{"params": self.head.parameters(), "scale": 4.0}, {"params": [self.scales]}]
        return SepCMAES(groups, seed=1)

    def training_step(self, batch: Tensor, batch_idx: int) -> None:
        strategy = self.optimizers()
        population = strategy.ask()  # type: ignore[union-attr]
        fitness = -(population - 0.5).square().sum(dim=1)
        self.seen.append(strategy.step(lambda: fitness).mean().item())  # type: ignore[union-attr]


def fit(folder: Path, steps: int, checkpoint: Path | None = None) -> tuple[Climber, lightning.Trainer]:
    quiet: dict[str, Any] = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet["enable_model_summary"] = False
    trainer = lightning.Trainer(default_root_dir=folder, accelerator="cpu", max_steps=steps, **quiet)
    module = Climber()
    trainer.fit(module, DataLoader(list(range(50))), ckpt_path=checkpoint, weights_only=True)
    return module, trainer


@pytest.mark.filterwarnings("ignore")
def test_lightning_counts_trains_saves_and_resumes_bit_for_bit(tmp_path: Path) -> None:
    whole, trainer = fit(tmp_path, 8)
    assert trainer.global_step == 8
    assert whole.seen[-1] > whole.seen[0]

    part, trainer = fit(tmp_path, 5)
    trainer.save_checkpoint(tmp_path / "part.ckpt")
    resumed, trainer = fit(tmp_path, 8, tmp_path / "part.ckpt")
    assert trainer.global_step == 8
    assert part.seen + resumed.seen == whole.seen
    assert torch.equal(resumed.head.weight, whole.head.weight)
    assert torch.equal(resumed.scales, whole.scales)
    assert trainer.optimizers[0].generation == 8  # type: ignore[attr-defined]


class Taker:
    def __init__(self, optimizer: Callable[[Iterable[Any]], torch.optim.Optimizer]) -> None:
        self.optimizer = optimizer


def test_jsonargparse_leaves_the_parameters_open() -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Taker, "module")
    options = {"sigma0": 0.25, "population_size": 12, "seed": 4}
    choice = {"class_path": "trinity.optimizers.sep_cma.SepCMAES", "init_args": options}
    config = parser.parse_object({"module": {"optimizer": choice}})
    strategy = parser.instantiate_classes(config).module.optimizer([Parameter(torch.zeros(9))])
    assert isinstance(strategy, SepCMAES)
    assert (strategy.sigma, strategy.population_size, strategy.n) == (0.25, 12, 9)
