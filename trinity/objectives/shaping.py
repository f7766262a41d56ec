"""Additions to a candidate's fitness beside its reward, as the authors' runs are said to have used."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trinity.episode.scheduler import Graded


@dataclass(frozen=True)
class Shaping:
    """fitness = J + agent_entropy · H - turns · T, both terms in [0, 1] and off by default.

    H is the entropy of how often the candidate asked each agent over its trajectories, divided by ln L; T is
    the mean number of turns, divided by K. The loggers show J without it, and the terms apart.

    Args:
        agent_entropy: weight of H: rewards a candidate for spreading its calls.
        turns: weight of T: a price for each turn.
    """

    agent_entropy: float = 0.0
    turns: float = 0.0

    @property
    def active(self) -> bool:
        """Whether anything is added."""
        return bool(self.agent_entropy or self.turns)

    def terms(self, kept: Sequence[Graded], candidates: int, agents: int, max_turns: int) -> Tensor:
        """What is added to each candidate's fitness (candidates,)."""
        added = torch.zeros(candidates)
        for candidate in range(candidates):
            paths = [graded.trajectory for graded in kept if graded.candidate == candidate]
            asked = Counter(turn.agent for path in paths for turn in path.turns)
            calls = asked.total()
            entropy = -sum(n / calls * math.log(n / calls) for n in asked.values())
            added[candidate] = self.agent_entropy * entropy / math.log(max(agents, 2))
            added[candidate] -= self.turns * calls / len(paths) / max_turns
        return added
