"""Transcript -> logits of every candidate."""

import asyncio
import threading
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from trinity.coordinator.coordinator import Coordinator
from trinity.coordinator.encoding import TranscriptEncoder
from trinity.coordinator.engine import Engine
from trinity.coordinator.heads import LinearHead, SparseHead, normalise_hidden
from trinity.coordinator.parameters import ParameterLayout
from trinity.coordinator.slm import SLM
from trinity.coordinator.svf import decompose

SEGMENTS = ["What is 2 + 2?", "\n\nWorker (agent 1):\nfour"]


@pytest.fixture
def make(random_slm: SLM):
    made: list[Coordinator] = []

    def build(*, svf: bool = True, hidden_norm="rms") -> Coordinator:
        head = LinearHead(random_slm.hidden_size, agents=3)
        adapted = decompose(random_slm) if svf else None
        tensors = {"head.weight": head.weight}
        if adapted is not None:
            tensors["svf"] = torch.ones(adapted.n_scales)
        layout = ParameterLayout.of(tensors, {})
        engine = Engine(random_slm, layer=random_slm.layers - 2)
        made.append(Coordinator(TranscriptEncoder(random_slm), engine, adapted, head, layout, hidden_norm))
        return made[-1]

    yield build
    for coordinator in made:
        coordinator.close()


def thetas(coordinator: Coordinator, candidates: int) -> torch.Tensor:
    n = coordinator.layout.n
    return 1 + 0.1 * torch.randn(candidates, n, generator=torch.Generator().manual_seed(0))


def test_logits_are_the_head_on_the_adapted_hidden_state(make) -> None:
    coordinator = make()
    population = thetas(coordinator, 2)
    coordinator.load(population)
    agents, roles = coordinator.decide(1, SEGMENTS)

    parts = coordinator.layout.unpack(population[1])
    engine = coordinator.engine
    hidden = engine.hidden(
        coordinator.encoder.encode(SEGMENTS), engine.adapt(coordinator.svf.weights(parts["svf"]))
    )
    wanted = parts["head.weight"] @ normalise_hidden(hidden, "rms")
    np.testing.assert_allclose(np.concatenate([agents, roles]), wanted.numpy(), rtol=1e-5)
    assert (len(agents), len(roles)) == (3, 3)


async def test_a_decision_does_not_depend_on_what_else_is_decided(make) -> None:
    alone, crowded = make(), make()
    for coordinator in (alone, crowded):
        coordinator.load(thetas(coordinator, 4))
    for candidate in reversed(range(4)):
        await crowded.logits(SimpleNamespace(candidate=candidate), [*SEGMENTS, "\n\nVerifier: no"])
    wanted = await alone.logits(SimpleNamespace(candidate=2), SEGMENTS)
    found = await crowded.logits(SimpleNamespace(candidate=2), SEGMENTS)
    assert all(np.array_equal(a, b) for a, b in zip(wanted, found, strict=True))


async def test_the_longest_transcript_is_decided_first(make, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = make()
    coordinator.load(thetas(coordinator, 1))
    started, going_on = threading.Event(), threading.Event()
    plain, lengths = coordinator.decide, []

    def decide(candidate: int, segments: list[str]):
        started.set()
        going_on.wait(timeout=30)
        lengths.append(len(segments))
        return plain(candidate, segments)

    monkeypatch.setattr(coordinator, "decide", decide)
    asked = []
    for turns in (0, 0, 2, 1, 3):
        asked.append(
            asyncio.ensure_future(coordinator.logits(SimpleNamespace(candidate=0), ["q", *"abc"[:turns]]))
        )
        while not started.is_set():
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    going_on.set()
    await asyncio.gather(*asked)
    assert lengths == [1, 4, 3, 2, 1]


def test_adapted_weights_are_built_once_a_generation(make, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = make()
    built: list[int] = []
    plain = coordinator.svf.weights
    monkeypatch.setattr(coordinator.svf, "weights", lambda scales: built.append(len(scales)) or plain(scales))
    coordinator.load(thetas(coordinator, 3))
    for _ in range(2):
        for candidate in (0, 2):
            coordinator.decide(candidate, SEGMENTS)
    assert len(built) == 2


def test_without_svf_one_forward_serves_all_candidates(make, monkeypatch: pytest.MonkeyPatch) -> None:
    coordinator = make(svf=False)
    coordinator.load(thetas(coordinator, 3))
    first = coordinator.decide(0, SEGMENTS)
    monkeypatch.setattr(coordinator.engine, "hidden", lambda *_: pytest.fail("a second forward"))
    second = coordinator.decide(1, SEGMENTS)
    assert not np.array_equal(first[0], second[0])


def test_hidden_states_that_were_kept_serve_a_backward_pass(make) -> None:
    coordinator = make(svf=False)
    coordinator.load(thetas(coordinator, 1))
    coordinator.decide(0, SEGMENTS)
    weight = torch.ones(64, requires_grad=True)
    encoded = coordinator.encoder.encode(SEGMENTS)
    (weight * coordinator.hidden(coordinator._population[0], encoded)).sum().backward()
    assert weight.grad is not None


def test_the_zero_head_has_no_preference(make) -> None:
    coordinator = make()
    theta = torch.cat([torch.zeros(6 * 64), torch.ones(coordinator.svf.n_scales)])
    coordinator.load(theta[None])
    agents, roles = coordinator.decide(0, SEGMENTS)
    assert not agents.any()
    assert not roles.any()


def test_a_new_population_replaces_the_old_one(make) -> None:
    coordinator = make()
    population = thetas(coordinator, 2)
    coordinator.load(population)
    second = coordinator.decide(1, SEGMENTS)
    coordinator.load(population[1:])
    again = coordinator.decide(0, SEGMENTS)
    assert np.array_equal(second[0], again[0])


@pytest.mark.parametrize("norm", ["rms", "l2", "none"])
def test_the_hidden_norm_scales_the_logits(make, norm: str) -> None:
    rms, other = make(), make(hidden_norm=norm)
    for coordinator in (rms, other):
        coordinator.load(thetas(coordinator, 1))
    raw = rms.engine.hidden(rms.encoder.encode(SEGMENTS), rms._population[0].adapted).norm()
    ratio = {"rms": 1.0, "l2": 1 / 8, "none": float(raw) / 8}[norm]
    np.testing.assert_allclose(
        other.decide(0, SEGMENTS)[0], rms.decide(0, SEGMENTS)[0] * ratio, rtol=1e-4, atol=1e-6
    )


def test_decisions_stay_the_same_when_a_trainer_puts_the_head_into_training(random_slm: SLM) -> None:
    """What is played is what is deployed: the sparse head's noisy selection is for labels only."""
    head = SparseHead(random_slm.hidden_size, 2)
    names = {f"head.{name}": p for name, p in head.named_parameters()}
    layout = ParameterLayout.of(names, {})
    one = Coordinator(TranscriptEncoder(random_slm), Engine(random_slm, 2), None, head, layout)
    one.load(torch.randn(1, layout.n, generator=torch.Generator().manual_seed(0)))
    head.eval()
    calm = one.decide(0, ["a question"])
    head.train()
    for step in (0, 1):
        head.anneal(0.0, step)
        one.head.anneal(0.0, step)
        for found, wanted in zip(one.decide(0, ["a question"]), calm, strict=True):
            assert np.array_equal(found, wanted)
    one.close()
