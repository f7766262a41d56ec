"""Token ids -> the hidden state that the head reads.

SVF touches one layer. The layers below it, the **trunk**, do not depend on theta: their output is computed
once for each distinct transcript and shared by all candidates. The layers from the SVF layer up, the
**tail**, run for each (candidate, transcript); the last of them is computed at the read position only. One
unpadded sequence at a time, so that what else is in flight never changes a decision.
"""

import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trinity.coordinator.slm import SLM

_log = logging.getLogger(__name__)
_POSITION_ONLY_ROPE = ("default", "linear", "llama3", "yarn")
_SELF_TEST_LENGTH = 24

Ids = tuple[int, ...]
Weights = Mapping[str, Tensor]


class LeastRecentlyUsed:
    """Tensors by key, the least recently used ones dropped beyond a limit in bytes."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._bytes = 0
        self._entries: OrderedDict[Ids, Tensor] = OrderedDict()

    def get(self, key: Ids) -> Tensor | None:
        """The tensor, which then counts as just used, or None."""
        if key in self._entries:
            self._entries.move_to_end(key)
        return self._entries.get(key)

    def put(self, key: Ids, value: Tensor) -> None:
        """Keep a tensor; older ones go where there is no room."""
        self._entries[key] = value
        self._bytes += value.nbytes
        while self._bytes > self._limit and self._entries:
            _, dropped = self._entries.popitem(last=False)
            self._bytes -= dropped.nbytes


class Engine:
    """Final-norm hidden state at the last of the given ids.

    An architecture whose layers this file does not reproduce is found by a numerical self-test at
    construction; it then runs through the library's own full forward, and `split` is False.

    Args:
        slm: the model.
        layer: index of the SVF layer; without SVF, any layer.
        cache_bytes: limit of the trunk's cache.
        split: False asks for the full forward.
    """

    def __init__(self, slm: SLM, layer: int, cache_bytes: int = 2**28, split: bool = True) -> None:
        self._slm = slm
        # The library's classes are not typed.
        self._decoder: Any = slm.decoder
        self._layer = layer
        self._trunks = LeastRecentlyUsed(cache_bytes)
        self._rope: tuple[Tensor, Tensor] | None = None
        self._layers: list[_Layer] = []
        self.split = split
        reason = self._unsupported() if split else None
        if reason is not None:
            _log.warning("The engine uses full forwards: %s.", reason)
            self.split = False

    def hidden(self, ids: Ids, weights: Weights) -> Tensor:
        """The hidden state (d,), float32, of one sequence.

        Differentiable in `weights`, never in anything below the SVF layer.

        Args:
            ids: token ids; the last one is the read position.
            weights: adapted matrices of the SVF layer, by their name in it; empty for the original ones.
        """
        return (self._tail(ids, weights) if self.split else self._full(ids, weights)).float()

    def _full(self, ids: Ids, weights: Weights) -> Tensor:
        replaced = {f"layers.{self._layer}.{name}": weight for name, weight in weights.items()}
        inputs = {"input_ids": self._tensor(ids)[None], "use_cache": False}
        output = torch.func.functional_call(self._slm.decoder, replaced, args=(), kwargs=inputs)
        return output.last_hidden_state[0, -1]  # type: ignore[no-any-return]

    def _tail(self, ids: Ids, weights: Weights) -> Tensor:
        x = self._trunk(ids)
        rope = self._positions(len(ids))
        last = len(self._layers) - 1
        for index in range(self._layer, last + 1):
            changed = weights if index == self._layer else {}
            x = self._layers[index].run(x, rope, changed, last_only=index == last)
        return _normalise(self._decoder.norm, x)[-1]

    def _trunk(self, ids: Ids) -> Tensor:
        found = self._trunks.get(ids)
        if found is not None:
            return found
        # Not inference_mode: such tensors could not serve a backward pass later.
        with torch.no_grad():
            x = self._decoder.embed_tokens(self._tensor(ids))
            rope = self._positions(len(ids))
            for layer in self._layers[: self._layer]:
                x = layer.run(x, rope, {}, last_only=False)
        self._trunks.put(ids, x)
        return x  # type: ignore[no-any-return]

    def _positions(self, length: int) -> tuple[Tensor, Tensor]:
        """Cosines and signed sines (length, 1, head_dim) of the rotary embedding, as `_rotate` takes them."""
        if self._rope is None or len(self._rope[0]) < length:
            with torch.no_grad():
                room = max(256, 2 * length)
                probe = self._decoder.embed_tokens(self._tensor((0,)))
                positions = torch.arange(room, device=self._slm.device)[None]
                cosines, sines = self._decoder.rotary_emb(probe, positions)
                half = sines.shape[-1] // 2
                signed = torch.cat((-sines[..., :half], sines[..., half:]), dim=-1)
            self._rope = cosines[0, :, None], signed[0, :, None]
        return self._rope[0][:length], self._rope[1][:length]

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
            self._layers = [_Layer(layer) for layer in self._decoder.layers]
            with torch.no_grad():
                ids = tuple(int(i) for i in torch.arange(7, 7 + _SELF_TEST_LENGTH) % config.vocab_size)
                plain, split = self._full(ids, {}).float(), self._tail(ids, {}).float()
        except (AttributeError, RuntimeError, TypeError) as error:
            return f"the layers of {self._slm.name} are of an unknown kind ({error})"
        difference = float((plain - split).norm() / plain.norm())
        limit = 1e-4 if plain.dtype == self._slm.dtype else 3e-2
        if not difference <= limit:
            return f"the split of {self._slm.name} differs from its full forward by {difference:.1e}"
        return None


class _Layer:
    """The parts of a decoder layer, looked up once: in a small model look-ups cost as much as arithmetic.

    Raises AttributeError for a layer of another kind.
    """

    def __init__(self, layer: Any) -> None:
        attention = layer.self_attn
        self._norms = layer.input_layernorm, layer.post_attention_layernorm
        self._head_norms = (attention.q_norm, attention.k_norm) if hasattr(attention, "q_norm") else None
        self._linear: dict[str, nn.Linear] = {
            f"{part}.{name}": getattr(getattr(layer, part), name)
            for part, names in (("self_attn", "qkvo"), ("mlp", ("gate", "up", "down")))
            for name in (f"{name}_proj" for name in names)
        }
        self._activation = layer.mlp.act_fn
        self._head_dim: int = attention.head_dim
        self._scale: float = attention.scaling

    def run(self, x: Tensor, rope: tuple[Tensor, Tensor], weights: Weights, *, last_only: bool) -> Tensor:
        """(T, d) -> (T, d); with `last_only` the output (1, d) at the last position."""
        normed = _normalise(self._norms[0], x)
        asking = slice(-1, None) if last_only else slice(None)
        queries = self._heads("self_attn.q_proj", normed[asking], weights)
        keys = self._heads("self_attn.k_proj", normed, weights)
        values = self._heads("self_attn.v_proj", normed, weights)
        if self._head_norms is not None:
            queries = _normalise(self._head_norms[0], queries)
            keys = _normalise(self._head_norms[1], keys)
        cosines, sines = rope
        mixed = functional.scaled_dot_product_attention(
            _rotate(queries, cosines[asking], sines[asking]).transpose(0, 1)[None],
            _rotate(keys, cosines, sines).transpose(0, 1)[None],
            values.transpose(0, 1)[None],
            is_causal=not last_only,
            scale=self._scale,
            enable_gqa=True,
        )
        x = x[asking] + self._apply("self_attn.o_proj", mixed[0].transpose(0, 1).flatten(1), weights)
        normed = _normalise(self._norms[1], x)
        gate = self._activation(self._apply("mlp.gate_proj", normed, weights))
        return x + self._apply("mlp.down_proj", gate * self._apply("mlp.up_proj", normed, weights), weights)

    def _apply(self, name: str, value: Tensor, weights: Weights) -> Tensor:
        module = self._linear[name]
        weight = weights.get(f"{name}.weight")
        return functional.linear(value, module.weight if weight is None else weight, module.bias)

    def _heads(self, name: str, value: Tensor, weights: Weights) -> Tensor:
        return self._apply(name, value, weights).view(len(value), -1, self._head_dim)


def _normalise(norm: Any, x: Tensor) -> Tensor:
    """A layer's normalisation; the fused kernel where it is an RMS norm as Llama and Qwen write it."""
    if hasattr(norm, "variance_epsilon"):
        return functional.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)
    normed: Tensor = norm(x)
    return normed


def _rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Rotary position embedding of (T, heads, head_dim), halves paired as in GPT-NeoX and Llama.

    The sines of the first half carry the minus sign of the rotation.
    """
    return torch.addcmul(x * cosines, x.roll(x.shape[-1] // 2, dims=-1), sines)
