"""Token ids -> the hidden state that the head reads.

SVF touches one layer. The layers below it, the **trunk**, do not depend on theta: what they give for a
transcript is computed once and shared by all candidates. The layers from the SVF layer up, the **tail**, run
for each (candidate, transcript); the last of them at the read position only.

A longer transcript extends its own prefix: the keys and values of each piece (the query, or a turn) are kept,
the trunk's for all candidates, the tail's for each. A piece always runs in one chunk with the transcript's
ending, whose own keys are then forgotten: so the same arithmetic is done whether the prefix was kept or not,
and a decision depends on (candidate, transcript) alone, to the bit.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from trinity.coordinator.cache import LeastRecentlyUsed
from trinity.coordinator.encoding import Encoded, Ids
from trinity.coordinator.layers import DecoderLayer, KeysValues, Matrix, Norm, Positions, normaliser
from trinity.coordinator.memory import keep_freed_memory
from trinity.coordinator.slm import SLM
from trinity.errors import UserError

_log = logging.getLogger(__name__)
_POSITION_ONLY_ROPE = ("default", "linear", "llama3", "yarn")
_SELF_TEST_LENGTHS = (11, 1, 7)
# The trunk's output is small beside its keys and values, and more often of use.
_OUTPUT_SHARE = 1 / 8

# One entry a layer.
Kept = list[KeysValues]
Tails = LeastRecentlyUsed[Kept]
Embed = Callable[[Tensor], Tensor]
P = ParamSpec("P")
R = TypeVar("R")


def for_later(compute: Callable[P, R]) -> Callable[P, R]:
    """Without gradients, but also within inference mode with tensors that can serve a backward pass later."""

    @wraps(compute)
    def computed(*args: P.args, **options: P.kwargs) -> R:
        with torch.inference_mode(False), torch.no_grad():
            return compute(*args, **options)

    return computed


@dataclass(frozen=True)
class EngineSettings:
    """Limits of what the engine keeps, in bytes; beyond them it computes again, with the same result.

    For a model of L layers with key and value vectors of k numbers together, a token takes 4 L k bytes in
    float32: 229 kB in Qwen3-0.6B, all but 16 kB of it in the trunk.

    Args:
        trunk_bytes: of transcripts, shared by all candidates.
        tail_bytes: of the candidates' own layers.
    """

    trunk_bytes: int = 4 * 2**30
    tail_bytes: int = 2 * 2**30

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value < 0:
                raise UserError(f"engine.{name} is {value}, but must be at least 0; 0 keeps nothing.")


@dataclass(frozen=True)
class Adapted:
    """One candidate's matrices, ready for the engine that made it.

    `weights` are the SVF layer's by parameter name, for the full forward; `matrices` all of the layer's, for
    the split one. `embed` gives the adapted embeddings of token ids, where they are adapted too. `tails` is
    where the candidate's own keys and values are kept, under `owner`.
    """

    weights: Mapping[str, Tensor]
    matrices: Mapping[str, Matrix]
    embed: Embed | None
    tails: Tails | None
    owner: object = field(default_factory=object)


class Engine:
    """Final-norm hidden state at the last of the given ids.

    An architecture whose layers this package does not reproduce is found by a numerical self-test at
    construction; it then runs through the library's own full forward, and `split` is False.

    Args:
        slm: the model.
        layer: index of the SVF layer; without SVF, any layer.
        settings: what is kept.
        full_because: a reason to use full forwards, whatever the architecture; None: there is none.
    """

    def __init__(
        self,
        slm: SLM,
        layer: int,
        settings: EngineSettings = EngineSettings(),
        full_because: str | None = None,
    ) -> None:
        if slm.device.type == "cpu":
            keep_freed_memory()
        self._slm = slm
        # The library's classes are not typed.
        self._decoder: Any = slm.decoder
        self._layer = layer
        self._tail_bytes = settings.tail_bytes
        self._outputs = LeastRecentlyUsed[Tensor](int(settings.trunk_bytes * _OUTPUT_SHARE))
        self._prefixes = LeastRecentlyUsed[Kept](int(settings.trunk_bytes * (1 - _OUTPUT_SHARE)))
        self._rope: Positions | None = None
        self._layers: list[DecoderLayer] = []
        self._norm: Norm
        self.split = True
        reason = full_because or self._unsupported()
        if reason is not None:
            _log.warning("The engine uses full forwards: %s.", reason)
            self.split = False

    def tails(self) -> Tails:
        """An empty cache of candidates' own keys and values, for `adapt`: one a population."""
        return LeastRecentlyUsed(self._tail_bytes)

    def adapt(
        self,
        weights: Mapping[str, Tensor],
        embed: Embed | None = None,
        tails: Tails | None = None,
    ) -> Adapted:
        """A candidate, from its adapted weights of the SVF layer by parameter name (empty: the original).

        Args:
            weights: differentiable or not.
            embed: token ids (T,) -> adapted embeddings (T, d).
            tails: where the candidate's own keys and values are kept, a cache that candidates may share;
                None keeps nothing, which gradients need.
        """
        if not self.split:
            return Adapted(weights, {}, embed, None)
        return Adapted({}, self._layers[self._layer].adapted(weights), None, tails)

    def hidden(self, encoded: Encoded, adapted: Adapted) -> Tensor:
        """The hidden state (d,), float32, of one transcript at its last token.

        Differentiable in the adapted weights, never in anything below the SVF layer.
        """
        return (self._tail(encoded, adapted) if self.split else self._full(encoded.ids, adapted)).float()

    def _full(self, ids: Ids, adapted: Adapted) -> Tensor:
        replaced = {f"layers.{self._layer}.{name}": weight for name, weight in adapted.weights.items()}
        tokens = self._tensor(ids)
        inputs: dict[str, Any] = {"use_cache": False}
        if adapted.embed is None:
            inputs["input_ids"] = tokens[None]
        else:
            inputs["inputs_embeds"] = adapted.embed(tokens)[None]
        output = torch.func.functional_call(self._slm.decoder, replaced, args=(), kwargs=inputs)
        return output.last_hidden_state[0, -1]  # type: ignore[no-any-return]

    def _tail(self, encoded: Encoded, adapted: Adapted) -> Tensor:
        """The SVF layer and those above it, from the longest prefix that is kept."""
        pieces, ending = encoded.pieces, encoded.ending
        past = self._kept_tails(encoded, adapted)
        for end in range(len(past) + 1, len(pieces)):
            _, kept = self._tail_chunk(pieces[:end], ending, past, adapted, read=False)
            past.append(kept)
        x, _ = self._tail_chunk(pieces, ending, past, adapted, read=True)
        return self._norm(x)[-1]

    def _kept_tails(self, encoded: Encoded, adapted: Adapted) -> list[Kept]:
        """What is kept of each piece but the last, up to the first that is missing."""
        if adapted.tails is None:
            return []
        past: list[Kept] = []
        for end in range(1, len(encoded.pieces)):
            found = adapted.tails.get((adapted.owner, encoded.ending, encoded.pieces[:end]))
            if found is None:
                break
            past.append(found)
        return past

    def _tail_chunk(
        self, pieces: tuple[Ids, ...], ending: Ids, past: list[Kept], adapted: Adapted, *, read: bool
    ) -> tuple[Tensor, Kept]:
        """The tail on the last piece, with the ending: output of the last layer where it is to be read."""
        x = self._trunk(pieces, ending)
        positions = self._positions(pieces, ending)
        kept: Kept = []
        last = len(self._layers) - 1
        for index, layer in enumerate(self._layers[self._layer :], start=self._layer):
            before = [piece[index - self._layer] for piece in past]
            matrices = adapted.matrices if index == self._layer else layer.matrices
            if index < last or read:
                x, own = layer.run(x, positions, before, matrices, last_only=index == last)
            else:
                own = layer.keys_values(x, positions, matrices)
            kept.append(own.first(len(pieces[-1])))
        if adapted.tails is not None:
            adapted.tails.put((adapted.owner, ending, pieces), kept, _nbytes(kept))
        return x, kept

    @for_later
    def _trunk(self, pieces: tuple[Ids, ...], ending: Ids) -> Tensor:
        """The trunk's output (T, d) for the last piece with the ending, behind the other pieces."""
        found = self._outputs.get((ending, pieces))
        if found is not None:
            return found
        # From the longest prefix to the shortest, so that the longest is the first to be dropped.
        known = [self._prefixes.get((ending, pieces[:end])) for end in range(len(pieces) - 1, 0, -1)]
        past: list[Kept] = []
        for end, kept in enumerate(reversed(known), start=1):
            past.append(self._trunk_chunk(pieces[:end], ending, past)[1] if kept is None else kept)
        return self._trunk_chunk(pieces, ending, past)[0]

    def _trunk_chunk(self, pieces: tuple[Ids, ...], ending: Ids, past: list[Kept]) -> tuple[Tensor, Kept]:
        x = self._decoder.embed_tokens(self._tensor(pieces[-1] + ending))
        positions = self._positions(pieces, ending)
        kept: Kept = []
        for index, layer in enumerate(self._layers[: self._layer]):
            x, own = layer.run(x, positions, [piece[index] for piece in past], layer.matrices)
            kept.append(own.first(len(pieces[-1])))
        self._outputs.put((ending, pieces), x, x.nbytes)
        self._prefixes.put((ending, pieces), kept, _nbytes(kept))
        return x, kept

    def _positions(self, pieces: tuple[Ids, ...], ending: Ids) -> Positions:
        """The positions of the last piece and the ending."""
        start = sum(len(piece) for piece in pieces[:-1])
        end = start + len(pieces[-1]) + len(ending)
        if self._rope is None or len(self._rope.cosines) < end:
            self._rope = self._all_positions(max(256, 2 * end))
        return self._rope.stretch(start, end)

    @for_later
    def _all_positions(self, length: int) -> Positions:
        probe = self._decoder.embed_tokens(self._tensor((0,)))
        cosines, sines = self._decoder.rotary_emb(probe, torch.arange(length, device=self._slm.device)[None])
        half = sines.shape[-1] // 2
        signed = torch.cat((-sines[..., :half], sines[..., half:]), dim=-1)
        return Positions(cosines[0, :, None], signed[0, :, None])

    def _tensor(self, ids: Ids) -> Tensor:
        return torch.tensor(ids, device=self._slm.device)

    def _unsupported(self) -> str | None:
        """Why the split can't be used, or None: what a short test can't show, then the test."""
        config = self._decoder.config
        kinds = set(getattr(config, "layer_types", None) or ["full_attention"])
        window = getattr(config, "sliding_window", None) is not None
        if kinds != {"full_attention"} or (window and getattr(config, "use_sliding_window", True)):
            return f"{self._slm.name} attends within a window"
        rope = (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default")
        if rope not in _POSITION_ONLY_ROPE:
            return f"{self._slm.name} uses {rope!r} rotary positions, which depend on more than the position"
        try:
            self._layers = [DecoderLayer(layer) for layer in self._decoder.layers]
            self._norm = normaliser(self._decoder.norm)
            with torch.no_grad():
                probe = self._probe(config.vocab_size)
                plain = self._full(probe.ids, Adapted({}, {}, None, None)).float()
                split = self._tail(probe, self.adapt({})).float()
        except (AttributeError, RuntimeError, TypeError) as error:
            return f"the layers of {self._slm.name} are of an unknown kind ({error})"
        difference = float((plain - split).norm() / plain.norm())
        limit = 1e-4 if plain.dtype == self._slm.dtype else 3e-2
        if not difference <= limit:
            return f"the split of {self._slm.name} differs from its full forward by {difference:.1e}"
        return None

    @staticmethod
    def _probe(vocabulary: int) -> Encoded:
        """A transcript of several pieces."""
        ids = iter(range(7, 7 + sum(_SELF_TEST_LENGTHS)))
        pieces = [tuple(next(ids) % vocabulary for _ in range(length)) for length in _SELF_TEST_LENGTHS]
        return Encoded(tuple(pieces[:-1]), pieces[-1])


def _nbytes(kept: Kept) -> int:
    return sum(layer.nbytes for layer in kept)
