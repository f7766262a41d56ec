"""What tests of several strategies share."""

import io
from typing import Any

import torch
from torch import Tensor

from trinity.optimizers.base import EvolutionStrategy


def with_ties(strategy: EvolutionStrategy) -> Tensor:
    """A fitness with ties whose values depend on the candidate and the generation only."""
    return -(strategy.ask() - 0.3 * strategy.generation).square().sum(dim=1).mul(4).round().div(4)


def run(strategy: EvolutionStrategy, generations: int) -> list[Tensor]:
    """The mean after each generation."""
    means = []
    for _ in range(generations):
        strategy.step(lambda: with_ties(strategy))
        means.append(strategy.mean)
    return means


def through_file(state: dict[str, Any]) -> dict[str, Any]:
    """Saved and loaded as a checkpoint is: tensors and plain values alone."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded
