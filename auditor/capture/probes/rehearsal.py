"""The rehearsal: the GPU path on the shadow device, and all that would cross to or from it."""

import os
import sys
import warnings
from collections import deque
from pathlib import Path
from typing import Any

import torch

from auditor.allocator import AllocatorSettings, CachingAllocator, OutOfMemory
from auditor.capture.instruments.storages import storages
from auditor.capture.instruments.torch_private.tensors import key_of
from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.memory.snapshot import OOM_SNAPSHOT, SNAPSHOT, write_whole
from auditor.capture.probes.sync.device_copies import PART as COPIES
from auditor.capture.probes.sync.device_copies import CopyLog
from auditor.capture.probes.sync.reads_log import PART as READS
from auditor.capture.probes.sync.reads_log import ReadLog
from auditor.capture.shadow import MODELS, Crossing, Listener, ShadowDevice
from auditor.capture.shadow.operators import HOST_INDEX
from auditor.capture.shadow.streams import current_stream
from auditor.recordings.schema.run import Counters
from auditor.recordings.schema.sync import DeviceUseRow, LimitRow

HISTORY_ENTRIES = 200_000
"""Events kept for the snapshot, as on a real device."""

STACK_DEPTH = 12
"""User frames kept of each allocation, innermost first."""

OUTSIDE_BYTES = 450 << 20
"""What a CUDA context and its libraries take of a card: about 300 to 600 MiB."""

Stack = list[dict[str, Any]]


class RehearsedMemory:
    """Follows storages of the shadow through :class:`CachingAllocator`.

    A storage may be freed while one is being allocated (the garbage collector runs when it likes),
    so frees are queued and done before the next allocation.
    """

    def __init__(self, total_bytes: int, frames: Frames, folder: Path) -> None:
        variables = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
        text = next((os.environ[name] for name in variables if os.environ.get(name)), "")
        self._total = total_bytes
        outside = min(OUTSIDE_BYTES, total_bytes // 8)
        self.allocator = CachingAllocator(
            total_bytes,
            settings=AllocatorSettings.parse(text),
            outside_bytes=outside,
            history_limit=HISTORY_ENTRIES,
        )
        self._frames = frames
        self._folder = folder
        self.keeps_stacks = True
        """False once the snapshot is written: later allocations need no owner."""
        self.workspaces: list[int] = []
        """Addresses of what torch keeps for matrix products."""
        self._addresses: dict[int, int] = {}
        self._freed: deque[int] = deque()
        self._stacks: dict[tuple[tuple[Any, int], ...], Stack] = {}

    def allocated(self, storage: int, nbytes: int) -> None:
        """A storage appeared. Raises ``torch.OutOfMemoryError`` if the card is full."""
        self._addresses[storage] = self._malloc(nbytes)

    def workspace(self, nbytes: int, *, kept: bool) -> None:
        """Torch took memory for matrix products; raises as :meth:`allocated`."""
        address = self._malloc(nbytes)
        if kept:
            self.workspaces.append(address)
        else:
            self.allocator.free(address)

    def _malloc(self, nbytes: int) -> int:
        self.settle()
        stream = current_stream().cuda_stream
        try:
            stack = self._stack() if self.keeps_stacks else []
            return self.allocator.malloc(nbytes, stream, stack)
        except OutOfMemory as error:
            self.dump(OOM_SNAPSHOT)
            raise torch.OutOfMemoryError(str(error)) from None

    def freed(self, storage: int) -> None:
        """A storage is gone."""
        self._freed.append(storage)

    def address(self, storage: int) -> int:
        """Where a storage lies; 0 if it is not on the device."""
        self.settle()  # the name of a storage that is gone may belong to another one now
        return self._addresses.get(storage, 0)

    def settle(self) -> None:
        """Do the frees that are due."""
        while self._freed:
            address = self._addresses.pop(self._freed.popleft(), 0)
            if address:
                self.allocator.free(address)

    def counters(self) -> Counters:
        """The allocator's counters as the ``steps`` part has them, in bytes."""
        stats = self.stats()
        return {
            "allocated": stats["allocated_bytes.all.current"],
            "reserved": stats["reserved_bytes.all.current"],
            "peak_allocated": stats["allocated_bytes.all.peak"],
            "peak_reserved": stats["reserved_bytes.all.peak"],
            "retries": stats["num_alloc_retries"],
            "ooms": stats["num_ooms"],
        }

    def stats(self) -> dict[str, int]:
        """As ``torch.cuda.memory_stats``."""
        self.settle()
        return self.allocator.stats()

    @property
    def total_bytes(self) -> int:
        """Bytes of the card."""
        return self.allocator.total_bytes

    def resize(self, total_bytes: int | None) -> int:
        """Set the card's size in bytes, or restore its own; returns the bytes for an allocator."""
        if total_bytes is None:
            self.empty_cache()
        return self.allocator.resize(self._total if total_bytes is None else total_bytes)

    def reset_peak(self) -> None:
        """As ``torch.cuda.reset_peak_memory_stats``."""
        self.settle()
        self.allocator.reset_peak()

    def empty_cache(self) -> None:
        """As ``torch.cuda.empty_cache``."""
        self.settle()
        self.allocator.empty_cache()

    def snapshot(self) -> dict[str, Any]:
        """As ``torch.cuda.memory._snapshot``."""
        self.settle()
        return self.allocator.snapshot()

    def dump(self, name: str = SNAPSHOT) -> None:
        """Write a snapshot in torch's own schema."""
        write_whole(self._folder / name, self.snapshot())

    def _stack(self) -> Stack:
        """The user's frames, innermost first; one object for each distinct stack."""
        frames = self._frames.user_frames(sys._getframe(3), STACK_DEPTH)
        key = tuple([(each.f_code, each.f_lineno) for each in frames])
        stack = self._stacks.get(key)
        if stack is None:
            spelled = self._frames.spelled
            stack = self._stacks[key] = [
                {"filename": spelled(code.co_filename), "line": line, "name": code.co_name}
                for code, line in key
            ]
        return stack


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
    tracks_memory = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._shadow = ShadowDevice(self, gpu=context.plan.gpu or MODELS[0])
        self.memory = RehearsedMemory(
            context.plan.memory_limit or self._shadow.gpu.total_bytes,
            context.frames,
            context.writer.folder,
        )
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
        except Exception as error:  # the user's step continues despite our error
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
