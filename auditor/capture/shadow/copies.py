"""Copies between host and shadow: who waits, how many bytes cross, and the graph that goes through.

Who waits is read from aten/src/ATen/native/cuda/Copy.cu: without ``non_blocking`` every copy ends
in memcpy_and_sync, pinned or not. With it, host to device never waits (pageable memory is staged
first) and device to host waits only where the target is pageable. A conversion of dtype runs on the
host in a blocking copy from the host, else on the device.
"""

from __future__ import annotations

from typing import Any

import torch

from auditor.capture.instruments.torch_private.dispatch import DisableTorchFunctionSubclass
from auditor.capture.instruments.torch_private.tensors import foreach_copy
from auditor.capture.shadow.current import HERE, must_be_the_process, tell
from auditor.capture.shadow.storages import parts
from auditor.capture.shadow.tensor import ShadowTensor, wrap

Tensor = torch.Tensor
_PINNED = "_auditor_pinned"


def pin(tensor: Tensor) -> Tensor:
    """A page-locked copy, by its mark: views share the storage and so the mark."""
    if is_pinned(tensor):
        return tensor
    return mark_pinned(tensor.clone())


def mark_pinned(tensor: Tensor) -> Tensor:
    """Say of fresh host memory that it is page-locked."""
    if tensor.layout == torch.strided:
        setattr(tensor.untyped_storage(), _PINNED, True)
    return tensor


def is_pinned(tensor: Tensor) -> bool:
    """True for page-locked host memory."""
    if isinstance(tensor, ShadowTensor) or tensor.layout != torch.strided:
        return False
    return getattr(tensor.untyped_storage(), _PINNED, False)


def _sent(source: Tensor, itemsize: int) -> int:
    if source.layout == torch.strided:
        return source.numel() * itemsize
    return sum(part.nbytes for part in parts(source))


def tell_upload(
    source: Tensor,
    dtype: torch.dtype | None,
    non_blocking: bool,
    operator: str,
    *,
    constant: bool = False,
) -> None:
    """Report a host-to-device copy of ``source``, converted to ``dtype``."""
    if source.numel() == 0:
        return
    size = (dtype or source.dtype).itemsize if not non_blocking else source.element_size()
    pinned = is_pinned(source)
    tell(
        "copy",
        operator,
        _sent(source, size),
        "h2d",
        pinned=pinned,
        blocking=not non_blocking,
        constant=constant,
        subject=source,
    )


def tell_download(
    source: Tensor,
    dtype: torch.dtype | None,
    non_blocking: bool,
    operator: str,
    kind: str,
    *,
    pinned: bool,
) -> None:
    """Report a device-to-host copy of ``source``; ``pinned`` is the target."""
    if source.numel() == 0:
        return
    size = source.element_size() if not non_blocking else (dtype or source.dtype).itemsize
    blocking = not (non_blocking and pinned)
    tell(
        kind,
        operator,
        _sent(source, size),
        "d2h",
        pinned=pinned,
        blocking=blocking,
    )


class ToDevice(torch.autograd.Function):
    """Host to device, with a graph."""

    @staticmethod
    def forward(
        ctx: Any, source: Tensor, dtype: torch.dtype | None, memory_format: torch.memory_format
    ) -> ShadowTensor:
        """A copy of ``source`` on the device."""
        ctx.dtype = source.dtype
        return wrap(_copy(source, dtype, memory_format))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        """The gradient comes back to the host, and the engine waits for it."""
        return to_host(grad, ctx.dtype, operator="ToCopyBackward"), None, None


class ToHost(torch.autograd.Function):
    """Device to host, with a graph."""

    @staticmethod
    def forward(
        ctx: Any,
        source: ShadowTensor,
        dtype: torch.dtype | None,
        memory_format: torch.memory_format,
    ) -> Tensor:
        """A copy of ``source`` on the host."""
        ctx.dtype = source.dtype
        return _copy(source._inner, dtype, memory_format)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # type: ignore[override]
        """The gradient goes to the device."""
        return to_device(grad, ctx.dtype, operator="ToCopyBackward"), None, None


def _copy(tensor: Tensor, dtype: torch.dtype | None, memory_format: torch.memory_format) -> Tensor:
    return tensor.detach().to(dtype=dtype or tensor.dtype, copy=True, memory_format=memory_format)


def to_device(
    tensor: Tensor,
    dtype: torch.dtype | None = None,
    *,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
    operator: str = "Tensor.to",
    constant: bool = False,
) -> Tensor:
    """A host tensor's copy on the device."""
    must_be_the_process()
    tell_upload(tensor, dtype, non_blocking, operator, constant=constant)
    with DisableTorchFunctionSubclass():
        if tensor.requires_grad and torch.is_grad_enabled():
            return ToDevice.apply(tensor, dtype, memory_format)  # type: ignore[no-any-return,no-untyped-call]
        return wrap(_copy(tensor, dtype, memory_format))


def to_host(
    tensor: Tensor,
    dtype: torch.dtype | None = None,
    *,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
    operator: str = "Tensor.to",
    kind: str = "to_cpu",
) -> Tensor:
    """A device tensor's copy on the host; torch pins it where the copy does not block."""
    assert isinstance(tensor, ShadowTensor)
    tell_download(tensor, dtype, non_blocking, operator, kind, pinned=non_blocking)
    with DisableTorchFunctionSubclass():
        if tensor.requires_grad and torch.is_grad_enabled():
            host: Tensor = ToHost.apply(tensor, dtype, memory_format)  # type: ignore[no-untyped-call]
        else:
            host = _copy(tensor._inner, dtype, memory_format)
    return mark_pinned(host) if non_blocking else host


_COPIERS = frozenset(
    {Tensor.copy_, Tensor.__setitem__, foreach_copy, Tensor.index_copy_, Tensor.set_}
)


def copied(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Before ``copy_`` runs: report it if it joins host and device because the program said so.

    Inside other operators a plain tensor is one that torch allocated with ``self.options()``: on
    CUDA it lies on the device.
    """
    target, source = args[0], args[1]
    up = isinstance(target, ShadowTensor)
    if up == isinstance(source, ShadowTensor) or (
        HERE.function is not None and HERE.function not in _COPIERS
    ):
        return
    non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    if not up:
        tell_download(
            source, target.dtype, non_blocking, "aten::copy_", "to_cpu", pinned=is_pinned(target)
        )
    else:  # with them x[0, 0] = 1.0: python_variable_indexing.cpp makes the number a host tensor, which is copied
        tell_upload(source, target.dtype, non_blocking, "aten::copy_", constant=HERE.constant)
