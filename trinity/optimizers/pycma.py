"""Separable CMA-ES once more, by pycma: the cross-check of `SepCMAES`."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import cma
import numpy as np
import torch
from cma.sigma_adaptation import CMAAdaptSigmaCSA, CMAAdaptSigmaTPA
from numpy.typing import NDArray
from torch import Tensor

from trinity import keyed
from trinity.errors import UserError
from trinity.optimizers.base import EvolutionStrategy, checked_sigma0

StepSizeControl = Literal["csa", "tpa"]
_CONTROLS = {"csa": CMAAdaptSigmaCSA, "tpa": CMAAdaptSigmaTPA}


class PyCMAES(EvolutionStrategy):
    """pycma's CMA-ES in diagonal mode (`CMA_diagonal`).

    Weights and learning rates are the library's: w_i ∝ ln((λ + 1) / 2) - ln i, mu_eff = 9.44 at λ = 33,
    c_1 = 1 / (n + 2 √n + mu_eff/n), c_mu = (1/4 + mu_eff + 1/mu_eff - 2) / (n + 4 √n + mu_eff/2)
    (cma/options_parameters.py; Hansen 2016, "The CMA Evolution Strategy: A Tutorial", with Ros and Hansen's
    2008 speed-up of the diagonal). In this mode, from n = 300, the library's own default of step-size control
    is TPA, not CSA.

    A checkpoint holds the fitness of every generation told so far, 33 numbers each, and no object of the
    library: its draws are keyed, so telling it all of them again brings it to where it was, bit for bit,
    whatever it keeps inside. That takes as long as the optimizer took (some 30 ms a generation at
    n = 13,312). Candidates of equal fitness rank by index.

    Args:
        params: parameters or parameter groups, each with an optional `scale`; see `EvolutionStrategy`.
        sigma0: the first step size, in units of x.
        population_size: lambda; None is ceil(4 + 3 ln n).
        step_size: `csa` (cumulative step-size adaptation, as in `SepCMAES`) or `tpa` (two-point: two of the
            candidates lie on the line of the last step, and their ranks decide).
        seed: None is 0, or what `use_seed` hands on: the run's seed, in a run.

    Raises:
        UserError: if sigma0 is not above 0, lambda < 2, a scale is not above 0, or TPA has fewer than 4
            candidates.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        sigma0: float = 0.1,
        population_size: int | None = None,
        step_size: StepSizeControl = "csa",
        seed: int | None = None,
    ) -> None:
        super().__init__(params, population_size=population_size, seed=seed)
        if step_size == "tpa" and self.population_size < 4:
            raise UserError(
                f"population_size is {self.population_size}, but step_size tpa takes two candidates for "
                "itself; give it at least 4, or use csa."
            )
        self._search = _Search(self.n, self.population_size)
        self._search.begin(checked_sigma0(sigma0), step_size, seed or 0)

    def _begin(self, seed: int) -> None:
        self._search.begin(self._search.sigma0, self._search.step_size, seed)

    @property
    def generation(self) -> int:
        return len(self._search.told)

    @property
    def sigma(self) -> float:
        return float(self._search.es.sigma)

    def _mean(self) -> Tensor:
        return torch.from_numpy(np.asarray(self._search.es.mean)).float()

    def _ask(self) -> Tensor:
        return torch.from_numpy(np.array(self._search.ask())).float()

    def _tell(self, fitness: Tensor) -> None:
        self._search.tell(fitness)

    def _search_state(self) -> dict[str, Any]:
        told = self._search.told
        return {
            "fitness": torch.stack(told) if told else torch.zeros(0, self.population_size),
            "seed": self._search.seed,
            "sigma0": self._search.sigma0,
            "step_size": self._search.step_size,
            "mean": self._mean(),
        }

    def _load_search_state(self, state: Mapping[str, Any]) -> None:
        self._search.begin(float(state["sigma0"]), state["step_size"], int(state["seed"]))
        for fitness in state["fitness"]:
            self._search.tell(fitness)
        if not torch.equal(self._mean(), state["mean"]):
            warnings.warn(
                "pycma, told the checkpoint's fitness again, came to another mean: another version of it or "
                "of numpy wrote the checkpoint, and the run will not end as the uninterrupted one would.",
                stacklevel=1,
            )


class _Search:
    """A pycma strategy that can be begun anew, in place, and asked repeatedly."""

    def __init__(self, n: int, size: int) -> None:
        self._n, self._size = n, size

    def begin(self, sigma0: float, step_size: StepSizeControl, seed: int) -> None:
        """Forget everything."""
        self.sigma0, self.step_size, self.seed = sigma0, step_size, seed
        self.told: list[Tensor] = []
        self._pending: list[NDArray[np.float64]] | None = None
        self._draw = keyed.generator("pycma", seed, 0)
        options = {
            "CMA_diagonal": True,
            "AdaptSigma": _CONTROLS[step_size],
            "popsize": self._size,
            "randn": lambda *shape: self._draw.standard_normal(shape),
            "seed": np.nan,  # numpy's global generator is neither read nor moved
            "verbose": -9,
            "verb_log": 0,
        }
        self.es: Any = cma.CMAEvolutionStrategy(np.zeros(self._n), sigma0, options)

    def ask(self) -> list[NDArray[np.float64]]:
        """The pending population."""
        if self._pending is None:
            self._draw = keyed.generator("pycma", self.seed, len(self.told))
            self._pending = self.es.ask()
        return self._pending

    def tell(self, fitness: Tensor) -> None:
        """Ranks are all that counts, and with them there are no ties, which the library breaks by chance."""
        population = self.ask()
        ranks = torch.empty(self._size)
        ranks[torch.argsort(fitness, descending=True, stable=True)] = torch.arange(self._size).float()
        self.es.tell(population, ranks.tolist())
        self.told.append(fitness.to("cpu", torch.float64, copy=True))
        self._pending = None
