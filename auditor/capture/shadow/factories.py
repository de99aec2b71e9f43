"""Functions that make tensors: ``device="cuda"`` and a default device send them to the shadow."""

from __future__ import annotations

import functools
from collections.abc import Callable
from numbers import Integral
from typing import Any

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.dispatch import (
    DeviceContext,
    DisableTorchFunctionSubclass,
    count_function_modes,
    function_modes,
    made_on_default_device,
)
from auditor.capture.shadow.copies import mark_pinned, tell_upload, to_device, to_host
from auditor.capture.shadow.current import CPU, must_be_the_process
from auditor.capture.shadow.moving import device_of, on_cuda
from auditor.capture.shadow.tensor import ShadowTensor, wrap

Tensor = torch.Tensor
_TENSOR = torch.tensor

LIKE = tuple(
    "empty_like full_like ones_like zeros_like rand_like randn_like randint_like normal".split()
)
NEW = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")
DATA = ("tensor", "as_tensor", "asarray")


def default_device() -> torch.device | None:
    """What ``torch.set_default_device`` or ``with torch.device(...)`` says where we are."""
    if not count_function_modes():
        return None
    for mode in function_modes():
        if isinstance(mode, DeviceContext):
            return mode.device  # type: ignore[no-any-return]
    return None


def install(patches: Patches) -> None:
    """Route every factory of torch, and the ``new_*`` methods of host tensors."""
    # filled now: it holds torch's own functions, and is kept
    constructors = made_on_default_device()
    names = {name for name in dir(torch) if _is_one_of(getattr(torch, name), constructors)}
    for name in sorted(names - {*DATA, *LIKE}):
        patches.attribute(torch, name, _factory(getattr(torch, name), by_default=True))
    for name in LIKE:
        patches.attribute(torch, name, _factory(getattr(torch, name), by_default=False))
    for name in ("fftfreq", "rfftfreq"):
        patches.attribute(torch.fft, name, _factory(getattr(torch.fft, name), by_default=True))
    for name in DATA:
        patches.attribute(torch, name, _from_data(getattr(torch, name), name))
    for name in NEW:
        patches.attribute(Tensor, name, _factory(getattr(Tensor, name), by_default=False))
    patches.attribute(Tensor, "new_tensor", _new_tensor(Tensor.new_tensor))
    patches.attribute(Tensor, "new", _new(Tensor.new))


def _is_one_of(value: Any, constructors: set[Any]) -> bool:
    try:
        return value in constructors
    except TypeError:  # unhashable
        return False


def _factory(original: Callable[..., Any], *, by_default: bool) -> Callable[..., Any]:
    """``by_default``: of numbers, on the default device; else like the tensor that is given."""

    @functools.wraps(original)
    def factory(*args: Any, **kwargs: Any) -> Any:
        said = kwargs.get("device")
        device = device_of(said) if said is not None else (default_device() if by_default else None)
        if device is None and not kwargs.get("pin_memory"):
            if by_default:
                _check_generator(kwargs.get("generator"), "cpu")
            given = [one for one in (*args, *kwargs.values()) if isinstance(one, ShadowTensor)]
            if not by_default or any(one.dim() for one in given):
                return original(*args, **kwargs)
            return original(*map(_number, args), **_numbers(kwargs))
        like = 0 if by_default or original.__name__ == "normal" else 1
        args, kwargs = (*args[:like], *map(_number, args[like:])), _numbers(kwargs)
        if on_cuda(device):
            return _on_device(original, args, kwargs)
        return _on_host(original, args, kwargs)

    return factory


def _on_device(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    must_be_the_process()
    _check_generator(kwargs.get("generator"), "cuda")
    kwargs = {**kwargs, "device": CPU}
    kwargs.pop("pin_memory", None)
    requires_grad = kwargs.pop("requires_grad", False)
    with DisableTorchFunctionSubclass():
        made = original(
            *_inner(args), **dict(zip(kwargs, _inner(tuple(kwargs.values())), strict=True))
        )
        shadow = wrap(made.detach())
    return shadow.requires_grad_() if requires_grad else shadow


def _on_host(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An explicit host: what is like a shadow becomes plain; ``pin_memory`` needs only a mark."""
    pinned = kwargs.get("pin_memory", False)
    kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
    _check_generator(kwargs.get("generator"), "cpu")
    with DisableTorchFunctionSubclass():
        made = original(*_inner(args), **kwargs)
    return mark_pinned(made) if pinned else made


def _inner(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value._inner if isinstance(value, ShadowTensor) else value for value in values)


def _number(value: Any) -> Any:
    """Where torch wants a number (the value of ``full``, the end of ``arange``, a size) it reads a
    0-dim tensor (python_arg_parser.cpp, RangeFactories.cpp: item()); one with a graph it refuses.
    """
    if isinstance(value, (tuple, list)) and any(isinstance(one, ShadowTensor) for one in value):
        return [_number(one) for one in value]
    if not isinstance(value, ShadowTensor) or value.dim():
        return value
    return value._inner.detach().requires_grad_() if value.requires_grad else value.item()


def _numbers(kwargs: dict[str, Any]) -> dict[str, Any]:
    tensors = ("input", "self", "out")
    return {name: one if name in tensors else _number(one) for name, one in kwargs.items()}


def _check_generator(generator: Any, wanted: str) -> None:
    if generator is not None and generator.device.type != wanted:
        raise RuntimeError(
            f"Expected a '{wanted}' device type for generator but found '{generator.device.type}'"
        )


def _from_data(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    copies = name == "tensor"

    @functools.wraps(original)
    def from_data(data: Any = None, *args: Any, **kwargs: Any) -> Any:
        data = kwargs.pop("data", data) if "data" in kwargs else kwargs.pop("obj", data)
        if name == "as_tensor":  # the only one that takes dtype and device by position
            kwargs.update(zip(("dtype", "device"), args, strict=False))
        said = kwargs.pop("device", None)
        device = device_of(said) if said is not None else default_device()
        if device is None and isinstance(data, Tensor):
            device = data.device
        return _made(original, data, device, {**kwargs, "copy": copies or kwargs.get("copy")})

    return from_data


def _new_tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def new_tensor(self: Tensor, data: Any, **kwargs: Any) -> Any:
        said = kwargs.pop("device", None)
        kwargs.setdefault("dtype", self.dtype)
        return _made(_TENSOR, data, device_of(said) or self.device, {**kwargs, "copy": True})

    return new_tensor


def _made(
    original: Callable[..., Any], data: Any, device: torch.device | None, options: dict[str, Any]
) -> Any:
    """The tensor of ``data`` on ``device``; ``options`` are the factory's, with ``copy``."""
    copy = options.pop("copy")
    requires_grad = options.pop("requires_grad", False)
    pinned = options.pop("pin_memory", False)
    if isinstance(data, ShadowTensor) or (isinstance(data, Tensor) and on_cuda(device)):
        made = _from_tensor(data, device, options.get("dtype"), copy=bool(copy))
    else:
        data = _read(data) if isinstance(data, (list, tuple)) else data
        if getattr(original, "__name__", "") == "asarray" and copy is not None:
            options["copy"] = copy
        made = (
            original(data, **options)
            if device is None
            else original(data, device=CPU if on_cuda(device) else device, **options)
        )
        made = mark_pinned(made) if pinned else made
        if on_cuda(device):
            made = _sent(made, data)
    return made.requires_grad_() if requires_grad else made


def _read(data: Any) -> Any:
    """Lists with device tensors: the host reads each in turn (tensor_new.cpp: item())."""
    if isinstance(data, ShadowTensor):
        return data.item() if data.dim() == 0 else [_read(one) for one in data]
    if isinstance(data, (list, tuple)):
        return [_read(one) for one in data]
    return data


def _from_tensor(
    data: Tensor, device: torch.device | None, dtype: torch.dtype | None, *, copy: bool
) -> Tensor:
    source = data.detach() if copy else data
    target = dtype or data.dtype
    shadow = isinstance(data, ShadowTensor)
    if shadow == on_cuda(device):
        return source.to(target, copy=copy)
    return (
        to_device(source, target, operator="torch.tensor")
        if on_cuda(device)
        else to_host(source, target)
    )


def _sent(host: Tensor, data: Any) -> Tensor:
    """Made on the host, then copied (tensor_new.cpp: ``tensor.to(device, non_blocking=False)``)."""
    must_be_the_process()
    first = data
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    constant = isinstance(first, (int, float, complex))
    tell_upload(host, None, non_blocking=False, operator="torch.tensor", constant=constant)
    with DisableTorchFunctionSubclass():
        return wrap(host.detach().clone())


def legacy_new(args: tuple[Any, ...], dtype: torch.dtype) -> Any:
    """What ``torch.cuda.FloatTensor(*args)`` makes: of sizes, of data, or the same tensor again."""
    if not args or isinstance(args[0], (Integral, torch.Size)):
        return torch.empty(*(args or (0,)), dtype=dtype, device="cuda")
    if isinstance(args[0], ShadowTensor) and args[0].dtype == dtype:
        return args[0].detach()
    return torch.tensor(args[0], dtype=dtype, device="cuda")


def _new(original: Callable[..., Any]) -> Callable[..., Any]:
    """``tensor.new(...)``, the oldest of them: torch's own L-BFGS makes its zeros with it."""

    @functools.wraps(original)
    def new(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        dense = isinstance(self, ShadowTensor) and self.layout == torch.strided and not kwargs
        return legacy_new(args, self.dtype) if dense else original(self, *args, **kwargs)

    return new
