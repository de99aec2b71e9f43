"""Reads: every place where the host takes a tensor's value, which on a GPU is a wait (and on a CPU
would be).
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.dispatch import destroy
from auditor.capture.instruments.torch_private.training import COUNTER_READ
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.sync.reads_log import PART, ReadLog
from auditor.capture.probes.sync.reads_methods import watch_reads, watch_transfers
from auditor.errors import fault


class ReadsProbe(Probe):
    """Counts reads by place and kind.

    Operators that need a value on the host are overridden at the backend's dispatch key (CUDA, else
    CPU); transfers are patched methods of Tensor. Where torch has no ``torch.library.get_kernel``
    (before 2.9), the common methods are patched instead, and a warning says so.
    """

    name = "reads"
    parts = (PART,)
    passes = frozenset({"loud", "origin"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._log: ReadLog | None = None

    def start(self) -> None:
        """Override the kernels and patch the methods; nothing stays changed if that fails
        halfway.
        """
        self.stop()
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


def _classes_known(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """With ``num_classes`` only the CPU kernel of one_hot reads the labels, to check them."""
    return bool((args[1] if len(args) > 1 else kwargs.get("num_classes", -1)) != -1)


def _size_unknown(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return kwargs.get("output_size") is None


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
    "repeat_interleave.Tensor": ("repeat_interleave", _size_unknown),
    "index.Tensor": ("mask_index", _by_mask),
    "_index_put_impl_": ("mask_put", _by_mask),
}
"""Operator -> kind of read, and whether a call of it reads."""

CPU_CHECKS: Final[dict[str, Counts]] = {
    "one_hot": _classes_known,
    "quantile": _always,
    "quantile.scalar": _always,
    "nanquantile": _always,
    "nanquantile.scalar": _always,
}
"""Composite operators that read to check their arguments, on the CPU only (ATen/native/Onehot.cpp,
Sorting.cpp).
"""

CPU_READS: Final = (
    "std.correction",
    "var.correction",
    "linalg_lu_solve",
    "linalg_lu_solve.out",
    "multinomial",
    "normal.Tensor_Tensor",
    "normal.float_Tensor",
)
"""Operators whose CPU kernel reads and whose CUDA kernel does not: the mean, to reduce all of a
tensor (ATen/native/ReduceOps.cpp, std_var_all_cpu); pivots, to check them
(BatchLinearAlgebraKernel.cpp); probabilities and deviations, which CUDA checks on the device
(Distributions.cpp, DistributionTemplates.h)."""


def override(log: ReadLog, patches: Patches) -> bool:
    """Override the reading operators at the backend's key; False where this torch cannot (before
    2.9).
    """
    get_kernel = getattr(torch.library, "get_kernel", None)
    if get_kernel is None:
        return False
    key = "CUDA" if log.on_cuda else "CPU"
    library = torch.library.Library("aten", "IMPL")
    patches.on_undo(lambda: destroy(library))
    done = 0
    with warnings.catch_warnings():
        # torch warns that a kernel is overridden: that is the purpose
        warnings.simplefilter("ignore")
        for name, (kind, counts) in OPERATORS.items():
            kernel = _kernel(get_kernel, name, key)
            reading = None if kernel is None else _reading(log, kernel, kind, counts)
            if reading is not None and kernel is not None and kind == "mask_put":
                reading = _unless(log, kernel, reading, _fills)
            done += _implement(library, name, key, reading)
        if not log.on_cuda:
            _override_cpu_checks(log, library, get_kernel)
    return done > 0


def _override_cpu_checks(
    log: ReadLog, library: torch.library.Library, get_kernel: Callable[..., Any]
) -> None:
    for name, checks_only in CPU_CHECKS.items():
        kernel = _kernel(get_kernel, name, "AutogradCPU")
        if kernel is not None:
            overridden = _unless(log, kernel, _reading(log, kernel, "item", _always), checks_only)
            _implement(library, name, "CompositeImplicitAutograd", overridden)
    for name in CPU_READS:
        kernel = _kernel(get_kernel, name, "CPU")
        _implement(
            library, name, "CPU", None if kernel is None else _unless(log, kernel, kernel, _always)
        )


def _kernel(get_kernel: Callable[..., Any], name: str, key: str) -> Kernel | None:
    try:
        boxed: Kernel = get_kernel(f"aten::{name}", key).call_boxed
    except (RuntimeError, ValueError, AttributeError):  # this build has no such kernel
        return None
    return boxed


def _implement(library: torch.library.Library, name: str, key: str, kernel: Kernel | None) -> bool:
    if kernel is None:
        return False
    library.impl(name, kernel, key, with_keyset=True, allow_override=True)
    return True


def _reading(log: ReadLog, kernel: Kernel, kind: str, counts: Counts) -> Kernel:
    """The kernel, counted as one read where ``counts``."""
    inside, context, skip_counters = log.inside, log.context, not log.on_cuda

    def run(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        # Hot: an optimizer without capturable= reads a counter for each parameter.
        if (
            not context.in_step
            or inside.reading
            or (skip_counters and _optimizer_counter())
            or not counts(args, kwargs)
        ):
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
    """``reading``, but calls that are ``harmless`` run without being counted, nor anything inside
    them.
    """
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


def _optimizer_counter() -> bool:
    """True if ``optim.optimizer._get_value`` asked, but not for ASGD, whose counters live on the
    parameter's device.
    """
    frame = sys._getframe(2)
    if frame.f_code is not COUNTER_READ:
        return False
    caller = frame.f_back
    return caller is None or not caller.f_code.co_filename.endswith("asgd.py")
