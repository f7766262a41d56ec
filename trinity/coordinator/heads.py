"""Heads: hidden state -> agent logits and role logits."""

from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

ROLES = 3

HiddenNorm = Literal["rms", "l2", "none"]


class Head(nn.Module, ABC):
    """Maps a hidden state to L + 3 logits: first the agents', then the roles'.

    Args:
        hidden_size: d.
        agents: L, the size of the pool.
        roles: the number of roles.
    """

    def __init__(self, hidden_size: int, agents: int, roles: int = ROLES) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.agents = agents
        self.roles = roles

    @abstractmethod
    def forward(self, hidden: Tensor) -> Tensor:
        """Hidden states (..., d) -> logits (..., L + roles)."""


class LinearHead(Head):
    """z = W h, without a bias. W (L + 3, d) starts at zero: the untrained policy is uniform."""

    def __init__(self, hidden_size: int, agents: int, roles: int = ROLES) -> None:
        super().__init__(hidden_size, agents, roles)
        self.weight = nn.Parameter(torch.zeros(agents + roles, hidden_size))

    def forward(self, hidden: Tensor) -> Tensor:
        """See `Head.forward`."""
        return hidden @ self.weight.T


def split_logits(logits: Tensor, agents: int) -> tuple[Tensor, Tensor]:
    """Agent logits (..., L) and role logits (..., roles); each has a softmax of its own."""
    return logits[..., :agents], logits[..., agents:]


def normalise_hidden(hidden: Tensor, kind: HiddenNorm) -> Tensor:
    """Scale hidden states (..., d) to norm sqrt(d) (`rms`), to norm 1 (`l2`), or not at all; float32.

    A zero vector stays zero.
    """
    hidden = hidden.float()
    if kind == "none":
        return hidden
    unit = functional.normalize(hidden, dim=-1)
    return unit if kind == "l2" else unit * hidden.shape[-1] ** 0.5
