"""Convolutions and matrix products in half precision, where the CPU has no fast kernel for them:
computed in float32, then rounded.

A GPU does the same: cuDNN and cuBLAS accumulate half-precision products in float32. The CPU's own
kernels for these take 60 to 100 times as long as those for float32 wherever oneDNN cannot help
(measured on AVX2; float16 gradients of convolutions everywhere).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch

FORWARD: Final = frozenset({"convolution", "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"})
BACKWARD: Final = frozenset({"convolution_backward"})
HALVES: Final = (torch.float16, torch.bfloat16)


def through_float32(name: str) -> bool:
    """Whether the operator is one of those that may have to be computed in float32."""
    return name in FORWARD or name in BACKWARD


def slow_dtype(name: str, args: list[Any]) -> torch.dtype | None:
    """The half dtype of the operator's first argument, if this CPU has no fast kernel for it."""
    dtype = args[0].dtype
    return (
        dtype
        if dtype in HALVES and not (_fast(dtype) and (name in FORWARD or dtype == torch.bfloat16))
        else None
    )


def in_float32(
    func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], dtype: torch.dtype
) -> Any:
    """The results of ``func``, computed in float32 and rounded to ``dtype``."""
    result = func(*map(_wide, args), **kwargs)
    return (
        tuple(_rounded(one, dtype) for one in result)
        if isinstance(result, tuple)
        else _rounded(result, dtype)
    )


@cache
def _fast(dtype: torch.dtype) -> bool:
    """Whether oneDNN has kernels for this dtype on this CPU."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    name = "_is_mkldnn_fp16_supported" if dtype == torch.float16 else "_is_mkldnn_bf16_supported"
    # a torch that does not tell counts as slow: float32 is always right
    supported = getattr(torch.ops.mkldnn, name, None)
    return supported is not None and bool(supported())


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in HALVES else value


def _rounded(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, torch.Tensor) else value
