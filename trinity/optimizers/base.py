"""What every evolution strategy of this package shares: theta as one vector, asked for, told, saved."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from trinity.errors import UserError


def default_population_size(n: int) -> int:
    """lambda = ceil(4 + 3 ln n), 33 at n = 13,312."""
    return math.ceil(4 + 3 * math.log(n))


def checked_sigma0(sigma0: float) -> float:
    """The first step size. Raises UserError where it is not above 0."""
    if not (math.isfinite(sigma0) and sigma0 > 0):
        raise UserError(f"sigma0 must be above 0, not {sigma0}.")
    return sigma0


class EvolutionStrategy(torch.optim.Optimizer, ABC):
    """Maximises the fitness of theta without gradients, as a PyTorch optimizer.

    theta is the parameters flattened in group order, n numbers. The strategy searches x, and
    theta = start + scale · x, where start is the parameters' values at construction and each parameter group
    may carry its own `scale` (default 1.0). So one step size serves blocks of different sensitivity.

    One generation: `ask()` for the population, evaluate it, `step(closure)` with a closure that returns its
    fitness. All arithmetic is float32 on the CPU, whatever the parameters' device and dtype.

    Args:
        params: parameters or parameter groups.
        population_size: lambda, the candidates of a generation; None is ceil(4 + 3 ln n).
        seed: None leaves it to `use_seed`.

    Raises:
        UserError: if lambda < 2 or a group's scale is not a positive number.
    """

    # Lightning wraps an optimizer in a shallow copy of itself, so whatever changes in a run lives in objects
    # that both share: the search and the parameter groups are mutated, never rebound.

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        *,
        population_size: int | None = None,
        seed: int | None = None,
    ) -> None:
        self._has_seed = seed is not None
        super().__init__(params, {"scale": 1.0})
        for group in self.param_groups:
            if not (math.isfinite(group["scale"]) and group["scale"] > 0):
                raise UserError(f"A parameter group's scale must be above 0, not {group['scale']}.")
        self._blocks = [sum(p.numel() for p in group["params"]) for group in self.param_groups]
        self.n: int = sum(self._blocks)
        if population_size is None:
            population_size = default_population_size(self.n)
        if population_size < 2:
            raise UserError(f"population_size must be at least 2 to rank candidates, not {population_size}.")
        self.population_size: int = population_size
        self._start = torch.cat(
            [p.detach().reshape(-1).to("cpu", torch.float32, copy=True) for p in self._parameters()]
        )

    def use_seed(self, seed: int) -> None:
        """Take the run's seed where the constructor was given none. Comes before the first ask."""
        if not self._has_seed:
            self._begin(seed)

    @abstractmethod
    def _begin(self, seed: int) -> None:
        """Start the search's draws anew from a seed."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """How many generations have been told."""

    @property
    @abstractmethod
    def sigma(self) -> float:
        """The step size, in units of x."""

    @abstractmethod
    def _mean(self) -> Tensor:
        """The mean of the search distribution, in units of x, shape [n]."""

    @abstractmethod
    def _ask(self) -> Tensor:
        """The pending population in units of x, shape [lambda, n]; the same until the next `_tell`."""

    @abstractmethod
    def _tell(self, fitness: Tensor) -> None:
        """Learn the finite fitness of the pending population, shape [lambda], higher is better."""

    @abstractmethod
    def _search_state(self) -> dict[str, Any]:
        """Tensors and numbers from which the search goes on bit for bit, as if no ask were pending."""

    @abstractmethod
    def _load_search_state(self, state: Mapping[str, Any]) -> None:
        """Take up what `_search_state` gave and forget a pending ask."""

    @property
    def mean(self) -> Tensor:
        """The mean of the search distribution, in units of theta, float32, shape [n]."""
        return self._theta(self._mean())

    def ask(self) -> Tensor:
        """The pending population in units of theta, float32, shape [lambda, n].

        Asking again before `step` gives the same population.
        """
        return self._theta(self._ask())

    def step(self, closure: Callable[[], Tensor]) -> Tensor:  # type: ignore[override]
        """Finish one generation: learn from the pending population and set the parameters to the new mean.

        Args:
            closure: called once, without arguments; gives the fitness of the pending population, shape
                [lambda], higher is better. If it raises, the population stays pending.

        Returns:
            What the closure gave.

        Raises:
            UserError: if the fitness has another shape or a value that is not finite; nothing has changed.
        """
        self._ask()
        fitness = closure()
        self._check(fitness)
        self._tell(fitness.detach().to("cpu", torch.float64))
        self._write_mean()
        return fitness

    def state_dict(self) -> dict[str, Any]:
        """Everything needed to go on bit for bit, as tensors, numbers and lists of numbers.

        The random generator's state is the one before a pending ask: a run that ends between `ask` and
        `step` asks for the same population after it is resumed.
        """
        return {
            "blocks": list(self._blocks),
            "population_size": self.population_size,
            "scales": [float(group["scale"]) for group in self.param_groups],
            "start": self._start.clone(),
            **self._search_state(),
        }

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Go on from a `state_dict()` and set the parameters to its mean.

        As with any PyTorch optimizer the state wins over the constructor's options (sigma0, seed, scale).

        Raises:
            UserError: if the state is of another optimizer, n, block layout, or population size.
        """
        missing = sorted(self.state_dict().keys() - state_dict.keys())
        if missing:
            raise UserError(
                f"The checkpoint's optimizer state lacks {', '.join(missing)}: another optimizer"
                " saved it; resume with that one, or start without a checkpoint."
            )
        self._check_same("n", sum(state_dict["blocks"]), self.n)
        self._check_same("the block sizes", list(state_dict["blocks"]), self._blocks)
        self._check_same("population_size", state_dict["population_size"], self.population_size)
        for group, scale in zip(self.param_groups, state_dict["scales"], strict=True):
            group["scale"] = scale
        self._start.copy_(state_dict["start"])
        self._load_search_state(state_dict)
        self._write_mean()

    def _check(self, fitness: Tensor) -> None:
        shape = tuple(fitness.shape) if isinstance(fitness, Tensor) else type(fitness).__name__
        if shape != (self.population_size,):
            raise UserError(
                f"The closure must return a fitness of shape ({self.population_size},), not {shape}."
            )
        bad = torch.nonzero(~torch.isfinite(fitness)).flatten().tolist()
        if bad:
            raise UserError(
                f"The fitness of candidate {bad[0]} is {fitness[bad[0]].item()} ({len(bad)} of"
                f" {self.population_size} are not finite): drop failed tasks before the mean is taken."
            )

    @staticmethod
    def _check_same(what: str, saved: object, here: object) -> None:
        if saved != here:
            raise UserError(
                f"The checkpoint's optimizer has {what} = {saved}, this run {here}: resume with the config of"
                " that run, or start without a checkpoint."
            )

    def _parameters(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    def _theta(self, x: Tensor) -> Tensor:
        scales = torch.tensor([group["scale"] for group in self.param_groups], dtype=torch.float32)
        return self._start + scales.repeat_interleave(torch.tensor(self._blocks)) * x

    @torch.no_grad()
    def _write_mean(self) -> None:
        parameters = self._parameters()
        values = torch.split(self.mean, [parameter.numel() for parameter in parameters])
        for parameter, value in zip(parameters, values, strict=True):
            parameter.copy_(value.view_as(parameter))
