"""Reads: every place where the host takes a tensor's value, which on a GPU is a wait (and on a CPU
would be).
"""

from __future__ import annotations

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.sync.reads_kernels import override
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
        self._patches = Patches()
        self._log: ReadLog | None = None

    def start(self) -> None:
        """Override the kernels and patch the methods; nothing stays changed if that fails
        halfway.
        """
        self.stop()
        self.context.writer.touch(PART)
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
        """Note the thread that the step runs in."""
        if self._log is not None:
            self._log.begin()

    def step_end(self) -> None:
        """Write the step's rows."""
        if self._log is not None:
            self._log.write()

    def stop(self) -> None:
        """Restore kernels and methods; rows of a step that did not end are written."""
        try:
            self._patches.undo()
        finally:
            if self._log is not None:
                self._log.write()
                self._log = None
