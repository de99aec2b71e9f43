"""The rehearsal: the GPU path on the shadow device, and all that would cross to or from it."""

from __future__ import annotations

import os
import sys
import warnings

import torch

from auditor.capture.instruments.storages import storages
from auditor.capture.instruments.torch_private.tensors import key_of
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.memory.simulated_memory import RehearsedMemory
from auditor.capture.probes.sync.copies_log import PART as COPIES
from auditor.capture.probes.sync.copies_log import CopyLog
from auditor.capture.probes.sync.reads_log import PART as READS
from auditor.capture.probes.sync.reads_log import ReadLog
from auditor.capture.shadow import MODELS, Crossing, GpuModel, Listener, ShadowDevice
from auditor.capture.shadow.operators import HOST_INDEX
from auditor.model.gpus import gpu_named
from auditor.recordings.schema.sync import DeviceUseRow, LimitRow

READ_KINDS = frozenset(
    """
    item check cpu numpy tolist to_cpu print nonzero masked_select mask_index mask_put unique equal
    bincount repeat_interleave
    """.split()
)
USE = "device_use"


class RehearsalProbe(Probe, Listener):
    """Writes ``reads``, ``copies``, ``device_use`` and ``limits`` of a rehearsal.

    The shadow is there from the import of torch to the end of the process, as a GPU would be; what
    crosses is written down in the loud pass only.
    """

    name = "rehearsal"
    parts = (READS, COPIES)
    passes = frozenset({"loud"})
    tracks_memory = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        model, limit = _played(context.plan.gpu), context.plan.memory_limit
        self.memory: RehearsedMemory = RehearsedMemory(
            limit or model.total_bytes, context.frames, context.writer.folder
        )
        self._shadow = ShadowDevice(self, gpu=model, compiled="eager")
        self._log: ReadLog | None = None
        self._copies = CopyLog(context)
        self._used = 0
        context.shadow = self

    @property
    def operators(self) -> int:
        """Operators that ran on the shadow device so far."""
        return self._shadow.operators

    def address_of(self, tensor: torch.Tensor) -> int:
        """Where a tensor lies in the simulated memory, 0 if it does not."""
        return next((self.memory.address(key_of(storage)) for storage in storages(tensor)), 0)

    # -- the shadow --------------------------------------------------------------------------------

    def install(self) -> None:
        self._always.on_undo(self._shadow.stop)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of modules of torch that the program does not import
            self._shadow.start()

    def start(self) -> None:
        for part in (READS, COPIES, USE):
            self.context.writer.touch(part)
        self._log = ReadLog(self.context)

    def step_begin(self) -> None:
        if self._log is not None:
            self._log.begin()

    def step_end(self) -> None:
        if self._log is None:
            return
        self._log.write()
        self._copies.write()
        self.context.add(DeviceUseRow(n=self._shadow.operators - self._used))
        self._used = self._shadow.operators

    def stop(self) -> None:
        if self._log is not None:
            self.step_end()
            self.memory.dump()
            self.memory.keeps_stacks = self.context.plan.memory_limit is not None
        self._log = None

    # -- what crosses ------------------------------------------------------------------------------

    def crossing(self, crossing: Crossing) -> None:
        log = self._log
        if log is None or log.idle():
            return
        try:
            if crossing.kind in READ_KINDS and crossing.blocking:
                log.note(crossing.kind)
            elif crossing.kind == "copy" and crossing.direction == "h2d":
                self._note_copy(log, crossing)
        except Exception as error:  # the user's step goes on whatever we got wrong
            log.fail(error)

    def _note_copy(self, log: ReadLog, crossing: Crossing) -> None:
        place = log.place(sys._getframe(1))
        if place is None:
            return
        self._copies.note(
            place,
            crossing.nbytes,
            pinned=crossing.pinned,
            blocking=crossing.blocking,
            constant=crossing.constant,
            index=crossing.operator == HOST_INDEX,
            subject=crossing.subject,
        )

    def allocated(self, storage_id: int, nbytes: int) -> None:
        self.memory.allocated(storage_id, nbytes)

    def freed(self, storage_id: int) -> None:
        self.memory.freed(storage_id)

    def workspace(self, nbytes: int, *, kept: bool) -> None:
        self.memory.workspace(nbytes, kept=kept)

    def noted(self, operator: str, said: str) -> None:
        """The program asks for something that is done another way: say so, and where."""
        frame, _ = self.context.frames.user_frame()
        where = (
            ""
            if frame is None
            else f" at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        )
        self.context.warn(f"{operator}{where} {said}")

    def limit(self, operator: str, reason: str) -> None:
        """The program asks for what only a real device can do: the rehearsal ends here."""
        frame, _ = self.context.frames.user_frame()
        at = None if frame is None else self.context.frames.number(frame)
        self.context.writer.add(LimitRow(at=at, operator=operator, reason=f"{operator}: {reason}"))
        self.context.writer.flush()


def _played(gpu: str) -> GpuModel:
    """The card of that key of the null device's table; the shadow's own without one."""
    if not gpu:
        return MODELS[0]
    found = gpu_named(gpu)
    return GpuModel(found.name, found.memory_bytes, found.capability, found.processors)
