"""What the benchmarks share: a model of Qwen3-0.6B's shape, the straightforward forward, and peak memory."""

import resource
import sys
from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import Qwen3Config, Qwen3Model

from trinity.coordinator.slm import SLM, SLMConfig, load_slm

LAYERS = 28
WIDTH = 1024


def qwen3_shaped(layers: int = LAYERS) -> SLM:
    """Qwen3-0.6B's shape with seeded random weights, float32 on the CPU, with a tokenizer of bytes."""
    config = Qwen3Config(
        vocab_size=151_936,
        hidden_size=WIDTH,
        intermediate_size=3072,
        num_hidden_layers=layers,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        decoder = Qwen3Model(config).eval().requires_grad_(False)
    return SLM(
        name="random weights of Qwen3-0.6B's shape",
        decoder=decoder,
        tokenizer=load_slm(SLMConfig()).tokenizer,
        hidden_size=WIDTH,
        layers=layers,
        context=config.max_position_embeddings,
        eos_id=0,
        device=torch.device("cpu"),
        dtype=torch.float32,
    )


class Plain:
    """The straightforward way: put a candidate's weights into the model, run the whole model."""

    def __init__(self, slm: SLM, layer: int) -> None:
        self._decoder = slm.decoder
        self._layer = slm.decoder.get_submodule(f"layers.{layer}")

    @torch.no_grad()
    def set(self, weights: Mapping[str, Tensor]) -> None:
        """Put weights into the SVF layer."""
        for name, weight in weights.items():
            self._layer.get_parameter(name).copy_(weight)

    @torch.no_grad()
    def hidden(self, ids: tuple[int, ...]) -> Tensor:
        """The final-norm hidden state (d,) at the last of the ids."""
        output = self._decoder(input_ids=torch.tensor([ids]), use_cache=False)
        state: Tensor = output.last_hidden_state[0, -1]
        return state


def peak_mib() -> float:
    """The process's peak resident memory, MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)
