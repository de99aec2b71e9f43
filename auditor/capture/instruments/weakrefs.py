"""Weak references to tensors."""

from __future__ import annotations

from typing import TypeVar
from weakref import ref

import torch

from auditor.capture.instruments.torch_private.tensors import fix_weakref

T = TypeVar("T", bound=torch.Tensor | torch.UntypedStorage)


def alive(reference: ref[T]) -> T | None:
    """The tensor (or storage) that a weak reference names; None once it is gone.

    What Python has let go and C++ still holds is brought back by the reference, and torch must be
    told so: else it frees the Python object beneath whoever uses it now (``torch.utils.weak`` does
    the same).
    """
    found = reference()
    if found is not None:
        fix_weakref(found)
    return found
