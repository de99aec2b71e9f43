"""The device that is played now, and what every part of it needs: who listens, what is held."""

from __future__ import annotations

import os
import sys
import threading
import weakref
from types import FrameType
from typing import Any, NoReturn

import torch

from auditor.capture.instruments.torch_private.tensors import key_of
from auditor.capture.shadow.crossing import Crossing, GpuModel, Listener, ShadowLimit
from auditor.capture.shadow.storages import storages
from auditor.capture.shadow.workspaces import Workspaces

CUDA = torch.device("cuda", 0)
CPU = torch.device("cpu")


class Here(threading.local):
    """What this thread is doing."""

    function: Any = None
    """The torch function that is being called with shadow tensors; None in the autograd engine and
    outside.
    """
    quiet: bool = False
    """Reads now are not the device's: a check that real CUDA does not make, or part of a crossing
    already told.
    """
    constant: bool = False
    """The index or value being sent was written as Python numbers."""
    saved: set[int] | None = None
    """Storages that the ``torch.save`` under way has written; None outside of it."""


HERE = Here()


class Current:
    """State of one rehearsal; :data:`PLAYING` is the one that runs."""

    def __init__(self, listener: Listener, gpu: GpuModel) -> None:
        self.listener = listener
        self.gpu = gpu
        self.process = os.getpid()
        self.held: dict[int, tuple[weakref.ref[Any], int]] = {}
        self.live_bytes = 0
        self.peak_bytes = 0
        self.operators = 0
        self.workspaces = Workspaces(
            gpu.capability, lambda nbytes, kept: listener.workspace(nbytes, kept=kept)
        )

    def track(self, tensor: torch.Tensor) -> None:
        """Report the storages of ``tensor`` that are new, and their end when it comes."""
        for storage in storages(tensor):
            if key_of(storage) not in self.held:
                self._hold(storage)

    def _hold(self, storage: torch.UntypedStorage) -> None:
        key = key_of(storage)
        size = storage.nbytes()
        self.listener.allocated(key, size)
        self.live_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.live_bytes)
        self.held[key] = weakref.ref(storage, lambda _: self._free(key)), size

    def _free(self, key: int) -> None:
        _, size = self.held.pop(key)
        self.live_bytes -= size
        if PLAYING[0] is self:
            self.listener.freed(key)


PLAYING: list[Current | None] = [None]
"""One slot: whose tensors survive their rehearsal, they go on computing and report to nobody."""


def tell(
    kind: str,
    operator: str,
    nbytes: int = 0,
    direction: str | None = None,
    *,
    pinned: bool = False,
    blocking: bool = True,
    constant: bool = False,
    subject: torch.Tensor | None = None,
) -> None:
    """Report a crossing, unless nobody listens or this thread is inside one already told."""
    playing = PLAYING[0]
    if playing is None or HERE.quiet or playing.process != os.getpid():
        return
    playing.listener.crossing(
        Crossing(
            kind,
            direction,  # type: ignore[arg-type]
            nbytes,
            pinned,
            blocking,
            operator,
            constant,
            subject,
        )
    )


def note(operator: str, said: str) -> None:
    """Say that something is done another way than asked for."""
    if PLAYING[0] is not None:
        PLAYING[0].listener.noted(operator, said)


def refuse(operator: str, reason: str) -> NoReturn:
    """End the rehearsal: the program asks for what only a real device can do."""
    if PLAYING[0] is not None:
        PLAYING[0].listener.limit(operator, reason)
    raise ShadowLimit(operator, reason)


def must_be_the_process() -> None:
    """Raise what CUDA raises in a forked worker."""
    playing = PLAYING[0]
    if playing is not None and playing.process != os.getpid():
        raise RuntimeError(
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, "
            "you must use the 'spawn' start method"
        )


def caller() -> FrameType | None:
    """The innermost frame that is not this room's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__package__") == __package__:
        frame = frame.f_back
    return frame
