"""A short digest of what a rank saves, which can be compared with another rank's."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist

from auditor.capture.instruments.plain_tensor import content

DEEP = 6
"""Dictionaries and lists in one another that are looked into."""

MOST = 4096
"""Tensors of which name, shape and dtype are read."""

READ = 64
"""Of these, tensors whose first numbers are read."""

NUMBERS = 1024

PLAIN = (torch.Tensor, torch.nn.Parameter)


def several_here() -> bool:
    """Whether the process is one of several ranks, more than one of them on this machine."""
    together = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    return together and os.environ.get("LOCAL_WORLD_SIZE") != "1"


def digest_of(saved: Any) -> str:
    """Of names, shapes and first numbers of the tensors in it; empty where there are none, too
    many, or one is a rank's part of a larger one.
    """
    whole = hashlib.blake2b(digest_size=8)
    number = -1
    for number, (name, tensor) in enumerate(_tensors("", saved, DEEP)):
        if type(tensor) not in PLAIN or tensor.layout is not torch.strided or number >= MOST:
            return ""
        whole.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        if number < READ and tensor.numel() and tensor.device.type != "meta":
            whole.update(_first(tensor))
    return whole.hexdigest() if number >= 0 else ""


def _tensors(name: str, saved: Any, deep: int) -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(saved, torch.Tensor):
        yield name, saved
    elif deep and isinstance(saved, Mapping):
        for key, value in saved.items():
            yield from _tensors(f"{name}.{key}", value, deep - 1)
    elif deep and isinstance(saved, (list, tuple)):
        for value in saved:
            yield from _tensors(f"{name}.", value, deep - 1)


def _first(tensor: torch.Tensor) -> bytes:
    with torch.no_grad():
        some = tensor.detach().reshape(-1)[:NUMBERS].cpu().contiguous()
    return content(some)
