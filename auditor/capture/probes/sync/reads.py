"""Reads: every place where the host takes the value of a tensor on a GPU, and waits for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.dispatch import destroy
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.sync.reads_log import PART, ReadLog
from auditor.capture.probes.sync.reads_methods import watch_reads, watch_transfers
from auditor.errors import fault


class ReadsProbe(Probe):
    """Counts reads by place and kind, of a run on CUDA; those of a rehearsal are the shadow's.

    Operators that need a value on the host are overridden at the dispatch key of CUDA; transfers
    are patched methods of Tensor. Where torch has no ``torch.library.get_kernel`` (before 2.9), the
    common methods are patched instead, and a warning says so.
    """

    name = "reads"
    parts = (PART,)
    passes = frozenset({"loud"})

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
            reading = None if kernel is None else _reading(log, kernel, kind, counts)
            if reading is not None and kernel is not None and kind == "mask_put":
                reading = _unless(log, kernel, reading, _fills)
            if reading is not None:
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
    """The kernel, counted as one read where ``counts``."""
    inside, context = log.inside, log.context

    def run(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if not context.in_step or inside.reading or not counts(args, kwargs):
            return kernel(keyset, *args, **kwargs)
        inside.reading = True
        started = perf_counter()
        try:
            result = kernel(keyset, *args, **kwargs)
        finally:
            inside.reading = False
        log.note(kind, args, started)
        return result

    return run


def _unless(log: ReadLog, kernel: Kernel, reading: Kernel, harmless: Counts) -> Kernel:
    """``reading``, but ``harmless`` calls are not counted, nor anything inside them."""
    inside = log.inside

    def run(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if inside.reading or not harmless(args, kwargs):
            return reading(keyset, *args, **kwargs)
        inside.reading = True
        try:
            return kernel(keyset, *args, **kwargs)
        finally:
            inside.reading = False

    return run
