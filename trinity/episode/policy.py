"""The interface of a policy, and how a choice is drawn from its logits."""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from trinity.episode.roles import Role
from trinity.errors import UserError

Selection = Literal["sample", "argmax"]
Logits = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Position:
    """Where a decision is made: which candidate decides, for which task, in which turn (from 0)."""

    candidate: int
    task_id: str
    turn: int


class Policy(Protocol):
    """Transcript -> logits. The coordinator is one; so are the baselines."""

    async def logits(self, position: Position, segments: Sequence[str]) -> tuple[Logits, Logits]:
        """Agent logits (L,) and role logits (3,) for a transcript given as its segments."""


class OneAgentEach:
    """Candidate i always asks agent i, as a Worker."""

    def __init__(self, agents: int) -> None:
        self._agents = agents

    async def logits(self, position: Position, segments: Sequence[str]) -> tuple[Logits, Logits]:
        """Certain of agent i and of the Worker."""
        agents = np.full(self._agents, -np.inf)
        agents[position.candidate] = 0.0
        roles = np.full(len(Role), -np.inf)
        roles[Role.WORKER] = 0.0
        return agents, roles


def probabilities(logits: Logits) -> Logits:
    """Softmax in float64. A logit of -inf has probability 0."""
    return np.array(_softmax(logits.tolist()))


def _softmax(logits: list[float]) -> list[float]:
    # Plain numbers: for a handful of them numpy takes ten times as long.
    top = max(logits)
    weights = [math.exp(logit - top) for logit in logits]
    total = sum(weights)
    return [weight / total for weight in weights]


def choose(logits: Logits, selection: Selection, uniform: float) -> tuple[int, float]:
    """An index and its probability. `sample` inverts the cumulative distribution at `uniform` in [0, 1).

    Raises UserError for logits that give no distribution: one is NaN or +inf, or all are -inf.
    """
    values: list[float] = logits.tolist()
    p = _softmax(values) if math.isfinite(max(values)) else [math.nan]
    if math.isnan(p[0]):
        raise UserError(
            f"A policy gave the logits {values}, from which nothing can be chosen; check the "
            "language model's dtype and the size of theta."
        )
    if selection == "argmax":
        index = values.index(max(values))
    else:
        # Rounding can leave the last sum a little off 1; scaled by it, the draw stays below it.
        cumulative = list(accumulate(p))
        index = bisect_right(cumulative, uniform * cumulative[-1])
    return index, p[index]
