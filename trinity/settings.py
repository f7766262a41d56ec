"""The options of a CoordinatorModule that come in groups."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from trinity.coordinator.heads import HiddenNorm
from trinity.coordinator.svf import MATRICES
from trinity.episode.policy import Selection


@dataclass(frozen=True)
class Extraction:
    """How a transcript becomes the hidden state that the head reads.

    Args:
        rendering: the transcript's text as it is, or inside the tokenizer's chat template (thinking off).
        read_position: the position before the end-of-sequence token, or that token.
        hidden_norm: `rms` (norm sqrt(d)), `l2` (norm 1) or `none`. It sets the spread of the logits for a
            given step size, which decides whether anything is learned.
        context: cut transcripts to this many tokens; None takes the model's own limit.
    """

    rendering: Literal["raw", "chat_template"] = "raw"
    read_position: Literal["penultimate", "last"] = "penultimate"
    hidden_norm: HiddenNorm = "rms"
    context: int | None = None


@dataclass(frozen=True)
class SVFSettings:
    """Which singular-value scales are trained.

    Args:
        enabled: False trains the head alone.
        layer: index of the adapted layer; None is the second to last.
        matrices: which of the layer's seven matrices; `embed_tokens` adds the token embeddings, at the
            price of a whole forward for each decision.
        energy_preserving: scale W' by sum(S) / sum(S s).
    """

    enabled: bool = True
    layer: int | None = None
    matrices: Sequence[str] = MATRICES
    energy_preserving: bool = False


@dataclass(frozen=True)
class BlockScales:
    """theta = start + scale x x, by block: how far one step of x moves the head and the scales."""

    head: float = 1.0
    svf: float = 1.0


@dataclass(frozen=True)
class SelectionSettings:
    """How choices are taken from the logits in training and in evaluation."""

    training: Selection = "sample"
    evaluation: Selection = "argmax"
