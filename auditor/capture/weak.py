"""Weak references to tensors."""

from __future__ import annotations

from typing import TypeVar
from weakref import ref

import torch

T = TypeVar("T", bound=torch.Tensor | torch.UntypedStorage)


def alive(reference: ref[T]) -> T | None:
    """The tensor (or storage) that a weak reference names; None once it is gone.

    What Python has let go and C++ still holds is brought back by the reference, and torch must be told so: else it frees the
    Python object beneath whoever uses it now (``torch.utils.weak`` does the same).
    """
    found = reference()
    if found is not None and hasattr(found, "_fix_weakref"):
        found._fix_weakref()
    return found
