"""The values of a tensor, wherever it seems to lie."""

from __future__ import annotations

import torch

SHADOW = "ShadowTensor"
"""Name of the class of tensors on the shadow device (``auditor.capture.shadow.tensor``)."""


def bytes_of(tensor: torch.Tensor) -> int:
    """Bytes of its elements; 0 of one that has none of its own (sparse)."""
    return int(tensor.nbytes) if tensor.layout == torch.strided else 0


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself; of one on the shadow device the CPU tensor that holds its values.

    What is computed from that is no operator of the device, takes none of its memory and makes
    nobody wait.
    """
    if type(tensor).__name__ != SHADOW:
        return tensor
    inner: torch.Tensor = vars(tensor).get("_inner", tensor)
    return inner
