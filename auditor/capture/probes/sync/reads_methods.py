"""Patched methods of Tensor: transfers, which no operator shows on a CPU; and, on an older torch,
the reads as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from time import perf_counter
from types import FrameType, MethodType
from typing import Any, Final

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.tensors import print_tensor, tensor_printing
from auditor.capture.probes.sync import origin_marks
from auditor.capture.probes.sync.origin_marks import HOST, HOST_DEVICE
from auditor.capture.probes.sync.reads_log import ReadLog
from auditor.capture.probes.sync.reads_source import says_cpu

Method = Callable[..., Any]


class StandIn:
    """Takes a method's place on the class: binds like it, and equals it.

    torch hands ``torch.Tensor.to``, whatever that is at the time, to ``__torch_function__``: tables
    that subclasses have made by the original must still find it.
    """

    def __init__(self, original: Method, call: Method) -> None:
        self._original = original
        self._call = call

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As a function: ``torch.Tensor.cpu(x)``."""
        return self._call(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else MethodType(self._call, instance)

    def __eq__(self, other: object) -> bool:
        return other is self or other == self._original

    def __hash__(self) -> int:
        return hash(self._original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def watch_transfers(log: ReadLog, patches: Patches) -> None:
    """Patch ``cpu``, ``to``, ``numpy``, ``tolist``, ``copy_`` and the printing of tensors.

    ``__array__`` needs none: it calls ``numpy``.
    """
    tensor = torch.Tensor
    methods = {"cpu": _cpu(log, tensor.cpu), "to": _to(log, tensor.to)}
    methods.update(
        {name: _reading(log, getattr(tensor, name), name) for name in ("numpy", "tolist")}
    )
    if log.on_cuda or log.context.pass_name == "origin":
        methods["copy_"] = _copy(log, tensor.copy_)
    for name, call in methods.items():
        patches.attribute(tensor, name, StandIn(getattr(tensor, name), call))
    if print_tensor is not None:
        patches.attribute(
            tensor_printing, print_tensor.__name__, _reading(log, print_tensor, "print")
        )


def _inner(log: ReadLog, original: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the original; what it does inside is not counted again (under a function mode it calls us
    once more).
    """
    log.inside.reading = True
    try:
        return original(*args, **kwargs)
    finally:
        log.inside.reading = False


def _reading(
    log: ReadLog, original: Method, kind: str, counts: Callable[..., bool] | None = None
) -> Method:
    """``original``, counted as one read of its tensors if ``counts(*args, **kwargs)``."""

    def read(*args: Any, **kwargs: Any) -> Any:
        if (
            log.idle()
            or not _concerns(log, args)
            or (counts is not None and not counts(*args, **kwargs))
        ):
            return original(*args, **kwargs)
        started = perf_counter()
        result = _inner(log, original, args, kwargs)
        log.note(kind, args, started)
        return result

    return read


def _concerns(log: ReadLog, args: tuple[Any, ...]) -> bool:
    return bool(args) and isinstance(args[0], torch.Tensor) and log.concerns(args[0])


def _cpu(log: ReadLog, original: Method) -> Method:
    def cpu(*args: Any, **kwargs: Any) -> Any:
        if log.inside.reading or not _concerns(log, args):
            return original(*args, **kwargs)
        started = perf_counter()
        result = _inner(log, original, args, kwargs)
        return _arrived(log, "cpu", args[0], result, started)

    return cpu


def _arrived(
    log: ReadLog, kind: str, source: torch.Tensor, result: torch.Tensor, started: float
) -> torch.Tensor:
    """A transfer to the host is done: count it, and mark the copy."""
    if log.context.in_step:
        log.note(kind, (source,), started)
    copy = _to_host(log, source, result)
    log.remember(copy)
    return copy


def _to(log: ReadLog, original: Method) -> Method:
    def to(*args: Any, **kwargs: Any) -> Any:
        # Hot: clip_grad_norm_ moves each norm to the first one's device.
        device = kwargs.get("device", args[1] if len(args) > 1 else None)
        if (
            not isinstance(device, (str, torch.device))
            or log.inside.reading
            or not _concerns(log, args)
        ):
            return original(*args, **kwargs)
        crosses = log.on_cuda or says_cpu(sys._getframe(1))
        if not crosses and origin_marks.active() is None:
            return original(*args, **kwargs)
        started = perf_counter()
        result = _inner(log, original, args, kwargs)
        if torch.device(device).type != "cpu":
            return result
        if not crosses:
            return _to_device(log, args[0], result, device)
        if _non_blocking(args, kwargs):
            return _to_host(log, args[0], result)
        return _arrived(log, "to_cpu", args[0], result, started)

    return to


def _non_blocking(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """True for an asynchronous copy into pinned memory: the host does not wait for it."""
    flags = [value for value in args if isinstance(value, bool)]
    return bool(kwargs.get("non_blocking", flags[0] if flags else False))


def _copy(log: ReadLog, original: Method) -> Method:
    def copy_(*args: Any, **kwargs: Any) -> Any:
        if log.idle():
            return original(*args, **kwargs)
        started = perf_counter()
        result = _inner(log, original, args, kwargs)
        if len(args) > 1 and not _non_blocking(args, kwargs) and _crosses(log, args[0], args[1]):
            log.note("to_cpu", args[1:2], started)
        return result

    return copy_


def _crosses(log: ReadLog, into: torch.Tensor, source: Any) -> bool:
    if not isinstance(source, torch.Tensor):
        return False
    if log.on_cuda:
        return source.is_cuda and into.device.type == "cpu"
    origins = origin_marks.active()
    return origins is not None and origins.state(into) is HOST and origins.derived(source)


def _to_host(log: ReadLog, source: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
    origins = origin_marks.active()
    if origins is None or _moves_module(sys._getframe(1)):
        return result
    try:
        return origins.copied_to_host(source, result)
    except Exception as error:
        log.fail(error)
        return result


def _to_device(
    log: ReadLog, source: torch.Tensor, result: torch.Tensor, device: Any
) -> torch.Tensor:
    origins = origin_marks.active()
    if origins is None:
        return result
    try:
        module = _moves_module(sys._getframe(1))
        if device is HOST_DEVICE:
            return result if module else origins.copied_to_host(source, result)
        return origins.copied_to_device(source, result, alias=module)
    except Exception as error:
        log.fail(error)
        return result


def _moves_module(frame: FrameType | None) -> bool:
    """True inside ``Module.to()`` and ``Module.cpu()``: parameters must stay the storages that they
    are.
    """
    while frame is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename == _MODULE


_MODULE: Final = torch.nn.Module.to.__code__.co_filename


# On a torch without torch.library.get_kernel: fewer constructs, no operator that C++ calls by
# itself.

_SCALARS: Final = tuple(
    "item __bool__ __float__ __int__ __index__ __complex__ is_nonzero allclose".split()
)
_COUNTED: Final = {
    "nonzero": "nonzero",
    "argwhere": "nonzero",
    "masked_select": "masked_select",
    "unique": "unique",
    "unique_consecutive": "unique",
    "equal": "equal",
    "bincount": "bincount",
}


def watch_reads(log: ReadLog, patches: Patches) -> None:
    """Patch the methods and functions that read values: the fallback for kernel overrides.

    Not ``__getitem__`` and ``__setitem__``: a class that defines them in Python is a sequence to C,
    and ``torch.tensor([loss])`` would fail. So masks as an index are not seen.
    """
    for name, kind in {**dict.fromkeys(_SCALARS, "item"), **_COUNTED}.items():
        _patch(log, patches, torch.Tensor, name, kind)
        if not name.startswith("__"):
            _patch(log, patches, torch, name, kind)
    for owner in (torch.Tensor, torch):
        _patch(
            log, patches, owner, "repeat_interleave", "repeat_interleave", counts=_repeats_by_tensor
        )
    _patch(
        log,
        patches,
        torch,
        "where",
        "nonzero",
        counts=lambda *args, **kwargs: len(args) + len(kwargs) == 1,
    )
    one_hot = torch.nn.functional.one_hot
    patches.attribute(
        torch.nn.functional, "one_hot", _reading(log, one_hot, "item", _classes_unknown)
    )


def _patch(
    log: ReadLog,
    patches: Patches,
    owner: Any,
    name: str,
    kind: str,
    *,
    counts: Callable[..., bool] | None = None,
) -> None:
    original = getattr(owner, name, None)
    if original is not None:
        patches.attribute(owner, name, _reading(log, original, kind, counts))


def _repeats_by_tensor(*args: Any, **kwargs: Any) -> bool:
    repeats = args[1] if len(args) > 1 else kwargs.get("repeats", args[0])
    return isinstance(repeats, torch.Tensor) and kwargs.get("output_size") is None


def _classes_unknown(tensor: torch.Tensor, num_classes: int = -1) -> bool:
    return num_classes == -1
