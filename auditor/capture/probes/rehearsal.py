"""The rehearsal: the target's GPU path on the shadow device, and everything that would cross
between host and GPU.
"""

from __future__ import annotations

import os
import sys
from dataclasses import asdict, dataclass

import torch

from auditor.capture.instruments.torch_private.tensors import key_of
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.memory.simulated_memory import RehearsedMemory
from auditor.capture.probes.sync.reads_log import PART as READS
from auditor.capture.probes.sync.reads_log import ReadLog
from auditor.capture.shadow import MODELS, Crossing, Listener, ShadowDevice
from auditor.capture.shadow.operators import HOST_INDEX
from auditor.capture.shadow.storages import storages
from auditor.recordings.schema import CopyRow, DeviceUseRow, LimitRow

READ_KINDS = frozenset(
    [
        "item",
        "cpu",
        "numpy",
        "tolist",
        "to_cpu",
        "print",
        "nonzero",
        "masked_select",
        "mask_index",
        "mask_put",
        "unique",
        "equal",
        "bincount",
        "repeat_interleave",
    ]
)
COPIES, USE, LIMITS = "copies", "device_use", "limits"
LOADER_MARK = "_auditor_loader"
"""Attribute of a storage: the number of the loader whose batch it belongs to."""


@dataclass
class Copied:
    """What one place copies to the device in the step that runs."""

    n: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class CopyFacts:
    """What is constant about the copies of one place."""

    at: int
    lib: str
    pinned: bool
    blocking: bool
    constant: bool
    index: bool
    loader: int | None

    def row(self, copied: Copied) -> CopyRow:
        """As the part ``copies`` holds it."""
        return CopyRow(**asdict(self), n=copied.n, bytes=copied.bytes)


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
        self.memory = self._held = RehearsedMemory(
            context.memory_limit or MODELS[0].total_bytes, context.frames, context.writer.folder
        )
        self._shadow = ShadowDevice(self, compiled="eager")
        self._log: ReadLog | None = None
        self._copies: dict[CopyFacts, Copied] = {}
        self._used = 0
        context.mark_batch = _mark_batch
        context.counters = self._held.counters
        context.address_of = self._address_of
        context.operators = lambda: self._shadow.operators
        context.reset_peak = self._held.reset_peak
        context.workspaces = self._held.workspaces

    def _address_of(self, tensor: torch.Tensor) -> int:
        """Of a sparse tensor that of its values."""
        return next((self._held.address(key_of(storage)) for storage in storages(tensor)), 0)

    # -- the shadow --------------------------------------------------------------------------------

    def install(self) -> None:
        """Play a GPU from now on."""
        self._shadow.start()

    def uninstall(self) -> None:
        """There is no GPU any more."""
        self._shadow.stop()

    def start(self) -> None:
        """Write down what crosses."""
        for part in (READS, COPIES, USE):
            self.context.writer.touch(part)
        self._log = ReadLog(self.context, on_cuda=True)

    def step_begin(self) -> None:
        """Note the thread that the step runs in."""
        if self._log is not None:
            self._log.begin()

    def step_end(self) -> None:
        """Write the step's rows."""
        if self._log is None:
            return
        self._log.write()
        for facts, copied in self._copies.items():
            if copied.n:
                self.context.add(facts.row(copied))
            copied.n = copied.bytes = 0
        self.context.add(DeviceUseRow(n=self._shadow.operators - self._used))
        self._used = self._shadow.operators

    def stop(self) -> None:
        """Write down no more."""
        if self._log is not None:
            self.step_end()
            self._held.dump()
        self._log = None

    # -- what crosses ------------------------------------------------------------------------------

    def crossing(self, crossing: Crossing) -> None:
        """Host and device met, somewhere below the user's line."""
        log = self._log
        if log is None or log.idle():
            return
        try:
            if crossing.kind in READ_KINDS and crossing.blocking:
                log.note_crossing(crossing.kind, requires_grad=crossing.requires_grad)
            elif crossing.kind == "copy" and crossing.direction == "h2d":
                self._note_copy(log, crossing)
        except Exception as error:  # the user's step goes on whatever we got wrong
            log.fail(error)

    def _note_copy(self, log: ReadLog, crossing: Crossing) -> None:
        place = log.place(sys._getframe(1))
        if place is None:
            return
        loader = None if crossing.subject is None else _loader_of(crossing.subject)
        facts = CopyFacts(
            at=self.context.frames.number(place.frame, place.via),
            lib="loader" if place.loader else "",
            pinned=crossing.pinned,
            blocking=crossing.blocking,
            constant=crossing.constant,
            index=crossing.operator == HOST_INDEX,
            loader=loader,
        )
        copied = self._copies.setdefault(facts, Copied())
        copied.n += 1
        copied.bytes += crossing.nbytes

    def allocated(self, storage_id: int, nbytes: int) -> None:
        """A storage appeared on the device."""
        self._held.allocated(storage_id, nbytes)

    def freed(self, storage_id: int) -> None:
        """A storage is gone."""
        self._held.freed(storage_id)

    def workspace(self, nbytes: int, *, kept: bool) -> None:
        """Torch took a workspace for matrix products."""
        self._held.workspace(nbytes, kept=kept)

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


def _mark_batch(tensor: torch.Tensor, loader: int) -> None:
    """Views of the batch share its storage, and so the mark."""
    for storage in storages(tensor):
        setattr(storage, LOADER_MARK, loader)


def _loader_of(tensor: torch.Tensor) -> int | None:
    return next((getattr(storage, LOADER_MARK, None) for storage in storages(tensor)), None)
