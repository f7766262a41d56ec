"""theta <-> (head parameters, singular-value scales)."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor

from trinity.errors import UserError


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of theta that is one tensor. `scale` is its unit: theta = start + scale x x."""

    name: str
    shape: tuple[int, ...]
    scale: float = 1.0

    @property
    def size(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape)


class ParameterLayout:
    """Where each block lies in theta.

    Args:
        blocks: in theta's order.
    """

    def __init__(self, blocks: tuple[Block, ...]) -> None:
        self.blocks = blocks

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], scales: Mapping[str, float]) -> "ParameterLayout":
        """The layout of named tensors, in their order."""
        return cls(tuple(Block(name, tuple(t.shape), scales.get(name, 1.0)) for name, t in tensors.items()))

    @property
    def n(self) -> int:
        """The length of theta."""
        return sum(block.size for block in self.blocks)

    def pack(self, tensors: Mapping[str, Tensor]) -> Tensor:
        """Tensors by block name -> theta (n,). Raises UserError for a tensor of another shape."""
        for block in self.blocks:
            if tuple(tensors[block.name].shape) != block.shape:
                raise UserError(
                    f"The parameter {block.name!r} has the shape {tuple(tensors[block.name].shape)}, but "
                    f"this configuration needs {block.shape}; use the configuration it was trained with."
                )
        return torch.cat([tensors[block.name].reshape(-1) for block in self.blocks])

    def unpack(self, theta: Tensor) -> dict[str, Tensor]:
        """theta (n,) -> views of it by block name. Raises UserError for another length."""
        if theta.shape != (self.n,):
            raise UserError(
                f"theta holds {theta.numel()} numbers, but this configuration needs {self.n}; use the "
                "configuration it was trained with."
            )
        pieces = torch.split(theta, [block.size for block in self.blocks])
        return {block.name: piece.view(block.shape) for block, piece in zip(self.blocks, pieces, strict=True)}

    def scales(self) -> Tensor:
        """Each coordinate's unit (n,)."""
        return torch.cat([torch.full((block.size,), block.scale) for block in self.blocks])

    def describe(self) -> str:
        """E.g. `theta: n = 13,312 = head.weight 6,144 + svf 7,168`."""
        parts = " + ".join(f"{block.name} {block.size:,}" for block in self.blocks)
        return f"theta: n = {self.n:,} = {parts}"
