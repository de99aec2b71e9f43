"""Reads: every place where the host takes the value of a tensor on a GPU, and waits for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from time import perf_counter
from types import MethodType
from typing import Any, Final

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.dispatch import destroy
from auditor.capture.instruments.torch_private.tensors import print_tensor, tensor_printing
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.sync.reads_log import PART, ReadLog
from auditor.errors import fault

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
        {name: _method_reading(log, getattr(tensor, name), name) for name in ("numpy", "tolist")}
    )
    for name, call in methods.items():
        patches.attribute(tensor, name, StandIn(getattr(tensor, name), call))
    if print_tensor is not None:
        patches.attribute(
            tensor_printing, print_tensor.__name__, _method_reading(log, print_tensor, "print")
        )


def _inner(log: ReadLog, original: Method, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the original uncounted (under a function mode it calls us once more)."""
    log.inside.reading = True
    try:
        return original(*args, **kwargs)
    finally:
        log.inside.reading = False


def _method_reading(log: ReadLog, original: Method, kind: str) -> Method:
    """``original``, counted as one read of its tensors."""

    def read(*args: Any, **kwargs: Any) -> Any:
        if log.idle() or not _waits(args):
            return original(*args, **kwargs)
        started = perf_counter()
        result = _inner(log, original, args, kwargs)
        log.note(kind, args, started)
        return result

    return read


def _waits(args: tuple[Any, ...]) -> bool:
    """Whether reading the method's tensor makes the host wait."""
    return bool(args) and isinstance(args[0], torch.Tensor) and args[0].is_cuda


def _cpu(log: ReadLog, original: Method) -> Method:
    def cpu(*args: Any, **kwargs: Any) -> Any:
        if log.inside.reading or not _waits(args):
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
        if not isinstance(device, (str, torch.device)) or log.inside.reading or not _waits(args):
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
    **{name: name for name in ("nonzero", "masked_select", "unique", "equal", "bincount")},
    "argwhere": "nonzero",
    "unique_consecutive": "unique",
}


def watch_reads(log: ReadLog, patches: Patches) -> None:
    """Patch the methods and functions that read values: the fallback for kernel overrides.

    Not ``__getitem__`` and ``__setitem__``: a class that defines them in Python is a sequence to C,
    and ``torch.tensor([loss])`` would fail. So masks as an index are not seen, nor functions that
    read a value only where they are given some arguments.
    """
    for name, kind in {**dict.fromkeys(_SCALARS, "item"), **_COUNTED}.items():
        for owner in (torch.Tensor,) if name.startswith("__") else (torch.Tensor, torch):
            original = getattr(owner, name, None)
            if original is not None:
                patches.attribute(owner, name, _method_reading(log, original, kind))


class ReadsProbe(Probe):
    """Counts reads by place and kind, of a run on CUDA; those of a rehearsal are the shadow's.

    Operators that need a value on the host are overridden at the dispatch key of CUDA; transfers
    are patched methods of Tensor. Where torch has no ``torch.library.get_kernel`` (before 2.9), the
    common methods are patched instead, and a warning says so.
    """

    name = "reads"
    parts = (PART,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._log: ReadLog | None = None

    def start(self) -> None:
        """Override kernels and patch methods; nothing stays changed if that fails halfway."""
        self.stop()
        if not self.context.device.accelerator:
            return
        super().start()
        self._log = ReadLog(self.context)
        try:
            self._watch(self._log)
        except BaseException:
            self.stop()
            raise

    def _watch(self, log: ReadLog) -> None:
        watch_transfers(log, self._patches)
        kernels = Patches()
        try:
            overridden = override(log, kernels)
        except Exception as error:  # the API is young: any change of it must not cost the audit
            kernels.undo()
            overridden = False
            self.context.warn(
                f"kernel overrides failed in torch {torch.__version__}: {fault(error)}"
            )
        self._patches.on_undo(kernels.undo)
        if not overridden:
            self.context.warn(
                f"torch {torch.__version__} cannot override kernels: some reads are seen less "
                "exactly"
            )
            watch_reads(log, self._patches)

    def step_begin(self) -> None:
        if self._log is not None:
            self._log.begin()

    def step_end(self) -> None:
        if self._log is not None:
            self._log.write()

    def stop(self) -> None:
        """Restore kernels and methods; rows of a step that did not end are written."""
        try:
            super().stop()
        finally:
            if self._log is not None:
                self._log.write()
                self._log = None


# -- reads kernels ---------------------------------------------------------------------------------
# Per-operator kernel overrides: sees each operator whose host side needs a value, whatever Python
# wrote it.


Kernel = Callable[..., Any]
Counts = Callable[[tuple[Any, ...], dict[str, Any]], bool]

KEY = "CUDA"
"""The dispatch key of the kernels that wait."""

_MASKS: Final = (torch.bool, torch.uint8)


def _always(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return True


def _by_mask(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(index is not None and index.dtype in _MASKS for index in args[1])


def _fills(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """``x[mask] = number`` becomes masked_fill_, which needs no count of the mask."""
    value = args[2]
    accumulate = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    return value.numel() == 1 and value.device.type == "cpu" and not accumulate


OPERATORS: Final[dict[str, tuple[str, Counts]]] = {
    "_local_scalar_dense": ("item", _always),
    "_linalg_check_errors": ("check", _always),
    "nonzero": ("nonzero", _always),
    "masked_select": ("masked_select", _always),
    "_unique2": ("unique", _always),
    "unique_consecutive": ("unique", _always),
    "unique_dim": ("unique", _always),
    "equal": ("equal", _always),
    "bincount": ("bincount", _always),
    "repeat_interleave.Tensor": (
        "repeat_interleave",
        lambda args, kwargs: kwargs.get("output_size") is None,
    ),
    "index.Tensor": ("mask_index", _by_mask),
    "_index_put_impl_": ("mask_put", _by_mask),
}
"""Operator -> kind of read, and whether a call of it reads."""


def override(log: ReadLog, patches: Patches) -> bool:
    """Override the reading operators; False where this torch cannot (before 2.9)."""
    get_kernel = getattr(torch.library, "get_kernel", None)
    if get_kernel is None:
        return False
    library = torch.library.Library("aten", "IMPL")
    patches.on_undo(lambda: destroy(library))
    done = 0
    with warnings.catch_warnings():
        # torch warns that a kernel is overridden: that is the purpose
        warnings.simplefilter("ignore")
        for name, (kind, counts) in OPERATORS.items():
            kernel = _kernel(get_kernel, name)
            if kernel is not None:
                reading = _reading(log, kernel, kind, counts)
                library.impl(name, reading, KEY, with_keyset=True, allow_override=True)
                done += 1
    return done > 0


def _kernel(get_kernel: Callable[..., Any], name: str) -> Kernel | None:
    try:
        boxed: Kernel = get_kernel(f"aten::{name}", KEY).call_boxed
    except (RuntimeError, ValueError, AttributeError):  # this build has no such kernel
        return None
    return boxed


def _reading(log: ReadLog, kernel: Kernel, kind: str, counts: Counts) -> Kernel:
    """The kernel, counted as one read where ``counts``; a filling one is none, nor what is inside."""
    inside, context = log.inside, log.context

    def run(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if not context.in_step or inside.reading:
            return kernel(keyset, *args, **kwargs)
        fills = kind == "mask_put" and _fills(args, kwargs)
        if not fills and not counts(args, kwargs):
            return kernel(keyset, *args, **kwargs)
        inside.reading = True
        started = perf_counter()
        try:
            result = kernel(keyset, *args, **kwargs)
        finally:
            inside.reading = False
        if not fills:
            log.note(kind, args, started)
        return result

    return run
