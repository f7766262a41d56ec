"""Separable CMA-ES, evotorch's implementation behind `EvolutionStrategy`."""

import logging
import os
import warnings
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from trinity.optimizers.base import EvolutionStrategy, checked_sigma0

# Read by evotorch when it is imported: do not install handlers that announce each object made.
os.environ.setdefault("EVOTORCH_VERBOSE_LEVEL", "-1")

from evotorch import Problem
from evotorch.algorithms import CMAES

logging.getLogger("evotorch").setLevel(logging.WARNING)

Sample = tuple[Tensor, Tensor, Tensor]


class SepCMAES(EvolutionStrategy):
    """Separable CMA-ES (Ros and Hansen 2008): the covariance matrix is diagonal, O(lambda n) a generation.

    Weights, learning rates and step-size control (CSA) are evotorch's defaults, which follow pycma: c_1 =
    1 / (n + 2 √n + mu_eff/n), c_mu = (1/4 + mu_eff + 1/mu_eff - 2) / (n + 4 √n + mu_eff/2), and negative
    weights for the worse half in the update of the diagonal only (active CMA-ES; Hansen 2016, "The CMA
    Evolution Strategy: A Tutorial"). Candidates of equal fitness rank by index.

    Args:
        params: parameters or parameter groups, each with an optional `scale`; see `EvolutionStrategy`.
        sigma0: the first step size, in units of x: block b of the first population spreads around the start
            by sigma0 · scale_b.
        population_size: lambda; None is ceil(4 + 3 ln n), 33 at n = 13,312.
        seed: of the strategy's own generator; PyTorch's global one is neither read nor moved. None is 0, or
            what `use_seed` hands on: the run's seed, in a run.

    Raises:
        UserError: if sigma0 is not above 0, lambda < 2, or a scale is not above 0.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        sigma0: float = 0.1,
        population_size: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(params, population_size=population_size, seed=seed)
        self._cmaes = _AskTellCMAES(self.n, self.population_size, checked_sigma0(sigma0))
        self._cmaes.seed(seed or 0)

    def _begin(self, seed: int) -> None:
        self._cmaes.seed(seed)

    @property
    def generation(self) -> int:
        return int(self._cmaes.step_count)

    @property
    def sigma(self) -> float:
        return float(self._cmaes.sigma)

    def _mean(self) -> Tensor:
        mean: Tensor = self._cmaes.m
        return mean

    def _ask(self) -> Tensor:
        return self._cmaes.ask()

    def _tell(self, fitness: Tensor) -> None:
        self._cmaes.tell(fitness)

    def _search_state(self) -> dict[str, Any]:
        return self._cmaes.state()

    def _load_search_state(self, state: Mapping[str, Any]) -> None:
        self._cmaes.load(state)


class _AskTellCMAES(CMAES):  # type: ignore[misc]
    """evotorch's CMAES with sampling and update apart; it evaluates nothing itself."""

    _TENSORS = ("m", "sigma", "C", "A", "p_sigma", "p_c")

    def __init__(self, n: int, population_size: int, sigma0: float) -> None:
        # Construction draws a first population that nobody uses, and even a seeded Problem moves
        # PyTorch's global generator.
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "To copy construct from a tensor")  # evotorch's own weights
            problem = Problem("max", initial_bounds=(-1, 1), solution_length=n, dtype=torch.float32)
            super().__init__(
                problem, stdev_init=sigma0, popsize=population_size, center_init=[0.0] * n, separable=True
            )
        self.p_sigma = torch.zeros(n)
        self.p_c = torch.zeros(n)
        self._generator = torch.Generator()
        self._generator_state = self._generator.get_state()
        self._pending: Sample | None = None
        self._fitness: Tensor | None = None

    def seed(self, seed: int) -> None:
        """Start the generator anew; a pending population is drawn again."""
        self._generator.manual_seed(seed)
        self._generator_state = self._generator.get_state()
        self._pending = None

    def ask(self) -> Tensor:
        """The pending population, shape [lambda, n]."""
        return self.sample_distribution()[2]

    def tell(self, fitness: Tensor) -> None:
        """Update the distribution by the fitness of the pending population, shape [lambda]."""
        self._fitness = fitness
        self._step()
        self._steps_count += 1
        self._pending = None
        self._generator_state = self._generator.get_state()

    def state(self) -> dict[str, Any]:
        """The distribution, the generation, and the generator before a pending ask."""
        tensors = {name: getattr(self, name).clone() for name in self._TENSORS}
        return {**tensors, "generation": self._steps_count, "generator": self._generator_state.clone()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Take up a `state()`."""
        for name in self._TENSORS:
            setattr(self, name, state[name].to("cpu", torch.float32, copy=True))
        self._steps_count = int(state["generation"])
        self._generator_state = state["generator"].to("cpu", copy=True)
        self._generator.set_state(self._generator_state)
        self._pending = None

    def sample_distribution(self, num_samples: int | None = None) -> Sample:
        """evotorch's hook for z, y = A z and x = m + sigma y: drawn once a generation."""
        if self._pending is None:
            z = torch.randn(self.popsize, len(self.m), generator=self._generator)
            y = self.A * z
            self._pending = z, y, self.m + self.sigma * y
        return self._pending

    def get_population_weights(self, xs: Tensor) -> Tensor:
        """evotorch's hook for each candidate's recombination weight: by rank, ties by index."""
        assert self._fitness is not None
        order = torch.argsort(self._fitness, descending=True, stable=True)
        weights = torch.empty_like(self.weights)
        weights[order] = self.weights
        return weights
