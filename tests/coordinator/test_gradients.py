"""Gradients of logits, transcript by transcript, against one graph of everything."""

import pytest
import torch

from trinity.coordinator.coordinator import Coordinator
from trinity.coordinator.encoding import TranscriptEncoder
from trinity.coordinator.engine import Engine
from trinity.coordinator.gradients import LogitGradients
from trinity.coordinator.heads import Head, LinearHead, SparseHead, normalise_hidden
from trinity.coordinator.parameters import ParameterLayout
from trinity.coordinator.slm import SLM
from trinity.coordinator.svf import EMBEDDING, MATRICES, decompose

TRANSCRIPTS = [
    ["a question"],
    ["a question", "\n\nWorker (agent 1):\n4"],
    ["another", "\n\nThinker: x", " y"],
]


def coordinator(slm: SLM, matrices: tuple[str, ...] | None, head: Head) -> Coordinator:
    svf = None if matrices is None else decompose(slm, matrices=matrices)
    full = "all layers change" if svf is not None and svf.embedding is not None else None
    engine = Engine(slm, slm.layers - 2, full_because=full)
    names = {f"head.{name}": p for name, p in head.named_parameters()}
    if svf is not None:
        names["svf"] = torch.ones(svf.n_scales)
    return Coordinator(TranscriptEncoder(slm), engine, svf, head, ParameterLayout.of(names, {}))


def at(layout: ParameterLayout) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    theta = 0.2 * torch.randn(layout.n, generator=generator)
    blocks = layout.unpack(theta)
    if "svf" in blocks:
        blocks["svf"] = 1 + blocks["svf"]
    return blocks


@pytest.mark.parametrize("matrices", [MATRICES, ("v_proj",), ("o_proj", EMBEDDING), None])
@pytest.mark.parametrize("kind", [LinearHead, SparseHead])
def test_they_are_those_of_one_graph(
    random_slm: SLM, matrices: tuple[str, ...] | None, kind: type[Head]
) -> None:
    head = kind(random_slm.hidden_size, 2)
    one = coordinator(random_slm, matrices, head)
    blocks = at(one.layout)
    found = LogitGradients(one, blocks)
    for segments in TRANSCRIPTS:
        agents, roles = found.logits(segments)
        (agents.square().sum() - roles.sum()).backward()

    leaves = {name: block.clone().requires_grad_() for name, block in blocks.items()}
    total = torch.zeros((), dtype=torch.float64)
    for segments in TRANSCRIPTS:
        ids = one.encoder.encode(segments)
        weights = one.svf.weights(leaves["svf"]) if one.svf is not None else {}
        embed = one.svf.embed(leaves["svf"]) if one.svf is not None else None
        hidden = normalise_hidden(one.engine.hidden(ids, one.engine.adapt(weights, embed)), "rms")
        named = {name.removeprefix("head."): leaf for name, leaf in leaves.items() if name != "svf"}
        z = torch.func.functional_call(one.head, named, (hidden,)).double()
        total = total + z[:2].square().sum() - z[2:].sum()
    total.backward()
    for name, gradient in found.gradients().items():
        assert gradient.abs().max() > 0 or name == "head.log_temperature"
        expected = leaves[name].grad
        torch.testing.assert_close(
            gradient, torch.zeros_like(gradient) if expected is None else expected, atol=1e-4, rtol=1e-3
        )
    one.close()


def test_the_logits_are_the_decisions(random_slm: SLM) -> None:
    one = coordinator(random_slm, MATRICES, LinearHead(random_slm.hidden_size, 2))
    blocks = at(one.layout)
    one.load(one.layout.pack(blocks)[None])
    found = LogitGradients(one, blocks)
    for segments in TRANSCRIPTS:
        agents, roles = found.logits(segments)
        decided = one.decide(0, segments)
        assert agents.detach().numpy() == pytest.approx(decided[0], abs=1e-5)
        assert roles.detach().numpy() == pytest.approx(decided[1], abs=1e-5)
    one.close()


def test_without_a_backward_pass_they_are_zero_and_the_parameters_stay_untouched(random_slm: SLM) -> None:
    one = coordinator(random_slm, MATRICES, LinearHead(random_slm.hidden_size, 2))
    blocks = at(one.layout)
    found = LogitGradients(one, blocks)
    found.logits(TRANSCRIPTS[0])
    assert all(not gradient.any() for gradient in found.gradients().values())
    assert all(block.grad is None for block in blocks.values())
    one.close()
