"""Copies from the host to the device as torch's own code makes them: where, how much, from which
memory, and whether the host waits.
"""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.dispatch import destroy
from auditor.capture.instruments.torch_private.tensors import base_of
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.sync.copies_log import PART, CopyLog, loader_of, mark_batch
from auditor.capture.probes.sync.copies_source import Expression, expression, of_numbers
from auditor.capture.probes.sync.reads_log import ReadLog

INDICES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
"""What a tensor that indexes another holds."""


class _Inside(threading.local):
    """True while a copy that counts already runs in this thread: one that converts or broadcasts
    copies once more inside.
    """

    copying = False


class DeviceCopiesProbe(Probe):
    """Writes ``copies`` of a run on CUDA; those of a rehearsal are the shadow's.

    ``aten::copy_`` is overridden at the dispatch key of CUDA: whatever Python calls (``to``,
    ``cuda``, ``torch.tensor``, an index of the host's) comes by there. It needs
    ``torch.library.get_kernel`` (torch 2.9); without it no row is written and the part is missing.
    Bytes are those that cross: a conversion runs on the host first where the host waits, else on
    the device (aten/src/ATen/native/cuda/Copy.cu).
    """

    name = "copies"
    parts = (PART,)
    passes = frozenset({"loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._patches = Patches()
        self._inside = _Inside()
        self._log: CopyLog | None = None
        self._places: ReadLog | None = None

    def start(self) -> None:
        """Override the kernel, and mark the loaders' batches."""
        self.stop()
        device = self.context.device
        get_kernel = getattr(torch.library, "get_kernel", None)
        if get_kernel is None or not (device.native and device.kind == "cuda"):
            return
        self._log, self._places = CopyLog(self.context), ReadLog(self.context)
        before, self.context.mark_batch = self.context.mark_batch, mark_batch
        self._patches.on_undo(lambda: setattr(self.context, "mark_batch", before))
        try:
            self._override(get_kernel("aten::copy_", "CUDA").call_boxed)
        except BaseException:
            self.stop()
            raise
        self.context.writer.touch(PART)

    def _override(self, kernel: Callable[..., Any]) -> None:
        inside, context = self._inside, self.context

        def copy_(
            keyset: Any, target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False
        ) -> Any:
            if inside.copying or not context.in_step or not source.is_cpu or not target.is_cuda:
                return kernel(keyset, target, source, non_blocking)
            inside.copying = True
            try:
                self._note(target, source, non_blocking)
                return kernel(keyset, target, source, non_blocking)
            finally:
                inside.copying = False

        library = torch.library.Library("aten", "IMPL")
        self._patches.on_undo(lambda: destroy(library))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that a kernel is overridden: so it is
            library.impl("copy_", copy_, "CUDA", with_keyset=True, allow_override=True)

    def _note(self, target: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> None:
        try:
            self._count(target, source, non_blocking)
        except Exception as error:  # the user's step goes on whatever we got wrong
            self.missed(error)

    def _count(self, target: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> None:
        log, places = self._log, self._places
        place = None if log is None or places is None else places.place(sys._getframe(2))
        if log is None or place is None or source.numel() == 0:
            return
        made = expression(place.frame)
        index = _indexes(made, target, source)
        own = (
            place.via is None
        )  # else a library copies, and what its caller says is of other things
        kept = source if non_blocking else target
        log.note(
            place,
            target.numel() * kept.element_size(),
            pinned=source.is_pinned(),
            blocking=not non_blocking,
            constant=own and made is not None and of_numbers(made, place.frame, index=index),
            index=index,
            loader=loader_of(source),
        )

    def step_begin(self) -> None:
        """Note the thread that the step runs in."""
        if self._places is not None:
            self._places.begin()

    def step_end(self) -> None:
        """Write the step's rows."""
        if self._log is not None:
            self._log.write()

    def stop(self) -> None:
        """Put the kernel back; rows of a step that did not end are written. May be called twice."""
        try:
            self._patches.undo()
        finally:
            log, self._log, self._places = self._log, None, None
            if log is not None:
                log.write()


def _indexes(made: Expression | None, target: torch.Tensor, source: torch.Tensor) -> bool:
    """True if what is copied stands in brackets: then it goes to memory of its own, not into a part
    of the tensor that is assigned to.
    """
    return (
        made is not None
        and made.indexes
        and source.dim() > 0
        and source.dtype in INDICES
        and base_of(target) is None
    )
