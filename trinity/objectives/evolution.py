"""The evolution strategy's objective: fitness = mean binary reward of whole trajectories."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from trinity.episode.scheduler import Failure, Graded
from trinity.errors import UserError
from trinity.objectives.base import Arena, Objective, Plan, Update, unwrapped
from trinity.objectives.ledger import account
from trinity.objectives.shaping import Shaping
from trinity.optimizers.base import EvolutionStrategy
from trinity.tasks.task import Task


class Evolution(Objective):
    """One step is one generation: ask, play lambda x m trajectories, tell.

    All candidates see the same tasks.

    Args:
        common_random_numbers: candidates also share the uniform numbers of their choices, so that chance
            parts them less. What that is worth depends on the landscape: docs/JOURNAL.md.
        max_dropped_share: a generation that loses more of its trajectories to infrastructure failures stops
            the run instead of being learned from.
        again: so many of the best candidates play the minibatch once more, with choices drawn anew, and their
            fitness is the mean of both: a candidate that was only lucky falls back. Costs `again` x m
            trajectories a generation.
        shaping: additions to the fitness; none by default.
    """

    def __init__(
        self,
        common_random_numbers: bool = True,
        max_dropped_share: float = 0.25,
        again: int = 0,
        shaping: Shaping = Shaping(),  # noqa: B008 - frozen
    ) -> None:
        if again < 0:
            raise UserError(f"objective.again is {again}, but must be at least 0; 0 repeats nothing.")
        self.common_random_numbers = common_random_numbers
        self.max_dropped_share = max_dropped_share
        self.again = again
        self.shaping = shaping

    def planned(self, plan: Plan) -> int:
        """See `Objective.planned`."""
        return plan.steps * plan.minibatch * (plan.population + min(self.again, plan.population))

    def step(self, arena: Arena, optimizer: Optimizer, tasks: Sequence[Task], generation: int) -> Update:
        """See `Objective.step`. `optimizer` may be wrapped by Lightning, which counts its steps."""
        strategy: Any = unwrapped(optimizer)
        if not isinstance(strategy, EvolutionStrategy):
            raise UserError(
                f"The objective Evolution needs an evolution strategy such as SepCMAES, but the optimizer is "
                f"{type(strategy).__name__}; change model.optimizer or model.objective."
            )
        population = strategy.ask()
        results = self._play(arena, population, tasks, "train", generation)
        first = account(results, self.max_dropped_share).fitness(len(population))
        if self.again:
            best = torch.argsort(first, descending=True, stable=True)[: self.again]
            repeated = self._play(arena, population[best], tasks, "again", generation)
            results += [_as_candidate(result, int(best[result.candidate])) for result in repeated]
        ledger = account(results, self.max_dropped_share)
        j = ledger.fitness(len(population))
        fitness = j
        metrics = {
            "J/population_mean": float(first.mean()),
            "J/population_best": float(j.max()),
            "fitness_levels": float(len(torch.unique(j))),
            "sigma": float(strategy.sigma),
        }
        if self.shaping.active:
            added = self.shaping.terms(ledger.kept, len(population), arena.agents, arena.episode.max_turns)
            fitness = j + added
            metrics["shaping/mean"] = float(added.mean())

        def told() -> Tensor:
            return fitness

        optimizer.step(told)  # type: ignore[arg-type]  # torch's closure gives one loss, ours one a candidate
        return Update(generation, ledger, metrics)

    def _play(
        self, arena: Arena, population: Tensor, tasks: Sequence[Task], stage: str, generation: int
    ) -> list[Graded | Failure]:
        return arena.play(
            population,
            tasks,
            stage=stage,
            generation=generation,
            shared_draws=self.common_random_numbers,
        )


def _as_candidate(result: Graded | Failure, candidate: int) -> Graded | Failure:
    """A result of the repeated best, by its index in the whole population."""
    if isinstance(result, Failure):
        return replace(result, candidate=candidate)
    return replace(result, trajectory=replace(result.trajectory, candidate=candidate))
