"""Heads: hidden state -> agent logits and role logits."""

import math
from abc import ABC, abstractmethod
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from trinity import keyed
from trinity.errors import UserError

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

    def anneal(self, progress: float, step: int) -> None:
        """Hear before each training step how far training is: 0 at the start, 1 at its end."""


class LinearHead(Head):
    """z = W h, without a bias. W (L + 3, d) starts at zero: the untrained policy is uniform."""

    def __init__(self, hidden_size: int, agents: int, roles: int = ROLES) -> None:
        super().__init__(hidden_size, agents, roles)
        self.weight = nn.Parameter(torch.zeros(agents + roles, hidden_size))

    def forward(self, hidden: Tensor) -> Tensor:
        """See `Head.forward`."""
        return hidden @ self.weight.T


class LowRankHead(Head):
    """z = V ELU(U h), α = 0.1, U (r, d), V (L + 3, r) (arXiv 2512.04695, equations 6 to 8, with σ = 1).

    U and V start Xavier-uniform with the gains 1 and √3: U within ±√(6 / (d + r)), V within
    ±√(18 / (r + L + 3)). So that the untrained policy is uniform all the same, what the initial matrices give
    is subtracted from the logits.

    Args:
        hidden_size: d.
        agents: L.
        roles: the number of roles.
        rank: r; None is 2 (L + 3), which is what the paper's count of 20,680 parameters at d = 1024 and
            L + 3 = 10 takes. Its text says 14, which makes 14,476.
    """

    def __init__(self, hidden_size: int, agents: int, roles: int = ROLES, rank: int | None = None) -> None:
        super().__init__(hidden_size, agents, roles)
        outputs = agents + roles
        r = 2 * outputs if rank is None else rank
        if r < 1:
            raise UserError(f"The low-rank head's rank is {r}, but must be at least 1.")
        generator = torch.Generator().manual_seed(0)  # the global one is left as it was
        down, up = torch.empty(r, hidden_size), torch.empty(outputs, r)
        nn.init.xavier_uniform_(down, gain=1.0, generator=generator)
        nn.init.xavier_uniform_(up, gain=3**0.5, generator=generator)
        self.down = nn.Parameter(down)
        self.up = nn.Parameter(up)
        # No buffers: candidates' parameters are on the CPU whatever the module's device.
        self._initial = down.clone(), up.clone()

    def forward(self, hidden: Tensor) -> Tensor:
        """See `Head.forward`."""
        start_down, start_up = (tensor.to(hidden.device) for tensor in self._initial)
        return self._raw(hidden, self.down, self.up) - self._raw(hidden, start_down, start_up)

    @staticmethod
    def _raw(hidden: Tensor, down: Tensor, up: Tensor) -> Tensor:
        return functional.elu(hidden @ down.T, alpha=0.1) @ up.T


class SparseHead(Head):
    """z = W (h ⊙ α), where α selects k of the d dimensions (arXiv 2512.04695, equations 9 to 11).

    k = max(1, ⌊d (1 - sigmoid(ρ))⌋) with a learnable density logit ρ, and the k dimensions are those with the
    highest learnable scores s. Decisions use that hard selection, also in training: what is played is what is
    deployed. Gradients pass it as if it were k softmax(s / τ). An objective that trains on labels switches
    the module to `train()`: then α itself is k softmax((s + ε) / τ) with Gumbel noise ε, one draw a step, and
    the temperature τ falls from 20 to 1 (`anneal`), times a learnable factor, within [1, 20].

    d (L + 3) + d + 2 parameters: W, s, τ's factor, ρ. W starts at zero, ρ at 0, half of the dimensions.
    """

    _HOTTEST = 20.0

    def __init__(self, hidden_size: int, agents: int, roles: int = ROLES) -> None:
        super().__init__(hidden_size, agents, roles)
        self.weight = nn.Parameter(torch.zeros(agents + roles, hidden_size))
        self.scores = nn.Parameter(torch.zeros(hidden_size))
        self.log_temperature = nn.Parameter(torch.zeros(()))
        self.sparsity = nn.Parameter(torch.zeros(()))
        self._progress, self._step = 0.0, 0

    def anneal(self, progress: float, step: int) -> None:
        """See `Head.anneal`."""
        self._progress, self._step = progress, step

    @property
    def temperature(self) -> Tensor:
        """τ, at this stage of training."""
        scheduled: float = self._HOTTEST ** (1 - self._progress)
        return (scheduled * self.log_temperature.exp()).clamp(1.0, self._HOTTEST)

    def forward(self, hidden: Tensor) -> Tensor:
        """See `Head.forward`."""
        return (hidden * self.selection()) @ self.weight.T

    def selection(self) -> Tensor:
        """α (d,)."""
        if self.training:
            drawn = keyed.generator("gumbel", self._step).gumbel(size=self.hidden_size)
            return self._soft(self.scores + torch.tensor(drawn, dtype=torch.float32).to(self.scores.device))
        hard = self._hard()
        if not torch.is_grad_enabled():
            return hard
        soft = self._soft(self.scores)
        return hard + (soft - soft.detach())

    def _density(self) -> Tensor:
        return self.hidden_size * torch.sigmoid(-self.sparsity)

    def _soft(self, scores: Tensor) -> Tensor:
        return self._density() * torch.softmax(scores / self.temperature, dim=0)

    @torch.no_grad()
    def _hard(self) -> Tensor:
        k = max(1, math.floor(float(self._density())))
        chosen = torch.argsort(self.scores, descending=True, stable=True)[:k]
        return torch.zeros_like(self.scores).index_fill_(0, chosen, 1.0)


class BlockDiagonalHead(Head):
    """z = [W_1 h_1; ...; W_B h_B]: each block of outputs reads a stretch of h of its own
    (arXiv 2512.04695, equation 12).

    Block i has a_i = min(⌈(L + 3) / B⌉, what is left) outputs and ⌊a_i d / (L + 3)⌋ dimensions, the last one
    what is left of these; with a block for each output the dimensions are dealt out as evenly as possible.
    Together they hold about d (L + 3) / B parameters, which start at zero.

    Args:
        hidden_size: d.
        agents: L.
        roles: the number of roles.
        blocks: B; None is one block for each output ("block-diagonal-10" where L + 3 = 10), which the paper
            combines with argmax in place of sampling.
    """

    def __init__(self, hidden_size: int, agents: int, roles: int = ROLES, blocks: int | None = 2) -> None:
        super().__init__(hidden_size, agents, roles)
        outputs = agents + roles
        count = outputs if blocks is None else blocks
        each = math.ceil(outputs / count) if count > 0 else 0
        sizes = [max(0, min(each, outputs - i * each)) for i in range(count)]
        if count > hidden_size or min(sizes, default=0) < 1:
            raise UserError(
                f"The block-diagonal head's blocks is {count}, but {outputs} outputs of {hidden_size} "
                "dimensions can't be parted so; choose 2, or null for one block each."
            )
        if count == outputs:
            self.stretches = [hidden_size // count + (i < hidden_size % count) for i in range(count)]
        else:
            self.stretches = [size * hidden_size // outputs for size in sizes[:-1]]
            self.stretches.append(hidden_size - sum(self.stretches))
        self.blocks = nn.ParameterList(
            nn.Parameter(torch.zeros(rows, columns))
            for rows, columns in zip(sizes, self.stretches, strict=True)
        )

    def forward(self, hidden: Tensor) -> Tensor:
        """See `Head.forward`."""
        parts = torch.split(hidden, self.stretches, dim=-1)
        return torch.cat([part @ block.T for part, block in zip(parts, self.blocks, strict=True)], dim=-1)


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
