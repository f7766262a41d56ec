from pathlib import Path

import pytest
import torch
from torch import Tensor

from trinity.coordinator.heads import LinearHead
from trinity.coordinator.parameters import ParameterLayout
from trinity.coordinator.slm import SLM, SLMConfig, load_slm
from trinity.coordinator.svf import MATRICES, SVF, decompose
from trinity.errors import UserError


@pytest.fixture
def svf(random_slm: SLM, tmp_path: Path) -> SVF:
    return decompose(random_slm, cache_dir=str(tmp_path))


@pytest.fixture(scope="module")
def qwen3_0_6b_shaped(tmp_path_factory: pytest.TempPathFactory, random_slm: SLM) -> Path:
    """A folder with a random model of Qwen3-0.6B's matrices, but three layers and bytes for a vocabulary."""
    from transformers import Qwen3Config, Qwen3Model

    config = Qwen3Config(
        vocab_size=259,
        hidden_size=1024,
        intermediate_size=3072,
        num_hidden_layers=3,
        num_attention_heads=16,
        num_key_value_heads=8,
        head_dim=128,
        max_position_embeddings=40_960,
    )
    folder = tmp_path_factory.mktemp("qwen3")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        Qwen3Model(config).bfloat16().save_pretrained(folder)
    random_slm.tokenizer.save_pretrained(folder)
    return folder


def random_scales(svf: SVF, spread: float = 0.1) -> Tensor:
    return 1 + spread * torch.randn(svf.n_scales, generator=torch.Generator().manual_seed(0))


def original(slm: SLM, svf: SVF) -> dict[str, Tensor]:
    layer = slm.decoder.get_submodule(f"layers.{svf.layer}")
    return {name: layer.get_parameter(name) for name in svf.counts}


def hidden(slm: SLM, svf: SVF, scales: Tensor | None) -> Tensor:
    """The state at the last position of a short text, by a plain full forward."""
    weights = {} if scales is None else svf.weights(scales)
    replaced = {f"layers.{svf.layer}.{name}": weight for name, weight in weights.items()}
    ids = torch.tensor([slm.tokenizer.encode("What is 12 + 30?")])
    output = torch.func.functional_call(slm.decoder, replaced, kwargs={"input_ids": ids})
    state: Tensor = output.last_hidden_state[0, -1]
    return state


def same_bits(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and a.numpy().tobytes() == b.numpy().tobytes()


@pytest.mark.parametrize("energy_preserving", [False, True])
def test_s2_scales_of_one_are_the_original_weights(
    random_slm: SLM, tmp_path: Path, energy_preserving: bool
) -> None:
    svf = decompose(random_slm, energy_preserving=energy_preserving, cache_dir=str(tmp_path))
    weights = svf.weights(torch.ones(svf.n_scales))
    assert len(weights) == 7
    for name, weight in original(random_slm, svf).items():
        assert same_bits(weights[name], weight), name
    with torch.no_grad():
        plain = hidden(random_slm, svf, None)
        assert same_bits(hidden(random_slm, svf, torch.ones(svf.n_scales)), plain)


def test_s2_one_scale_of_each_matrix_changes_the_output(random_slm: SLM, svf: SVF) -> None:
    with torch.no_grad():
        plain = hidden(random_slm, svf, None)
        first = 0
        for name, count in svf.counts.items():
            scales = torch.ones(svf.n_scales)
            scales[first] = 1.5
            assert not torch.equal(hidden(random_slm, svf, scales), plain), name
            first += count


def test_s2_scales_in_bfloat16_are_the_original_weights(tmp_path: Path) -> None:
    slm = load_slm(SLMConfig(dtype="bfloat16", device="cpu"))
    svf = decompose(slm, cache_dir=str(tmp_path))
    weights = svf.weights(torch.ones(svf.n_scales))
    for name, weight in original(slm, svf).items():
        assert weights[name].dtype == torch.bfloat16
        assert torch.equal(weights[name], weight), name
    changed = svf.weights(random_scales(svf))
    assert all(not torch.equal(changed[name], weights[name]) for name in weights)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_s2_qwen3_0_6b_shape_goes_through_the_loader(
    qwen3_0_6b_shaped: Path, tmp_path: Path, dtype: str
) -> None:
    slm = load_slm(SLMConfig(str(qwen3_0_6b_shaped), dtype=dtype, device="cpu"))  # type: ignore[arg-type]
    assert (slm.hidden_size, slm.layers, slm.context) == (1024, 3, 40_960)
    # The weights are rounded to bfloat16 already, so both types share one decomposition.
    svf = decompose(slm, cache_dir=str(qwen3_0_6b_shaped / "cache"))
    assert svf.layer == 1
    assert svf.counts == {
        "self_attn.q_proj.weight": 1024,
        "self_attn.k_proj.weight": 1024,
        "self_attn.v_proj.weight": 1024,
        "self_attn.o_proj.weight": 1024,
        "mlp.gate_proj.weight": 1024,
        "mlp.up_proj.weight": 1024,
        "mlp.down_proj.weight": 1024,
    }
    assert svf.n_scales == 7168
    head = LinearHead(slm.hidden_size, agents=3)
    layout = ParameterLayout.of({"head.weight": head.weight, "svf": torch.ones(svf.n_scales)}, {})
    assert layout.n == 13_312
    print(layout.describe())
    weights = svf.weights(torch.ones(svf.n_scales))
    for name, weight in original(slm, svf).items():
        assert torch.equal(weights[name], weight), name
    with torch.no_grad():
        scales = torch.ones(svf.n_scales)
        scales[-1024] = 2.0
        assert not torch.equal(hidden(slm, svf, scales), hidden(slm, svf, None))


@pytest.mark.slow
def test_s2_real_weights(smollm2: SLM) -> None:
    svf = decompose(smollm2)
    assert (svf.layer, svf.n_scales) == (28, 5 * 576 + 2 * 192)
    weights = svf.weights(torch.ones(svf.n_scales))
    for name, weight in original(smollm2, svf).items():
        assert torch.equal(weights[name], weight), name
    with torch.no_grad():
        plain, moved = (hidden(smollm2, svf, s) for s in (None, random_scales(svf)))
    assert 1e-3 < float((moved - plain).norm() / plain.norm()) < 1.0


def test_scales_multiply_the_singular_values(random_slm: SLM, svf: SVF) -> None:
    scales = random_scales(svf).abs()
    pieces = dict(zip(svf.counts, scales.split(list(svf.counts.values())), strict=True))
    for name, weight in original(random_slm, svf).items():
        u, s, vt = torch.linalg.svd(weight, full_matrices=False)
        torch.testing.assert_close(
            svf.weights(scales)[name], (u * (s * pieces[name])) @ vt, atol=2e-5, rtol=1e-4
        )


def test_energy_preserving_keeps_the_sum_of_singular_values(random_slm: SLM, tmp_path: Path) -> None:
    svf = decompose(random_slm, energy_preserving=True, cache_dir=str(tmp_path))
    adapted = svf.weights(random_scales(svf) * 3)
    for name, weight in original(random_slm, svf).items():
        before, after = torch.linalg.svdvals(weight).sum(), torch.linalg.svdvals(adapted[name]).sum()
        torch.testing.assert_close(after, before, rtol=1e-4, atol=0)
        assert not torch.allclose(adapted[name], weight, atol=1e-3)


def test_scales_carry_gradients_from_the_start(random_slm: SLM, svf: SVF) -> None:
    scales = torch.ones(svf.n_scales, requires_grad=True)
    hidden(random_slm, svf, scales).square()[:8].sum().backward()
    assert scales.grad is not None
    assert bool(scales.grad.isfinite().all())
    for piece in scales.grad.split(list(svf.counts.values())):
        assert float(piece.abs().max()) > 0


def test_the_order_is_that_of_the_matrices_whatever_is_asked(random_slm: SLM, tmp_path: Path) -> None:
    svf = decompose(random_slm, matrices=("down_proj", "q_proj"), cache_dir=str(tmp_path))
    assert list(svf.counts.items()) == [("self_attn.q_proj.weight", 64), ("mlp.down_proj.weight", 64)]
    assert svf.n_scales == 128
    whole = decompose(random_slm, cache_dir=str(tmp_path))
    assert [name.split(".")[1] for name in whole.counts] == list(MATRICES)
    assert all(bool((f.s.diff() <= 0).all()) for f in whole.factors.values())


def test_the_layer_is_the_second_to_last_or_as_asked(random_slm: SLM, tmp_path: Path) -> None:
    assert decompose(random_slm, cache_dir=str(tmp_path)).layer == 2
    other = decompose(random_slm, layer=0, cache_dir=str(tmp_path))
    assert other.layer == 0
    name = "mlp.up_proj.weight"
    assert torch.equal(other.factors[name].weight, random_slm.decoder.get_parameter(f"layers.0.{name}"))


def test_matrices_are_decomposed_once(
    random_slm: SLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cold = decompose(random_slm, cache_dir=str(tmp_path))
    assert len(list((tmp_path / "svd").iterdir())) == 7

    def fail(*args: object, **kwargs: object) -> None:
        raise AssertionError("decomposed again")

    monkeypatch.setattr(torch.linalg, "svd", fail)
    warm = decompose(random_slm, cache_dir=str(tmp_path))
    scales = random_scales(cold)
    for name, weight in cold.weights(scales).items():
        assert same_bits(warm.weights(scales)[name], weight), name
    assert all(t.data_ptr() % 64 == 0 for f in warm.factors.values() for t in (f.u, f.s, f.vt))


@pytest.mark.parametrize("damage", ["truncated", "empty", "bit", "foreign"])
def test_a_damaged_cache_is_made_anew(random_slm: SLM, tmp_path: Path, damage: str) -> None:
    scales = random_scales(decompose(random_slm, cache_dir=str(tmp_path)))
    expected = decompose(random_slm, cache_dir=str(tmp_path)).weights(scales)
    contents = {path: path.read_bytes() for path in sorted((tmp_path / "svd").iterdir())}
    foreign = list(contents.values())[1:] + list(contents.values())[:1]
    for (path, content), other in zip(contents.items(), foreign, strict=True):
        flipped = content[:-2] + bytes([content[-2] ^ 0x7F, content[-1] ^ 0x7F])
        path.write_bytes({"truncated": content[:-9], "empty": b"", "bit": flipped, "foreign": other}[damage])
    found = decompose(random_slm, cache_dir=str(tmp_path)).weights(scales)
    assert all(same_bits(found[name], weight) for name, weight in expected.items())
    assert {path: path.read_bytes() for path in sorted((tmp_path / "svd").iterdir())} == contents


def test_a_cache_that_cannot_be_written_does_no_harm(
    random_slm: SLM, svf: SVF, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    found = decompose(random_slm, cache_dir=str(tmp_path / "file"))
    scales = random_scales(svf)
    assert all(same_bits(found.weights(scales)[n], w) for n, w in svf.weights(scales).items())
    assert "can't be kept" in caplog.text


@pytest.mark.parametrize("matrices", [("q_proj", "qkv_proj"), ()])
def test_unknown_matrices_are_named(random_slm: SLM, matrices: tuple[str, ...]) -> None:
    with pytest.raises(
        UserError, match=r"svf\.matrices holds (\['qkv_proj'\]|nothing); choose from q_proj, "
    ):
        decompose(random_slm, matrices=matrices)


@pytest.mark.parametrize("layer", [-1, 4])
def test_a_layer_out_of_range_is_named(random_slm: SLM, layer: int) -> None:
    with pytest.raises(UserError, match=rf"svf\.layer is {layer}, .* 0 to 3"):
        decompose(random_slm, layer=layer)


def test_a_layer_without_the_matrix_is_named(tmp_path: Path) -> None:
    slm = load_slm(SLMConfig(device="cpu"))
    del slm.decoder.get_submodule("layers.2.mlp").gate_proj
    with pytest.raises(UserError, match=r"Layer 2 of random has no mlp\.gate_proj\.weight"):
        decompose(slm, cache_dir=str(tmp_path))


def test_the_embeddings_are_adapted_row_by_row(random_slm: SLM, tmp_path: Path) -> None:
    svf = decompose(random_slm, matrices=("embed_tokens", "v_proj"), cache_dir=str(tmp_path))
    assert list(svf.counts) == ["self_attn.v_proj.weight", "embed_tokens"]
    scales = random_scales(svf)
    ids = torch.tensor([5, 2, 5])
    embed = svf.embed(scales)
    assert embed is not None
    f = svf.embedding
    assert f is not None
    whole = f.u @ torch.diag(f.s * scales[-len(f.s) :]) @ f.vt
    torch.testing.assert_close(embed(ids), whole[ids], atol=1e-5, rtol=0)
    neutral = svf.embed(torch.ones(svf.n_scales))
    assert neutral is not None
    assert torch.equal(neutral(ids), random_slm.decoder.embed_tokens(ids))
    assert list(svf.weights(scales)) == ["self_attn.v_proj.weight"]


def test_without_adapted_embeddings_there_are_none(svf: SVF) -> None:
    assert svf.embed(random_scales(svf)) is None


def test_the_output_matrix_is_refused_with_a_reason(random_slm: SLM) -> None:
    with pytest.raises(UserError, match="lm_head, but the coordinator reads the hidden state below it"):
        decompose(random_slm, matrices=("q_proj", "lm_head"))
