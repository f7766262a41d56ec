"""Transcript -> agent logits and role logits, for every candidate of a population."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cached_property, partial
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trinity.coordinator.cache import LeastRecentlyUsed
from trinity.coordinator.decisions import DecisionThread
from trinity.coordinator.encoding import Encoded, TranscriptEncoder
from trinity.coordinator.engine import Adapted, Engine, for_later
from trinity.coordinator.heads import Head, HiddenNorm, normalise_hidden, split_logits
from trinity.coordinator.parameters import ParameterLayout
from trinity.coordinator.svf import SVF

_HIDDEN_CACHE_BYTES = 2**26

Logits = NDArray[np.float64]
Adapt = Callable[..., Adapted]


class At(Protocol):
    """What the coordinator needs of a decision's position."""

    @property
    def candidate(self) -> int:
        """Index in the loaded population."""


class Candidate:
    """One candidate's head and adapted matrices, unpacked from theta."""

    def __init__(self, theta: Tensor, layout: ParameterLayout, svf: SVF | None, adapt: Adapt) -> None:
        tensors = layout.unpack(theta)
        self._svf = svf
        self._scales = tensors.pop("svf", None)
        self._adapt = adapt
        self.head = {name.removeprefix("head."): value for name, value in tensors.items()}
        # One transcript may be decided on many times: by trajectories that have not parted yet.
        self.hidden: dict[Encoded, Tensor] = {}

    @cached_property
    def adapted(self) -> Adapted:
        """What the engine needs of it; built at the first need, kept for the generation."""
        assert self._svf is not None and self._scales is not None, "nothing is adapted without SVF"
        return self._adapt(self._svf.weights(self._scales), self._svf.embed(self._scales))


class Coordinator:
    """The SVF-adapted small language model with its head.

    All torch work of decisions runs on one thread of its own, so that LLM calls in flight are not kept
    waiting by it. Of the decisions that wait, that of the longest transcript goes first: trajectories under
    way are finished before others begin, while the engine still holds what it computed of them.

    Args:
        encoder: transcript -> token ids.
        engine: token ids -> hidden state.
        svf: None where no singular-value scale is adapted.
        head: gives the function; its parameters come from theta.
        layout: theta -> head parameters and scales.
        hidden_norm: how the hidden state is scaled before the head.
    """

    def __init__(
        self,
        encoder: TranscriptEncoder,
        engine: Engine,
        svf: SVF | None,
        head: Head,
        layout: ParameterLayout,
        hidden_norm: HiddenNorm = "rms",
    ) -> None:
        self.encoder = encoder
        self.engine = engine
        self.svf = svf
        self.layout = layout
        # A copy of its own: what is played is what is deployed, whatever mode a trainer puts the module in.
        self.head = deepcopy(head).eval().requires_grad_(False)
        self.hidden_norm: HiddenNorm = hidden_norm
        self._population: list[Candidate] = []
        self._original = engine.adapt({}, tails=engine.tails())
        self._hidden = LeastRecentlyUsed[Tensor](_HIDDEN_CACHE_BYTES)
        self._thread = DecisionThread(self._decide)

    def load(self, thetas: Tensor) -> None:
        """Take a population (lambda, n) to decide for; the former one is forgotten."""
        adapt = partial(self.engine.adapt, tails=self.engine.tails())
        self._population = [Candidate(theta, self.layout, self.svf, adapt) for theta in thetas.detach().cpu()]

    async def logits(self, position: At, segments: Sequence[str]) -> tuple[Logits, Logits]:
        """Agent logits (L,) and role logits (3,) of one candidate for one transcript."""
        return await self._thread.submit((position.candidate, segments), urgency=len(segments))

    def _decide(self, request: tuple[int, Sequence[str]]) -> tuple[Logits, Logits]:
        return self.decide(*request)

    @torch.inference_mode()
    def decide(self, candidate: int, segments: Sequence[str]) -> tuple[Logits, Logits]:
        """As `logits`, on the calling thread."""
        chosen = self._population[candidate]
        # Heads are small and live where theta does, also where the language model is on a GPU.
        hidden = self.hidden(chosen, self.encoder.encode(segments)).cpu()
        z = torch.func.functional_call(self.head, chosen.head, (hidden,)).double()
        agents, roles = split_logits(z, self.head.agents)
        return agents.numpy(), roles.numpy()

    def hidden(self, candidate: Candidate, encoded: Encoded) -> Tensor:
        """The normalised hidden state (d,), kept. Without SVF it is the same for all candidates."""
        if self.svf is not None:
            if encoded not in candidate.hidden:
                hidden = self.engine.hidden(encoded, candidate.adapted)
                candidate.hidden[encoded] = normalise_hidden(hidden, self.hidden_norm)
            return candidate.hidden[encoded]
        return self.original_hidden(encoded)

    def original_hidden(self, encoded: Encoded) -> Tensor:
        """The normalised hidden state (d,) of the unadapted model, kept."""
        found = self._hidden.get(encoded)
        if found is None:
            found = self._original_hidden(encoded)
            self._hidden.put(encoded, found, found.nbytes)
        return found

    @for_later
    def _original_hidden(self, encoded: Encoded) -> Tensor:
        return normalise_hidden(self.engine.hidden(encoded, self._original), self.hidden_norm)

    def close(self) -> None:
        """End the decision thread."""
        self._thread.close()
