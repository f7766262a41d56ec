"""Singular-value fine-tuning (SVF) of one layer's matrices, and of the token embeddings where asked for.

A matrix W = U diag(S) V^T gets one scale s for each singular value: W' = U diag(S s) V^T
(Transformer-Squared, arXiv 2501.06252; here in one layer only). Written as W + U diag(S (s - 1)) V^T, scales
of 1 are bitwise W.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from trinity.coordinator.slm import SLM, cache_folder
from trinity.errors import UserError

_log = logging.getLogger(__name__)

MATRICES = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
EMBEDDING = "embed_tokens"
_CACHE_VERSION = "svd-1"


@dataclass(frozen=True)
class Factors:
    """One matrix W (out, in) with its factors: U (out, r), S (r,) descending, V^T (r, in), float32."""

    weight: Tensor
    u: Tensor
    s: Tensor
    vt: Tensor


class SVF:
    """The adapted matrices of one layer, as a function of the scales.

    Args:
        layer: its index.
        factors: by the parameter's name in the layer, e.g. "self_attn.q_proj.weight".
        energy_preserving: W' is also multiplied by sum(S) / sum(S s), so that the scales move energy between
            singular directions and add none.
        embedding: factors of the token embeddings, if these are adapted too.
    """

    def __init__(
        self,
        layer: int,
        factors: dict[str, Factors],
        energy_preserving: bool = False,
        embedding: Factors | None = None,
    ) -> None:
        self.layer = layer
        self.factors = factors
        self.energy_preserving = energy_preserving
        self.embedding = embedding

    @property
    def counts(self) -> dict[str, int]:
        """How many scales each matrix has, the embedding's last."""
        counts = {name: len(f.s) for name, f in self.factors.items()}
        return counts if self.embedding is None else {**counts, EMBEDDING: len(self.embedding.s)}

    @property
    def n_scales(self) -> int:
        """How many scales there are in all."""
        return sum(self.counts.values())

    def weights(self, scales: Tensor) -> dict[str, Tensor]:
        """Scales (n_scales,) -> the layer's W' by parameter name, in W's dtype; differentiable in the scales.

        The scales' order is that of the matrices, within a matrix that of its singular values, descending.
        """
        pieces = self._pieces(scales)
        return {
            name: self._adapted(f, pieces[name].to(f.s.device, torch.float32), slice(None))
            for name, f in self.factors.items()
        }

    def embed(self, scales: Tensor) -> Callable[[Tensor], Tensor] | None:
        """Scales (n_scales,) -> token ids (T,) -> rows (T, d) of the adapted embedding; None without one.

        The whole adapted matrix, hundreds of megabytes for each candidate, is never made.
        """
        f = self.embedding
        if f is None:
            return None
        scale = self._pieces(scales)[EMBEDDING].to(f.s.device, torch.float32)
        return lambda ids: self._adapted(f, scale, ids)

    def _pieces(self, scales: Tensor) -> dict[str, Tensor]:
        return dict(zip(self.counts, torch.split(scales, list(self.counts.values())), strict=True))

    def _adapted(self, f: Factors, scale: Tensor, rows: slice | Tensor) -> Tensor:
        """Those rows of W'."""
        adapted = f.weight[rows].float() + (f.u[rows] * (f.s * (scale - 1))) @ f.vt
        if self.energy_preserving:
            adapted = adapted * (f.s.sum() / (f.s * scale).sum())
        return adapted.to(f.weight.dtype)


def decompose(
    slm: SLM,
    *,
    layer: int | None = None,
    matrices: Sequence[str] = MATRICES,
    energy_preserving: bool = False,
    cache_dir: str | None = None,
) -> SVF:
    """Decompose a layer's matrices, once: the factors are kept on disk by the hash of the weights.

    Args:
        slm: the model.
        layer: None is the second to last.
        matrices: which of `MATRICES`, and `embed_tokens` for the token embeddings.
        energy_preserving: see `SVF`.
        cache_dir: where the factors are kept; None is the cache's usual place.

    Raises:
        UserError: for a matrix or layer that the model doesn't have.
    """
    index = slm.layers - 2 if layer is None else layer
    _check(slm, index, matrices)
    folder = cache_folder(cache_dir) / "svd"
    block = slm.decoder.get_submodule(f"layers.{index}")
    factors: dict[str, Factors] = {}
    for matrix in (name for name in MATRICES if name in matrices):
        name = f"{'self_attn' if matrix in MATRICES[:4] else 'mlp'}.{matrix}.weight"
        try:
            weight = block.get_parameter(name).detach()
        except AttributeError:
            raise UserError(f"Layer {index} of {slm.name} has no {name}; SVF needs it.") from None
        factors[name] = _factorise(weight, folder)
    embedding = _factorise(_embedding(slm), folder) if EMBEDDING in matrices else None
    return SVF(index, factors, energy_preserving, embedding)


def _check(slm: SLM, index: int, matrices: Sequence[str]) -> None:
    if "lm_head" in matrices:
        raise UserError(
            "svf.matrices names lm_head, but the coordinator reads the hidden state below it, so that its "
            "scales could change no decision; leave it out."
        )
    unknown = [name for name in matrices if name not in (*MATRICES, EMBEDDING)]
    if unknown or not matrices:
        raise UserError(
            f"svf.matrices holds {unknown or 'nothing'}; choose from {', '.join(MATRICES)}, {EMBEDDING}."
        )
    if not 0 <= index < slm.layers:
        raise UserError(f"svf.layer is {index}, but {slm.name} has the layers 0 to {slm.layers - 1}.")


def _embedding(slm: SLM) -> Tensor:
    """The matrix of the token embeddings, where the model looks its rows up and does nothing else."""
    embedding = getattr(slm.decoder, EMBEDDING, None)
    if type(embedding) is not nn.Embedding:
        raise UserError(f"{slm.name} has no plain {EMBEDDING} that SVF could adapt; leave it out.")
    return embedding.weight.detach()


def _factorise(weight: Tensor, folder: Path) -> Factors:
    """The factors of W (out, in), from the cache where it holds them."""
    exact = weight.float().cpu().contiguous()
    key = hashlib.sha256(f"{_CACHE_VERSION} {tuple(exact.shape)} ".encode())
    key.update(exact.numpy().tobytes())
    path = folder / f"{key.hexdigest()}.safetensors"
    found = _read(path)
    if not _fits(found, exact):
        u, s, vt = torch.linalg.svd(exact, full_matrices=False)
        found = {"u": u.contiguous(), "s": s, "vt": vt.contiguous()}
        _write(path, found)
    # Copied, as tensors of a file lie unaligned, and alignment can change the last bit of a product: whether
    # the factors were in the cache must not show.
    copies = {name: tensor.to(weight.device, copy=True) for name, tensor in found.items()}
    return Factors(weight, copies["u"], copies["s"], copies["vt"])


def _read(path: Path) -> dict[str, Tensor]:
    """The stored tensors; empty where there is no file that can be read."""
    try:
        return load_file(path)
    except (OSError, SafetensorError):
        return {}


def _fits(found: dict[str, Tensor], exact: Tensor) -> bool:
    """Whether stored factors are those of W: a damaged file may be readable all the same."""
    rows, columns = exact.shape
    rank = min(rows, columns)
    wanted = {"u": (rows, rank), "s": (rank,), "vt": (rank, columns)}
    if {name: tuple(t.shape) for name, t in found.items()} != wanted:
        return False
    error = (found["u"] * found["s"]) @ found["vt"] - exact
    return bool(error.norm() <= 1e-4 * exact.norm())


def _write(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write beside and rename, so that no reader ever sees half a file; without a cache all still works."""
    partial = path.with_name(f"{uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(tensors, partial)
        partial.replace(path)
    except (OSError, SafetensorError) as error:
        with suppress(OSError):
            partial.unlink()
        _log.warning("The decomposition can't be kept in %s: %s", path.parent, error)
