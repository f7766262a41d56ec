"""The evolution strategy's objective: fitness = mean binary reward of whole trajectories."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from trinity.errors import UserError
from trinity.objectives.base import Arena, Objective, Update
from trinity.objectives.ledger import account
from trinity.optimizers.base import EvolutionStrategy
from trinity.tasks.task import Task


class Evolution(Objective):
    """One step is one generation: ask, play lambda x m trajectories, tell.

    All candidates see the same tasks.

    Args:
        common_random_numbers: candidates also share the uniform numbers of their choices. Measured on a
            simulated landscape: without, J stays far lower.
        max_dropped_share: a generation that loses more of its trajectories to infrastructure failures stops
            the run instead of being learned from.
    """

    def __init__(self, common_random_numbers: bool = True, max_dropped_share: float = 0.25) -> None:
        self.common_random_numbers = common_random_numbers
        self.max_dropped_share = max_dropped_share

    def step(self, arena: Arena, optimizer: Optimizer, tasks: Sequence[Task], generation: int) -> Update:
        """See `Objective.step`. `optimizer` may be wrapped by Lightning, which counts its steps."""
        strategy: Any = getattr(optimizer, "optimizer", optimizer)
        if not isinstance(strategy, EvolutionStrategy):
            raise UserError(
                f"The objective Evolution needs an evolution strategy such as SepCMAES, but the optimizer is "
                f"{type(strategy).__name__}; change model.optimizer or model.objective."
            )
        population = strategy.ask()
        results = arena.play(
            population,
            tasks,
            stage="train",
            generation=generation,
            shared_draws=self.common_random_numbers,
        )
        ledger = account(results, self.max_dropped_share)
        fitness = ledger.fitness(len(population))
        sigma = strategy.sigma

        def told() -> Tensor:
            return fitness

        optimizer.step(told)  # type: ignore[arg-type]  # torch's closure gives one loss, ours one a candidate
        metrics = {
            "J/population_mean": float(fitness.mean()),
            "J/population_best": float(fitness.max()),
            "fitness_levels": float(len(torch.unique(fitness))),
            "sigma": float(sigma),
        }
        return Update(generation, ledger, metrics)
