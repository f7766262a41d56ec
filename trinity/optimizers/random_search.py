"""Random search: the baseline that learns nothing from one generation to the next but the best so far."""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from trinity import keyed
from trinity.errors import UserError
from trinity.optimizers.base import EvolutionStrategy


class RandomSearch(EvolutionStrategy):
    """theta uniform around the start; the parameters are those of the best candidate so far.

    theta = start + scale · x with x uniform in [-half_width, half_width]. The paper draws theta itself from
    [-0.5, 0.5], calibrated to weights that its search had found on raw hidden states. On hidden states of
    norm √d (`rms`) the same half width gives logits a spread of 0.29 √d · scale, 9 at d = 1,024: every
    candidate would be saturated, its choices certain from birth. The default ±0.17 (√3 · 0.1) has the
    standard deviation that sep-CMA-ES starts with at its sigma0 of 0.1, in the same units.

    Fitness is compared across generations, although each has a minibatch of its own: the winner is in part
    the luckiest, which is what more trials a candidate (data.minibatch; the paper has 32) are for. Of equal
    ones the first stays.

    Args:
        params: parameters or parameter groups, each with an optional `scale`; see `EvolutionStrategy`.
        half_width: of the interval, in units of x.
        population_size: how many candidates a generation tries; None is ceil(4 + 3 ln n).
        seed: None is 0, or what `use_seed` hands on: the run's seed, in a run.

    Raises:
        UserError: if half_width is not above 0, there are fewer than 2 candidates, or a scale is not above 0.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        half_width: float = 0.17,
        population_size: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(params, population_size=population_size, seed=seed)
        if not (math.isfinite(half_width) and half_width > 0):
            raise UserError(f"half_width must be above 0, not {half_width}.")
        self._search: dict[str, Any] = {
            "best": torch.zeros(self.n),
            "best_fitness": -math.inf,
            "generation": 0,
            "seed": seed or 0,
            "half_width": half_width,
        }

    def _begin(self, seed: int) -> None:
        self._search["seed"] = seed

    @property
    def generation(self) -> int:
        return int(self._search["generation"])

    @property
    def sigma(self) -> float:
        """The standard deviation of a coordinate, in units of x; constant."""
        return float(self._search["half_width"]) / math.sqrt(3)

    def _mean(self) -> Tensor:
        best: Tensor = self._search["best"]
        return best

    def _ask(self) -> Tensor:
        rng = keyed.generator("random-search", self._search["seed"], self.generation)
        limit = self._search["half_width"]
        drawn = rng.uniform(-limit, limit, size=(self.population_size, self.n))
        return torch.from_numpy(drawn.astype(np.float32))

    def _tell(self, fitness: Tensor) -> None:
        leader = int(torch.argmax((fitness == fitness.max()).int()))
        if float(fitness[leader]) > self._search["best_fitness"]:
            self._search["best"] = self._ask()[leader].clone()
            self._search["best_fitness"] = float(fitness[leader])
        self._search["generation"] += 1

    def _search_state(self) -> dict[str, Any]:
        return {**self._search, "best": self._search["best"].clone()}

    def _load_search_state(self, state: Mapping[str, Any]) -> None:
        for name in self._search:
            self._search[name] = state[name].clone() if name == "best" else state[name]
