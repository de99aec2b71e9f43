"""The shadow tensor: CUDA's dispatch keys over the CPU's storage, kernels and autograd."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from auditor.capture.instruments.storages import parts
from auditor.capture.instruments.torch_private.dispatch import (
    DisableTorchFunctionSubclass,
    functorch_level,
    is_functorch_wrapped,
    make_subclass,
)
from auditor.capture.instruments.torch_private.tensors import foreach_copy
from auditor.capture.shadow.current import CUDA, HERE, PLAYING, must_be_the_process, refuse, tell

Tensor = torch.Tensor

LEGACY_TYPES = {
    torch.float32: "Float",
    torch.float64: "Double",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.int64: "Long",
    torch.int32: "Int",
    torch.int16: "Short",
    torch.int8: "Char",
    torch.uint8: "Byte",
    torch.bool: "Bool",
}
"""dtype -> the name in ``torch.cuda.FloatTensor``."""


class Rooms:
    """What the class hands on; set by the modules that do it, since they need the class."""

    functions: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
    operators: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
    pickled: Callable[[Any, Any], Any]


def wrap(inner: Tensor) -> ShadowTensor:
    """The shadow of a CPU tensor without a graph; both share one storage."""
    shadow: ShadowTensor = make_subclass(ShadowTensor, inner, False, device_for_backend_keys=CUDA)
    shadow._inner = inner
    playing = PLAYING[0]
    if playing is not None and playing.listener.tracks_memory:
        playing.track(inner)
    return shadow


class ShadowTensor(Tensor):
    """A tensor on the shadow device. ``_inner`` is the plain CPU tensor that holds its values."""

    _inner: Tensor

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not all(issubclass(each, Tensor) for each in types):
            return NotImplemented  # theirs is asked, which calls again with tensors
        return Rooms.functions(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return Rooms.operators(func, args, kwargs or {})

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """``cuda:0``."""
        return CUDA

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        """True."""
        return True

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        """False."""
        return False

    def get_device(self) -> int:
        """0, the only device there is."""
        return 0

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        tell("print", "Tensor.__repr__", self.nbytes, "d2h")
        with DisableTorchFunctionSubclass(), torch.no_grad():
            text = repr(self._inner.detach())
        ending = f", device='{CUDA}'"
        if self.grad_fn is not None:
            ending += f", grad_fn=<{type(self.grad_fn).__name__}>"
        elif self.requires_grad:
            ending += ", requires_grad=True"
        text = f"{text[:-1]}{ending})"
        return f"Parameter containing:\n{text}" if isinstance(self, torch.nn.Parameter) else text

    def __format__(self, spec: str) -> str:
        if self.dim() == 0 and not isinstance(self, torch.nn.Parameter):
            return self.item().__format__(spec)
        return object.__format__(self, spec)

    def tolist(self) -> Any:
        """As on CUDA: one copy to the host, then Python numbers."""
        tell("tolist", "Tensor.tolist", self.nbytes, "d2h")
        return self._inner.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """TypeError, as on CUDA, unless ``force``."""
        if force:
            return self.detach().cpu().resolve_conj().resolve_neg().numpy()
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )

    def __array__(self, dtype: Any = None) -> Any:
        return self.numpy()

    def share_memory_(self) -> ShadowTensor:
        """Nothing to do: device memory is shared by its handle."""
        return self

    def is_shared(self) -> bool:
        """True, as for every CUDA tensor."""
        return True

    def record_stream(self, stream: Any) -> None:
        """Nothing to do: there is one stream."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment."
            )
        with torch.no_grad():
            copy: Any = wrap(self._inner.clone())
        copy = (
            torch.nn.Parameter(copy, self.requires_grad)
            if isinstance(self, torch.nn.Parameter)
            else copy.requires_grad_(self.requires_grad)
        )
        memo[id(self)] = copy
        if self.grad is not None:
            copy.grad = self.grad.__deepcopy__(memo)
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Rooms.pickled(self, protocol)

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        refuse(
            "Tensor.__dlpack__",
            "device memory cannot be handed to another library without a device",
        )

    @property
    def __cuda_array_interface__(self) -> Any:
        refuse(
            "Tensor.__cuda_array_interface__",
            "device memory cannot be handed to another library without a device",
        )


class Quietly:
    """Inside, reads are part of what was told, or checks that CUDA does not make."""

    def __enter__(self) -> None:
        self._before = HERE.quiet
        HERE.quiet = True

    def __exit__(self, *_: object) -> None:
        HERE.quiet = self._before


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
    tell(kind, operator, _sent(source, size), "d2h", pinned=pinned, blocking=blocking)


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


_BY_NAME = {name: dtype for dtype, name in LEGACY_TYPES.items()}


def device_of(said: Any) -> torch.device | None:
    """The device of ``"cuda:0"``, ``0`` or a torch.device; RuntimeError for a GPU not there."""
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
    """``tensor.type()``, also with a dtype, a name or a class (``torch.cuda.FloatTensor``)."""
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
