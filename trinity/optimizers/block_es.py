"""A plainer evolution strategy than separable CMA-ES: no covariance, one step size a block."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from trinity import keyed
from trinity.errors import UserError
from trinity.optimizers.base import EvolutionStrategy, checked_sigma0


class BlockES(EvolutionStrategy):
    """A (μ/μ_w, λ)-ES with cumulative step-size adaptation, isotropic within each block of theta.

    Made to ask what separable CMA-ES owes to its diagonal, which hardly moves in 60 generations at
    n = 13,312. Each parameter group b has a step size σ_b and an evolution path p_b of its own
    (Hansen 2016, "The CMA Evolution Strategy: A Tutorial", equations 43 and 44, with the block's own n_b):
    c = (mu_eff + 2) / (n_b + mu_eff + 5), d = 1 + c + 2 max(0, √((mu_eff - 1) / (n_b + 1)) - 1).

    With `antithetic`, candidates come in pairs z, -z, and only the better of each pair is recombined
    (pairwise selection; Auger, Brockhoff and Hansen 2011, "Mirrored Sampling in Evolution Strategies With
    Weighted Recombination"), without which mirrored steps cancel and the step size falls for no reason.

    Args:
        params: parameters or parameter groups, each with an optional `scale`; see `EvolutionStrategy`.
        sigma0: the first step size of all blocks, in units of x.
        population_size: lambda; None is ceil(4 + 3 ln n), made even for pairs.
        blockwise: False gives all blocks one step size: the isotropic strategy.
        antithetic: see above.
        seed: None is 0, or what `use_seed` hands on: the run's seed, in a run.

    Raises:
        UserError: if sigma0 is not above 0, a scale is not above 0, lambda < 2 (4 for pairs), or lambda is
            odd and its candidates are to be pairs.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        sigma0: float = 0.1,
        population_size: int | None = None,
        blockwise: bool = True,
        antithetic: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(params, population_size=population_size, seed=seed)
        if antithetic and population_size is None:
            self.population_size += self.population_size % 2
        if antithetic and (self.population_size % 2 or self.population_size < 4):
            raise UserError(
                f"population_size is {self.population_size}, but antithetic candidates come in pairs, at "
                "least two of them; give it an even number."
            )
        self._antithetic = antithetic
        self._sizes = torch.tensor(self._blocks if blockwise else [self.n])
        winners = self.population_size // 2 if antithetic else self.population_size
        mu = max(1, winners // 2)
        weights = math.log(mu + 0.5) - torch.arange(1, mu + 1).double().log()
        self._weights = weights / weights.sum()
        self._mu_eff = float(1 / self._weights.square().sum())
        blocks = len(self._sizes)
        self._search: dict[str, Any] = {
            "x": torch.zeros(self.n, dtype=torch.float64),
            "path": torch.zeros(self.n, dtype=torch.float64),
            "sigmas": torch.full((blocks,), checked_sigma0(sigma0), dtype=torch.float64),
            "generation": 0,
            "seed": seed or 0,
        }

    def _begin(self, seed: int) -> None:
        self._search["seed"] = seed

    @property
    def generation(self) -> int:
        return int(self._search["generation"])

    @property
    def sigma(self) -> float:
        """The geometric mean of the blocks' step sizes, in units of x."""
        return float(self.sigmas.log().mean().exp())

    @property
    def sigmas(self) -> Tensor:
        """Each block's step size, in units of x."""
        sigmas: Tensor = self._search["sigmas"]
        return sigmas

    def _mean(self) -> Tensor:
        x: Tensor = self._search["x"]
        return x.float()

    def _directions(self) -> Tensor:
        """z (lambda, n), standard normal; a function of (seed, generation)."""
        rng = keyed.generator("block-es", self._search["seed"], self.generation)
        if not self._antithetic:
            return torch.from_numpy(rng.standard_normal((self.population_size, self.n)))
        z = torch.from_numpy(rng.standard_normal((self.population_size // 2, self.n)))
        return torch.stack((z, -z), dim=1).flatten(0, 1)

    def _ask(self) -> Tensor:
        step = self.sigmas.repeat_interleave(self._sizes)
        x: Tensor = self._search["x"]
        return (x + step * self._directions()).float()

    def _tell(self, fitness: Tensor) -> None:
        z = self._directions()
        order = torch.argsort(fitness, descending=True, stable=True)
        if self._antithetic:
            rank = torch.empty_like(order)
            rank[order] = torch.arange(len(order))
            order = order[rank[order] < rank[order ^ 1]]
        z_mean = self._weights @ z[order[: len(self._weights)]]
        self._search["x"] += self.sigmas.repeat_interleave(self._sizes) * z_mean
        self._adapt(z_mean)
        self._search["generation"] += 1

    def _adapt(self, z_mean: Tensor) -> None:
        n, mu_eff = self._sizes.double(), self._mu_eff
        c = (mu_eff + 2) / (n + mu_eff + 5)
        d = 1 + c + 2 * (((mu_eff - 1) / (n + 1)).sqrt() - 1).clamp(min=0)
        expected = n.sqrt() * (1 - 1 / (4 * n) + 1 / (21 * n.square()))
        rate = c.repeat_interleave(self._sizes)
        path = self._search["path"]
        path.mul_(1 - rate).add_((rate * (2 - rate) * mu_eff).sqrt() * z_mean)
        lengths = torch.stack([part.norm() for part in torch.split(path, self._sizes.tolist())])
        self.sigmas.mul_((c / d * (lengths / expected - 1)).exp())

    def _search_state(self) -> dict[str, Any]:
        return {
            name: value.clone() if isinstance(value, Tensor) else value
            for name, value in self._search.items()
        }

    def _load_search_state(self, state: Mapping[str, Any]) -> None:
        self._check_same("the number of step sizes", len(state["sigmas"]), len(self._sizes))
        for name, value in self._search.items():
            found = state[name]
            self._search[name] = (
                found.to("cpu", value.dtype, copy=True) if isinstance(value, Tensor) else found
            )
