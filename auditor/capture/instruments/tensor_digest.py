"""Tensors told apart by digests, and whether all that they hold is finite."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch

from auditor.capture.instruments.torch_private.tensors import stored_values


def digest(tensors: Iterable[torch.Tensor]) -> str:
    """16 hexadecimal digits that differ where any bit, shape or dtype does. Slow on a GPU."""
    total = hashlib.blake2b(digest_size=8)
    for tensor in tensors:
        total.update(_content(tensor.detach()))
    return total.hexdigest()


def _content(tensor: torch.Tensor) -> bytes:
    """Kind, shape and values; only the kind where torch cannot copy values (meta, nested)."""
    try:
        plain = (
            (tensor.to_dense() if tensor.layout is not torch.strided else tensor).cpu().contiguous()
        )
        values = plain.reshape(-1).view(torch.uint8).numpy().tobytes() if plain.numel() else b""
        return f"{plain.dtype}{tuple(plain.shape)}".encode() + values
    except RuntimeError:
        return f"{type(tensor).__name__}{tensor.dtype}".encode()


def finite(tensor: torch.Tensor) -> bool:
    """True if every element is, as integers are, or torch cannot tell (float8)."""
    if not (tensor.dtype.is_floating_point or tensor.dtype.is_complex) or tensor.is_meta:
        return True
    values = (
        stored_values(tensor.detach()) if tensor.layout is torch.sparse_coo else tensor.detach()
    )
    try:
        return bool(torch.isfinite(values).all())
    except RuntimeError:
        return True
