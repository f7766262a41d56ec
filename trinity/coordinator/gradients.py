"""Gradients of the coordinator's logits with respect to theta, through the kept trunk."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from trinity.coordinator.coordinator import Coordinator
from trinity.coordinator.engine import Adapted
from trinity.coordinator.heads import normalise_hidden, split_logits


class LogitGradients:
    """Logits of one theta for many transcripts, differentiable one after another.

    Each transcript's graph is freed by its own backward pass: what is kept between them are the gradients of
    the head's parameters and of the adapted matrices W', from which those of the scales follow in the end.
    Nothing below the SVF layer has a graph at all.

    Args:
        coordinator: whose engine, encoder and head are used.
        blocks: theta's blocks by name, as in the coordinator's layout.
    """

    def __init__(self, coordinator: Coordinator, blocks: Mapping[str, Tensor]) -> None:
        self._coordinator = coordinator
        self._leaves = {name: _leaf(block.cpu()) for name, block in blocks.items()}
        self._head = {
            name.removeprefix("head."): leaf for name, leaf in self._leaves.items() if name != "svf"
        }
        self._scales = self._leaves.get("svf")
        self._adapted_graph: list[Tensor] = []
        self._adapted_leaves: list[Tensor] = []
        self._adapted: Adapted | None = None
        if self._scales is not None and coordinator.svf is not None:
            # Two halves, scales -> W' and W' -> logits, so that the first is passed back through only once.
            weights = coordinator.svf.weights(self._scales)
            self._adapted_graph = list(weights.values())
            self._adapted_leaves = [_leaf(weight) for weight in self._adapted_graph]
            named = dict(zip(weights, self._adapted_leaves, strict=True))
            self._adapted = coordinator.engine.adapt(named, coordinator.svf.embed(self._scales))

    def logits(self, segments: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Agent logits (L,) and role logits (3,), float64, for one transcript."""
        coordinator = self._coordinator
        encoded = coordinator.encoder.encode(segments)
        if self._adapted is None:
            hidden = coordinator.original_hidden(encoded)
        else:
            hidden = normalise_hidden(
                coordinator.engine.hidden(encoded, self._adapted), coordinator.hidden_norm
            )
        z = torch.func.functional_call(coordinator.head, self._head, (hidden.cpu(),)).double()
        return split_logits(z, coordinator.head.agents)

    def gradients(self) -> dict[str, Tensor]:
        """The sum of all backward passes so far, by block of theta, on the CPU; zeros where none came."""
        if self._adapted_graph:
            reached = [
                (weight, leaf.grad)
                for weight, leaf in zip(self._adapted_graph, self._adapted_leaves, strict=True)
                if leaf.grad is not None
            ]
            if reached:
                weights, passed_on = zip(*reached, strict=True)
                torch.autograd.backward(weights, passed_on)
            self._adapted_graph = []
        return {
            name: torch.zeros_like(leaf) if leaf.grad is None else leaf.grad
            for name, leaf in self._leaves.items()
        }


def _leaf(tensor: Tensor) -> Tensor:
    return tensor.detach().clone().requires_grad_()
