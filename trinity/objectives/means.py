"""Means over trajectories, whichever process played them."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torchmetrics import Metric

from trinity.episode.roles import Role
from trinity.episode.scheduler import Graded

_SUMS = ("trajectories", "reward", "accepted", "turns", "agent_probability", "role_probability")


class TrajectoryMeans(Metric):
    """J and what the policy did, as means over graded trajectories or their turns, by log tag.

    Each process of a distributed run updates it with trajectories of its own; `compute` adds up over all of
    them (TorchMetrics). Tags: `J`, `turns` and `accepted_share` a trajectory; `confidence/agent`,
    `confidence/role`, `agent_share/*`, `role_share/*` a turn. Without a trajectory there are none.

    Args:
        agents: names of the pool's agents.
    """

    full_state_update = False

    trajectories: Tensor
    reward: Tensor
    accepted: Tensor
    turns: Tensor
    agent_probability: Tensor
    role_probability: Tensor
    asked: Tensor
    played: Tensor

    def __init__(self, agents: Sequence[str]) -> None:
        super().__init__()
        self.agents = list(agents)
        for name in _SUMS:
            self.add_state(name, torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("asked", torch.zeros(len(self.agents), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("played", torch.zeros(len(Role), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, graded: Sequence[Graded]) -> None:
        """Add trajectories."""
        turns = [turn for one in graded for turn in one.trajectory.turns]
        self.trajectories += len(graded)
        self.reward += sum(one.reward for one in graded)
        self.accepted += sum(one.trajectory.stop == "accepted" for one in graded)
        self.turns += len(turns)
        self.agent_probability += sum(turn.agent_probability for turn in turns)
        self.role_probability += sum(turn.role_probability for turn in turns)
        for counts, chosen in (
            (self.asked, [turn.agent for turn in turns]),
            (self.played, [int(turn.role) for turn in turns]),
        ):
            counts += torch.bincount(torch.tensor(chosen, dtype=torch.int64), minlength=len(counts)).to(
                counts.device
            )

    def compute(self) -> dict[str, float]:
        """The means."""
        trajectories, turns = float(self.trajectories), float(self.turns)
        if not trajectories:
            return {}
        shares = {
            **{f"agent_share/{a}": n for a, n in zip(self.agents, self._share(self.asked), strict=True)},
            **{f"role_share/{r.title}": n for r, n in zip(Role, self._share(self.played), strict=True)},
        }
        return {
            "J": float(self.reward) / trajectories,
            "turns": turns / trajectories,
            "accepted_share": float(self.accepted) / trajectories,
            # Rounded, as the sums' last bits depend on which process added what.
            "confidence/agent": round(float(self.agent_probability) / turns, 9),
            "confidence/role": round(float(self.role_probability) / turns, 9),
            **shares,
        }

    def _share(self, counts: Tensor) -> list[float]:
        return [float(n) for n in counts / self.turns]
