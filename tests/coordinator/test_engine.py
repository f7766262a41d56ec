"""The split forward against the library's own full one."""

import logging
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from trinity.coordinator.engine import Engine, LeastRecentlyUsed
from trinity.coordinator.slm import SLM, RandomShape, SLMConfig, load_slm
from trinity.coordinator.svf import decompose

IDS = tuple(b"What is 12 * 12? <Head Input>")


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
        torch.testing.assert_close(engine.hidden(ids, {}), library_hidden(random_slm, ids), atol=1e-5, rtol=0)


def test_adapted_weights_act_as_if_they_stood_in_the_layer(random_slm: SLM, scales: Tensor) -> None:
    svf = decompose(random_slm)
    weights = svf.weights(scales)
    found = Engine(random_slm, svf.layer).hidden(IDS, weights)

    fresh = load_slm(SLMConfig(device="cpu"))
    fresh.decoder.get_submodule(f"layers.{svf.layer}").load_state_dict(weights, strict=False)
    torch.testing.assert_close(found, library_hidden(fresh, IDS), atol=1e-5, rtol=0)
    assert not torch.allclose(found, library_hidden(random_slm, IDS), atol=1e-3)


def test_warm_and_cold_give_the_same_bits(random_slm: SLM, scales: Tensor) -> None:
    svf = decompose(random_slm)
    weights = svf.weights(scales)
    engine = Engine(random_slm, svf.layer)
    cold = engine.hidden(IDS, weights)
    engine.hidden(IDS * 3, weights)
    assert torch.equal(engine.hidden(IDS, weights), cold)
    assert torch.equal(Engine(random_slm, svf.layer, cache_bytes=0).hidden(IDS, weights), cold)


def test_the_trunk_is_computed_once(random_slm: SLM, scales: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    svf = decompose(random_slm)
    engine = Engine(random_slm, svf.layer)
    engine.hidden(IDS, {})
    monkeypatch.setattr(random_slm.decoder.embed_tokens, "forward", lambda ids: pytest.fail("a second trunk"))
    engine.hidden(IDS, svf.weights(scales))


def test_gradients_reach_the_scales(random_slm: SLM, scales: Tensor) -> None:
    svf = decompose(random_slm)
    engine = Engine(random_slm, svf.layer)
    scales.requires_grad_()
    engine.hidden(IDS, svf.weights(scales)).square().sum().backward()  # of a trunk kept without gradients
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
    torch.testing.assert_close(engine.hidden(IDS, {}), library_hidden(odd, IDS))


def test_windowed_attention_is_not_split(caplog: pytest.LogCaptureFixture) -> None:
    windowed = load_slm(SLMConfig(device="cpu"))
    windowed.decoder.config.layer_types = ["sliding_attention"] * windowed.layers
    with caplog.at_level(logging.WARNING):
        assert not Engine(windowed, layer=2).split
    assert "window" in caplog.text


def test_the_full_forward_takes_adapted_weights_too(random_slm: SLM, scales: Tensor) -> None:
    svf = decompose(random_slm)
    weights = svf.weights(scales)
    full = Engine(random_slm, svf.layer, split=False)
    assert not full.split
    split = Engine(random_slm, svf.layer)
    torch.testing.assert_close(full.hidden(IDS, weights), split.hidden(IDS, weights), atol=1e-5, rtol=0)


def test_bfloat16_stays_near(random_slm: SLM) -> None:
    half = load_slm(SLMConfig(device="cpu", dtype="bfloat16"))
    engine = Engine(half, layer=2)
    assert engine.split
    full = library_hidden(random_slm, IDS)
    assert (engine.hidden(IDS, {}) - full).norm() < 0.05 * full.norm()


@pytest.mark.slow
def test_pretrained_weights_are_split(smollm2: SLM) -> None:
    engine = Engine(smollm2, layer=smollm2.layers - 2)
    assert engine.split
    ids = tuple(smollm2.tokenizer.encode("Which of these models should answer?"))
    torch.testing.assert_close(engine.hidden(ids, {}), library_hidden(smollm2, ids), atol=1e-3, rtol=1e-4)


def test_the_last_layer_can_be_the_adapted_one() -> None:
    slm = load_slm(SLMConfig(device="cpu", random=RandomShape(layers=2)))
    svf = decompose(slm, layer=1)
    engine = Engine(slm, layer=1)
    torch.testing.assert_close(engine.hidden(IDS, {}), library_hidden(slm, IDS), atol=1e-5, rtol=0)
    other = engine.hidden(IDS, svf.weights(torch.full((svf.n_scales,), 1.5)))
    assert not torch.allclose(other, engine.hidden(IDS, {}), atol=1e-3)


def test_the_cache_keeps_to_its_limit_and_drops_the_oldest() -> None:
    cache = LeastRecentlyUsed(limit=3 * 40)
    for i in range(3):
        cache.put((i,), torch.full((10,), float(i)))
    assert cache.get((0,)) is not None
    cache.put((3,), torch.zeros(10))
    assert cache.get((1,)) is None
    assert all(cache.get((i,)) is not None for i in (0, 2, 3))
    cache.put((4,), torch.zeros(1000))
    assert all(cache.get((i,)) is None for i in range(5))


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
