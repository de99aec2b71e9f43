"""Kernels in Python at a dispatch key, for as long as the shadow plays."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch


def overload(name: str) -> Any:
    """The operator ``aten::name`` (``"prod.dim_int"``); None where this torch does not have it."""
    packet, _, rest = name.partition(".")
    try:
        return getattr(getattr(torch.ops.aten, packet), rest or "default")
    except AttributeError:
        return None


def register(
    library: Any, name: str, kernel: Callable[..., Any], key: str, *, with_keyset: bool = False
) -> None:
    """Let ``kernel`` be what ``aten::name`` does at ``key``, until the library is destroyed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is overridden is the point
        library.impl(name, kernel, key, with_keyset=with_keyset, allow_override=True)
