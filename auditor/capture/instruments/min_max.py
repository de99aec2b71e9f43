"""Between which numbers does a tensor lie, and is all of it finite? One reduction for both."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from auditor.capture.instruments.plain_tensor import plain
from auditor.recordings.schema import BirthInput


@dataclass(frozen=True)
class Range:
    """Smallest and largest element; NaN where there is one. An empty tensor has neither."""

    dtype: str
    low: float | None
    high: float | None

    @property
    def finite(self) -> bool:
        """True if every element is finite."""
        return (
            self.low is None
            or self.high is None
            or (math.isfinite(self.low) and math.isfinite(self.high))
        )

    @property
    def nan(self) -> bool:
        """True if an element is NaN."""
        return self.low is not None and math.isnan(self.low)

    @property
    def value(self) -> str:
        """``nan``, ``inf``, ``-inf`` (if nothing is ``inf``) or ``finite``."""
        if self.finite or self.high is None:
            return "finite"
        return "nan" if self.nan else "inf" if self.high == math.inf else "-inf"


def measure(tensor: torch.Tensor) -> Range | None:
    """The range of a tensor of plain floating or complex numbers; None for any other."""
    real = _real(tensor)
    if real is None:
        return None
    name = str(tensor.dtype).removeprefix("torch.")
    if real.numel() == 0:
        return Range(name, None, None)
    low, high = torch.aminmax(real)
    if real.is_cuda:
        low, high = torch.stack((low, high)).tolist()
    return Range(name, float(low), float(high))


def describe(tensor: torch.Tensor, before: Range, *, written: bool) -> BirthInput:
    """What a row says of an operator's input: the range of its finite part, and how much of it is
    not.

    Where the operator has written into it (``written``), only the range taken before is known.
    """
    dtype, shape = before.dtype, list(tensor.shape)
    if before.finite or written:
        known = before.finite
        low, high = (before.low, before.high) if known else (None, None)
        return BirthInput(
            dtype=dtype, shape=shape, min=low, max=high, share_nonfinite=0.0 if known else None
        )
    real = _real(tensor)
    assert real is not None
    finite = torch.isfinite(real)
    rest = real[finite]
    low, high = (float(each) for each in torch.aminmax(rest)) if rest.numel() else (None, None)
    return BirthInput(
        dtype=dtype,
        shape=shape,
        min=low,
        max=high,
        share_nonfinite=1.0 - rest.numel() / real.numel(),
    )


def _real(tensor: torch.Tensor) -> torch.Tensor | None:
    tensor = plain(tensor)
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        return None
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    if not tensor.is_floating_point():
        return None
    return (
        tensor if tensor.element_size() > 1 else tensor.to(torch.float32)
    )  # 8-bit floats have few operators
