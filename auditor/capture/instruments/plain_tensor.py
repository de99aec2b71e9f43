"""The values of a tensor, wherever it seems to lie; its bytes, and the tensors of an argument."""

import ctypes
import hashlib
import os
from collections.abc import Iterable
from typing import Any, Final

import torch

from auditor.capture.instruments.torch_private.tensors import key_of, stored_values


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


TORCH: Final = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
"""The folder of the package, with a separator at its end."""


SHADOW = "ShadowTensor"
"""Name of the class of tensors on the shadow device (``auditor.capture.shadow.tensor``)."""


def bytes_of(tensor: torch.Tensor) -> int:
    """Bytes of its elements; 0 of one that has none of its own (sparse)."""
    return int(tensor.nbytes) if tensor.layout == torch.strided else 0


def bytes_kept(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes of memory that they keep: of a view, its whole, and each memory once."""
    kept: dict[int, int] = {}
    for each in map(plain, tensors):
        try:
            storage = each.untyped_storage()
            kept[int(key_of(storage))] = int(storage.nbytes())
        except (NotImplementedError, RuntimeError):  # sparse, or a subclass without one
            kept[id(each)] = bytes_of(each)
    return sum(kept.values())


def content(tensor: torch.Tensor, most: int | None = None) -> bytes:
    """At most ``most`` bytes of a contiguous tensor on the CPU. No operator runs for it."""
    size = tensor.nbytes if most is None else min(most, tensor.nbytes)
    return ctypes.string_at(tensor.data_ptr(), size) if size else b""


def tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    """All tensors in nested lists, tuples and dictionaries."""
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += tensors(value)
        elif isinstance(value, dict):
            found += tensors(value.values())
    return found


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself; of one on the shadow device the CPU tensor that holds its values.

    What is computed from that is no operator of the device, takes none of its memory and makes no
    thread wait.
    """
    if type(tensor).__name__ != SHADOW:
        return tensor
    inner: torch.Tensor = vars(tensor).get("_inner", tensor)
    return inner
