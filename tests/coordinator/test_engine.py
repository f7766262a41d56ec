"""The split forward against the library's own full one."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from trinity.coordinator.encoding import Encoded
from trinity.coordinator.engine import Engine, EngineSettings
from trinity.coordinator.layers import DecoderLayer
from trinity.coordinator.slm import SLM, RandomShape, SLMConfig, load_slm
from trinity.coordinator.svf import decompose

IDS = tuple(b"What is 12 * 12? <Head Input>")
ENDING = tuple(b"<Head Input>")


def alone(ids: tuple[int, ...]) -> Encoded:
    """A transcript of one piece, and no ending."""
    return Encoded((ids,), ())


def hidden(
    engine: Engine, transcript: Encoded | tuple[int, ...], weights: Mapping[str, Tensor] | None = None
) -> Tensor:
    """What the engine computes with no candidate's keys kept."""
    encoded = transcript if isinstance(transcript, Encoded) else alone(transcript)
    return engine.hidden(encoded, engine.adapt(weights or {}))


def library_hidden(slm: SLM, ids: tuple[int, ...]) -> Tensor:
    """What the library computes, at the last position."""
    with torch.no_grad():
        return slm.decoder(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]


@pytest.fixture
def scales(random_slm: SLM) -> Tensor:
    n = decompose(random_slm).n_scales
    return 1 + 0.3 * torch.randn(n, generator=torch.Generator().manual_seed(0))


def test_s1_the_hidden_state_is_the_librarys(random_slm: SLM) -> None:
    engine = Engine(random_slm, layer=random_slm.layers - 2)
    assert engine.split
    for ids in (IDS, IDS[:1], IDS * 20):
        torch.testing.assert_close(
            hidden(engine, ids, {}), library_hidden(random_slm, ids), atol=1e-5, rtol=0
        )


def test_adapted_weights_act_as_if_they_stood_in_the_layer(random_slm: SLM, scales: Tensor) -> None:
    svf = decompose(random_slm)
    weights = svf.weights(scales)
    found = hidden(Engine(random_slm, svf.layer), IDS, weights)

    fresh = load_slm(SLMConfig(device="cpu"))
    fresh.decoder.get_submodule(f"layers.{svf.layer}").load_state_dict(weights, strict=False)
    torch.testing.assert_close(found, library_hidden(fresh, IDS), atol=1e-5, rtol=0)
    assert not torch.allclose(found, library_hidden(random_slm, IDS), atol=1e-3)


PIECES = (tuple(b"What is 12 * 12?"), tuple(b"\n\nWorker (agent 1):\n144"), tuple(b"\n\nThinker: why?"))
GROWING = [Encoded(PIECES[:end], ENDING) for end in (1, 2, 3)]
OTHER = Encoded((PIECES[0], tuple(b"\n\nVerifier (agent 0):\nno")), ENDING)


def test_a_transcript_in_pieces_is_the_librarys_too(random_slm: SLM, scales: Tensor) -> None:
    svf = decompose(random_slm)
    engine = Engine(random_slm, svf.layer)
    for transcript in (*GROWING, OTHER):
        wanted = library_hidden(random_slm, transcript.ids)
        torch.testing.assert_close(hidden(engine, transcript), wanted, atol=1e-5, rtol=0)


@st.composite
def visits(draw: st.DrawFn) -> list[tuple[int, int]]:
    """(candidate, transcript) in any order, with repetitions."""
    return draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=12))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    order=visits(),
    trunk_bytes=st.sampled_from([0, 30_000, 2**30]),
    tail_bytes=st.sampled_from([0, 20_000, 2**30]),
)
def test_a_decision_depends_on_candidate_and_transcript_alone(
    random_slm: SLM, order: list[tuple[int, int]], trunk_bytes: int, tail_bytes: int
) -> None:
    svf = decompose(random_slm)
    transcripts = [*GROWING, OTHER]
    scales = [
        1 + 0.3 * torch.randn(svf.n_scales, generator=torch.Generator().manual_seed(c)) for c in range(3)
    ]
    cold = [
        [hidden(Engine(random_slm, svf.layer, EngineSettings(0, 0)), t, svf.weights(s)) for t in transcripts]
        for s in scales
    ]
    engine = Engine(random_slm, svf.layer, EngineSettings(trunk_bytes, tail_bytes))
    tails = engine.tails()
    candidates = [engine.adapt(svf.weights(s), tails=tails) for s in scales]
    for candidate, transcript in order:
        found = engine.hidden(transcripts[transcript], candidates[candidate])
        assert torch.equal(found, cold[candidate][transcript])


@pytest.fixture
def chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Lengths of all chunks that decoder layers run on."""
    lengths: list[int] = []
    plain = DecoderLayer.run

    def run(self: DecoderLayer, x: Tensor, *args: object, **options: object) -> object:
        lengths.append(len(x))
        return plain(self, x, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(DecoderLayer, "run", run)
    yield lengths


def test_the_trunk_is_computed_once_for_all_candidates(
    random_slm: SLM, scales: Tensor, chunks: list[int]
) -> None:
    svf = decompose(random_slm)
    engine = Engine(random_slm, svf.layer)
    chunks.clear()
    hidden(engine, IDS)
    assert chunks == [len(IDS)] * random_slm.layers
    hidden(engine, IDS, svf.weights(scales))
    assert chunks[random_slm.layers :] == [len(IDS)] * (random_slm.layers - svf.layer)


def test_a_longer_transcript_costs_its_last_piece(random_slm: SLM, scales: Tensor, chunks: list[int]) -> None:
    svf = decompose(random_slm)
    engine = Engine(random_slm, svf.layer)
    candidate = engine.adapt(svf.weights(scales), tails=engine.tails())
    engine.hidden(GROWING[1], candidate)
    chunks.clear()
    engine.hidden(GROWING[2], candidate)
    assert chunks == [len(PIECES[2] + ENDING)] * random_slm.layers


def test_a_new_candidate_pays_for_its_own_layers_only(
    random_slm: SLM, scales: Tensor, chunks: list[int]
) -> None:
    svf = decompose(random_slm)
    engine = Engine(random_slm, svf.layer)
    tails = engine.tails()
    engine.hidden(GROWING[2], engine.adapt({}, tails=tails))
    chunks.clear()
    engine.hidden(GROWING[2], engine.adapt(svf.weights(scales), tails=tails))
    # All three pieces in the SVF layer; of the last layer's earlier positions, keys and values only.
    lengths = [len(piece + ENDING) for piece in PIECES]
    assert chunks == [*lengths, lengths[-1]]


def test_what_is_kept_stays_within_its_limit(random_slm: SLM, scales: Tensor, chunks: list[int]) -> None:
    svf = decompose(random_slm)
    engine = Engine(random_slm, svf.layer, EngineSettings(0, 0))
    candidate = engine.adapt(svf.weights(scales), tails=engine.tails())
    engine.hidden(GROWING[1], candidate)
    chunks.clear()
    engine.hidden(GROWING[2], candidate)
    assert sum(chunks) > len(PIECES[2] + ENDING) * random_slm.layers


def test_gradients_reach_the_scales(random_slm: SLM, scales: Tensor) -> None:
    svf = decompose(random_slm)
    engine = Engine(random_slm, svf.layer)
    scales.requires_grad_()
    hidden(engine, IDS, svf.weights(scales)).square().sum().backward()  # of a trunk kept without gradients
    assert scales.grad is not None
    assert torch.isfinite(scales.grad).all()
    assert (scales.grad != 0).float().mean() > 0.9


def test_an_unknown_architecture_is_found_by_its_numbers(
    random_slm: SLM, caplog: pytest.LogCaptureFixture
) -> None:
    odd = load_slm(SLMConfig(device="cpu"))
    layer = odd.decoder.layers[1]
    plain = layer.mlp.forward
    layer.mlp.forward = lambda x: 2 * plain(x)
    with caplog.at_level(logging.WARNING):
        engine = Engine(odd, layer=2)
    assert not engine.split
    assert "differs from its full forward" in caplog.text
    torch.testing.assert_close(hidden(engine, IDS, {}), library_hidden(odd, IDS))


def test_windowed_attention_is_not_split(caplog: pytest.LogCaptureFixture) -> None:
    windowed = load_slm(SLMConfig(device="cpu"))
    windowed.decoder.config.layer_types = ["sliding_attention"] * windowed.layers
    with caplog.at_level(logging.WARNING):
        assert not Engine(windowed, layer=2).split
    assert "window" in caplog.text


def test_the_full_forward_takes_adapted_weights_too(random_slm: SLM, scales: Tensor) -> None:
    svf = decompose(random_slm)
    weights = svf.weights(scales)
    full = Engine(random_slm, svf.layer, full_because="it is asked to")
    assert not full.split
    split = Engine(random_slm, svf.layer)
    torch.testing.assert_close(hidden(full, IDS, weights), hidden(split, IDS, weights), atol=1e-5, rtol=0)


def test_bfloat16_stays_near(random_slm: SLM) -> None:
    half = load_slm(SLMConfig(device="cpu", dtype="bfloat16"))
    engine = Engine(half, layer=2)
    assert engine.split
    full = library_hidden(random_slm, IDS)
    assert (hidden(engine, IDS, {}) - full).norm() < 0.05 * full.norm()


def test_what_was_kept_in_inference_mode_serves_a_backward_pass(random_slm: SLM, scales: Tensor) -> None:
    svf = decompose(random_slm)
    engine = Engine(random_slm, svf.layer)
    with torch.inference_mode():
        engine.hidden(GROWING[2], engine.adapt(svf.weights(scales), tails=engine.tails()))
    given_scales = scales.clone().requires_grad_()
    hidden(engine, GROWING[2], svf.weights(given_scales)).sum().backward()
    assert given_scales.grad is not None


def test_gradients_of_a_transcript_in_pieces_are_the_full_forwards(random_slm: SLM, scales: Tensor) -> None:
    svf = decompose(random_slm)
    found = []
    for because in (None, "it is asked to"):
        engine = Engine(random_slm, svf.layer, full_because=because)
        given_scales = scales.clone().requires_grad_()
        hidden(engine, GROWING[2], svf.weights(given_scales)).square().sum().backward()
        assert given_scales.grad is not None
        found.append(given_scales.grad)
    torch.testing.assert_close(found[0], found[1], atol=1e-4, rtol=1e-3)


def test_adapted_embeddings_act_as_if_they_stood_in_the_model(
    random_slm: SLM, caplog: pytest.LogCaptureFixture
) -> None:
    svf = decompose(random_slm, matrices=("q_proj", "embed_tokens"))
    scales = 1 + 0.3 * torch.randn(svf.n_scales, generator=torch.Generator().manual_seed(0))
    with caplog.at_level(logging.WARNING):
        engine = Engine(random_slm, svf.layer, full_because="the scales of the token embeddings change it")
    assert "full forwards: the scales of the token embeddings" in caplog.text
    found = engine.hidden(alone(IDS), engine.adapt(svf.weights(scales), svf.embed(scales)))

    fresh = load_slm(SLMConfig(device="cpu"))
    fresh.decoder.get_submodule(f"layers.{svf.layer}").load_state_dict(svf.weights(scales), strict=False)
    embedding = svf.embedding
    assert embedding is not None
    whole = embedding.u @ torch.diag(embedding.s * scales[-len(embedding.s) :]) @ embedding.vt
    fresh.decoder.embed_tokens.weight.data = whole
    torch.testing.assert_close(found, library_hidden(fresh, IDS), atol=1e-4, rtol=0)
    assert not torch.allclose(found, library_hidden(random_slm, IDS), atol=1e-3)


@pytest.mark.slow
def test_pretrained_weights_are_split(smollm2: SLM) -> None:
    engine = Engine(smollm2, layer=smollm2.layers - 2)
    assert engine.split
    ids = tuple(smollm2.tokenizer.encode("Which of these models should answer?"))
    half = len(ids) // 2
    for transcript in (
        alone(ids),
        Encoded((ids[:half],), ids[half:]),
        Encoded((ids[:half], ids[half:-1]), ids[-1:]),
    ):
        found = hidden(engine, transcript)
        torch.testing.assert_close(found, library_hidden(smollm2, ids), atol=1e-3, rtol=1e-4)


def test_the_last_layer_can_be_the_adapted_one() -> None:
    slm = load_slm(SLMConfig(device="cpu", random=RandomShape(layers=2)))
    svf = decompose(slm, layer=1)
    engine = Engine(slm, layer=1)
    torch.testing.assert_close(hidden(engine, IDS, {}), library_hidden(slm, IDS), atol=1e-5, rtol=0)
    other = hidden(engine, IDS, svf.weights(torch.full((svf.n_scales,), 1.5)))
    assert not torch.allclose(other, hidden(engine, IDS, {}), atol=1e-3)


def test_the_models_name_is_in_the_reason(random_slm: SLM, caplog: pytest.LogCaptureFixture) -> None:
    named = replace(random_slm, name="some/model")
    named.decoder.config.rope_parameters, kept = (
        {"rope_type": "dynamic"},
        named.decoder.config.rope_parameters,
    )
    try:
        with caplog.at_level(logging.WARNING):
            assert not Engine(named, layer=2).split
    finally:
        named.decoder.config.rope_parameters = kept
    assert "some/model uses 'dynamic' rotary positions" in caplog.text
