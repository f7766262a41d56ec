"""A decoder layer of the Llama and Qwen kind, computed chunk by chunk behind kept keys and values."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

Matrix = Callable[[Tensor], Tensor]
Norm = Callable[[Tensor], Tensor]

# Below this many entries the packed kernel's own overhead outweighs what it saves.
_PACKED_FROM = 2**18


class KeysValues(NamedTuple):
    """Rotated keys and values of a stretch of positions, each (T, key heads, head dim)."""

    keys: Tensor
    values: Tensor

    @property
    def nbytes(self) -> int:
        """Bytes of both."""
        return self.keys.nbytes + self.values.nbytes

    def first(self, length: int) -> "KeysValues":
        """Those of the first positions."""
        return KeysValues(self.keys[:length], self.values[:length])


class Positions(NamedTuple):
    """Rotary embedding of a stretch of positions: cosines and signed sines, each (T, 1, head dim).

    The sines of the first half carry the minus sign of the rotation.
    """

    cosines: Tensor
    sines: Tensor

    def stretch(self, start: int, end: int) -> "Positions":
        """Those from `start` up to `end`."""
        return Positions(self.cosines[start:end], self.sines[start:end])

    def rotate(self, x: Tensor) -> Tensor:
        """(T, heads, head dim), rotated; halves are paired as in GPT-NeoX and Llama."""
        return torch.addcmul(x * self.cosines, x.roll(x.shape[-1] // 2, dims=-1), self.sines)


class DecoderLayer:
    """The parts of a decoder layer, looked up once: in a small model look-ups cost as much as arithmetic.

    Raises AttributeError for a layer of another kind.
    """

    def __init__(self, layer: Any) -> None:
        attention = layer.self_attn
        self._norms = normaliser(layer.input_layernorm), normaliser(layer.post_attention_layernorm)
        self._head_norms = None
        if hasattr(attention, "q_norm"):
            self._head_norms = normaliser(attention.q_norm), normaliser(attention.k_norm)
        self._biases: dict[str, Tensor | None] = {}
        self.matrices: dict[str, Matrix] = {}
        for part, names in (("self_attn", "qkvo"), ("mlp", ("gate", "up", "down"))):
            for name in (f"{part}.{name}_proj" for name in names):
                linear = layer.get_submodule(name)
                self._biases[name] = linear.bias
                self.matrices[name] = multiplier(linear.weight, linear.bias)
        self._activation = layer.mlp.act_fn
        self._head_dim: int = attention.head_dim
        self._scale: float = attention.scaling

    def adapted(self, weights: Mapping[str, Tensor]) -> dict[str, Matrix]:
        """All matrices of the layer, those replaced whose weights (by parameter name) are given.

        Differentiable in these weights; where they need no gradient, not in the layer's input either.
        """
        given = {name.removesuffix(".weight"): weight for name, weight in weights.items()}
        return self.matrices | {
            name: multiplier(weight, self._biases[name], keep=False) for name, weight in given.items()
        }

    def run(
        self,
        x: Tensor,
        positions: Positions,
        past: list[KeysValues],
        matrices: Mapping[str, Matrix],
        *,
        last_only: bool = False,
    ) -> tuple[Tensor, KeysValues]:
        """A chunk (T, d) behind what is past -> its output (T, d), and its own keys and values.

        With `last_only` the output is (1, d), that of the last position.
        """
        normed = self._norms[0](x)
        own = self._keys_values(normed, positions, matrices)
        if last_only:
            x, normed = x[-1:], normed[-1:]
            positions = positions.stretch(len(positions.cosines) - 1, len(positions.cosines))
        queries = self._heads(matrices["self_attn.q_proj"](normed))
        if self._head_norms is not None:
            queries = self._head_norms[0](queries)
        keys = torch.cat([*(p.keys for p in past), own.keys]) if past else own.keys
        values = torch.cat([*(p.values for p in past), own.values]) if past else own.values
        x = x + matrices["self_attn.o_proj"](
            self._attend(positions.rotate(queries), keys, values, bool(past))
        )
        normed = self._norms[1](x)
        gate = self._activation(matrices["mlp.gate_proj"](normed))
        return x + matrices["mlp.down_proj"](gate * matrices["mlp.up_proj"](normed)), own

    def keys_values(self, x: Tensor, positions: Positions, matrices: Mapping[str, Matrix]) -> KeysValues:
        """The keys and values of a chunk (T, d) alone."""
        return self._keys_values(self._norms[0](x), positions, matrices)

    def _keys_values(
        self, normed: Tensor, positions: Positions, matrices: Mapping[str, Matrix]
    ) -> KeysValues:
        keys = self._heads(matrices["self_attn.k_proj"](normed))
        if self._head_norms is not None:
            keys = self._head_norms[1](keys)
        return KeysValues(positions.rotate(keys), self._heads(matrices["self_attn.v_proj"](normed)))

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor, has_past: bool) -> Tensor:
        """Queries at the last positions of the keys -> (queries, heads x head dim)."""
        asked, there = len(queries), len(keys)
        mask = None
        if has_past and asked > 1:
            # The library's own causal mask is aligned at the first key, not at the last.
            mask = torch.full((asked, there), -torch.inf, dtype=queries.dtype, device=queries.device)
            mask = mask.triu(there - asked + 1)
        mixed = functional.scaled_dot_product_attention(
            queries.transpose(0, 1)[None],
            keys.transpose(0, 1)[None],
            values.transpose(0, 1)[None],
            attn_mask=mask,
            is_causal=not has_past and asked > 1,
            scale=self._scale,
            enable_gqa=True,
        )
        return mixed[0].transpose(0, 1).flatten(1)

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(len(x), -1, self._head_dim)


def normaliser(norm: Any) -> Norm:
    """A layer's normalisation; in float32, for an RMS norm as Llama and Qwen write it, in fewer steps.

    torch composes its own of twice as many, which in a small model were a quarter of a decision.
    """
    if not hasattr(norm, "variance_epsilon"):
        return norm  # type: ignore[no-any-return]
    weight: Tensor = norm.weight
    epsilon = torch.tensor(norm.variance_epsilon, device=weight.device)

    def normalise(x: Tensor) -> Tensor:
        if x.dtype != torch.float32:
            return functional.rms_norm(x, weight.shape, weight, norm.variance_epsilon)
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        mean_square = torch.addcmul(epsilon, length, length, value=1 / x.shape[-1])
        return (x * weight).mul_(mean_square.rsqrt_())

    return normalise


def multiplier(weight: Tensor, bias: Tensor | None, *, keep: bool = True) -> Matrix:
    """x (T, in) -> x W^T + b, W (out, in).

    Differentiable in x, unless `keep` is False: then a packed matrix lets go of the plain one.

    On a CPU a large float32 matrix that needs no gradient is packed once for oneDNN's kernel: measured at
    Qwen3-0.6B's sizes, 1.2 to 1.3 times as fast as torch's own for chunks of 170 to 250 positions, and 4
    times for a handful of them.
    """
    packable = weight.device.type == "cpu" and weight.dtype == torch.float32 and not weight.requires_grad
    if not packable or weight.numel() < _PACKED_FROM or not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return lambda x: functional.linear(x, weight, bias)
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach(), None)
    fused = torch.ops.mkldnn._linear_pointwise

    plain = weight if keep else None

    def multiply(x: Tensor) -> Tensor:
        # The packed kernel has no backward pass.
        if plain is not None and x.requires_grad:
            return functional.linear(x, plain, bias)
        return fused(x, packed, bias, "none", [], "")  # type: ignore[no-any-return]

    return multiply
