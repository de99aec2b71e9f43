"""``Tensor.to``, ``.cuda``, ``.cpu`` and ``.type``, for host and device tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from auditor.capture.instruments.torch_private.dispatch import (
    DisableTorchFunctionSubclass,
    functorch_level,
    is_functorch_wrapped,
)
from auditor.capture.shadow.copies import to_device, to_host
from auditor.capture.shadow.current import CUDA, refuse
from auditor.capture.shadow.tensor import LEGACY_TYPES, ShadowTensor

Tensor = torch.Tensor
_BY_NAME = {name: dtype for dtype, name in LEGACY_TYPES.items()}


def device_of(said: Any) -> torch.device | None:
    """The device that ``"cuda"``, ``"cuda:0"``, ``0`` or a torch.device says; RuntimeError for a
    GPU that is not there.
    """
    if said is None:
        return None
    if isinstance(said, int) and not isinstance(said, bool):
        said = f"cuda:{said}"
    device = torch.device(said)
    if device.type == "cuda" and (device.index or 0) != 0:
        raise RuntimeError("CUDA error: invalid device ordinal")
    return device


def on_cuda(device: torch.device | None) -> bool:
    """True for the shadow device, by any of its names."""
    return device is not None and device.type == CUDA.type


@dataclass(frozen=True)
class Move:
    """What a call of ``Tensor.to`` asks for."""

    device: torch.device | None
    dtype: torch.dtype | None
    non_blocking: bool
    copy: bool
    memory_format: torch.memory_format


def parse(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Move:
    """The arguments of ``Tensor.to`` after ``self``: a tensor, a dtype, or a device first."""
    rest = list(args)
    said = dict(kwargs)
    first = rest[0] if rest else said.get("other")
    if isinstance(first, Tensor):
        rest[:1] = []
        said["device"], said["dtype"] = first.device, first.dtype
    elif isinstance(first, torch.dtype):
        said["dtype"] = rest.pop(0)
    elif rest:
        said["device"] = rest.pop(0)
        if rest:
            said["dtype"] = rest.pop(0)
    said.update(zip(("non_blocking", "copy"), rest, strict=False))
    return Move(
        device_of(said.get("device")),
        said.get("dtype"),
        bool(said.get("non_blocking")),
        bool(said.get("copy")),
        said.get("memory_format") or torch.preserve_format,
    )


def moved(
    original: Any,
    tensor: Tensor,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    operator: str = "Tensor.to",
    kind: str = "to_cpu",
) -> Tensor:
    """``tensor.to(*args, **kwargs)`` with the shadow among devices; ``original`` is torch's."""
    move = parse(args, kwargs)
    shadow = isinstance(tensor, ShadowTensor)
    # inside a transform of torch.func ``.device`` is the C++ one, the host: nothing crosses
    if is_functorch_wrapped(tensor) or (shadow and functorch_level() is not None):
        return _stay(tensor, move)
    if move.device is None or (
        on_cuda(move.device) == shadow and move.device.type in ("cpu", "cuda")
    ):
        return _stay(tensor, move) if shadow else original(tensor, *args, **kwargs)  # type: ignore[no-any-return]
    if torch.nn.parameter.is_lazy(tensor):
        refuse(operator, "a lazy module must run once before it goes to the device")
    dtype = None if move.dtype == tensor.dtype else move.dtype
    if on_cuda(move.device) and tensor.device.type == "cpu":
        return to_device(
            tensor,
            dtype,
            non_blocking=move.non_blocking,
            memory_format=move.memory_format,
            operator=operator,
        )
    if shadow and move.device.type == "cpu":
        return to_host(
            tensor,
            dtype,
            non_blocking=move.non_blocking,
            memory_format=move.memory_format,
            operator=operator,
            kind=kind,
        )
    with DisableTorchFunctionSubclass():
        return (
            tensor._inner.to(*args, **kwargs)
            if isinstance(tensor, ShadowTensor)
            else original(tensor, *args, **kwargs)
        )  # type: ignore[no-any-return]


_TO = Tensor.to


def _stay(tensor: Tensor, move: Move) -> Tensor:
    with DisableTorchFunctionSubclass():
        return _TO(
            tensor, move.dtype or tensor.dtype, copy=move.copy, memory_format=move.memory_format
        )


def as_type(
    original: Any, tensor: Tensor, dtype: Any = None, non_blocking: bool = False, **more: Any
) -> Any:
    """``tensor.type()`` with and without a target: a dtype, a name, or a class such as
    ``torch.cuda.FloatTensor``.
    """
    if dtype is None:
        with DisableTorchFunctionSubclass():
            return type_name(tensor) if isinstance(tensor, ShadowTensor) else original(tensor)
    if isinstance(dtype, torch.dtype):
        return moved(_TO, tensor, (dtype,), {}, operator="Tensor.type")
    name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
    scalar = name.rpartition(".")[2].removesuffix("Tensor")
    if scalar not in _BY_NAME:
        return original(tensor, dtype, non_blocking, **more)
    device = "cuda" if ".cuda." in name else "cpu"
    return moved(_TO, tensor, (device, _BY_NAME[scalar], non_blocking), {}, operator="Tensor.type")


def type_name(tensor: Tensor) -> str:
    """``torch.cuda.FloatTensor``."""
    return (
        f"torch.cuda.{LEGACY_TYPES.get(tensor.dtype, str(tensor.dtype).rpartition('.')[2])}Tensor"
    )
