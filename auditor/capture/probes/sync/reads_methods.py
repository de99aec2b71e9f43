"""Patched methods of Tensor: transfers, and, on an older torch, the reads as well."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from types import MethodType
from typing import Any, Final

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.tensors import print_tensor, tensor_printing
from auditor.capture.probes.sync.reads_log import ReadLog

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
    methods = {
        "cpu": _cpu(log, tensor.cpu),
        "to": _to(log, tensor.to),
        "copy_": _copy(log, tensor.copy_),
    }
    methods.update(
        {name: _reading(log, getattr(tensor, name), name) for name in ("numpy", "tolist")}
    )
    for name, call in methods.items():
        patches.attribute(tensor, name, StandIn(getattr(tensor, name), call))
    if print_tensor is not None:
        patches.attribute(
            tensor_printing, print_tensor.__name__, _reading(log, print_tensor, "print")
        )


def _inner(log: ReadLog, original: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the original uncounted (under a function mode it calls us once more)."""
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
        _arrived(log, "cpu", args[0], result, started)
        return result

    return cpu


def _arrived(
    log: ReadLog, kind: str, source: torch.Tensor, result: torch.Tensor, started: float
) -> None:
    if log.context.in_step:
        log.note(kind, (source,), started)
    log.remember(result)


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
        started = perf_counter()
        result = _inner(log, original, args, kwargs)
        if torch.device(device).type == "cpu" and not _non_blocking(args, kwargs):
            _arrived(log, "to_cpu", args[0], result, started)
        return result

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
        into, source = (*args, None)[:2]
        read = isinstance(source, torch.Tensor) and source.is_cuda and into.device.type == "cpu"
        if read and not _non_blocking(args, kwargs):
            log.note("to_cpu", args[1:2], started)
        return result

    return copy_


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
    _patch(
        log,
        patches,
        torch.nn.functional,
        "one_hot",
        "item",
        counts=lambda tensor, num_classes=-1: num_classes == -1,
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
