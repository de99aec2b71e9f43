"""Signals whose handlers raise (torch's for loader workers, a program's own alarm) must not raise
inside the auditor's code.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from auditor.capture.instruments.user_frames import LOADER, OWN

RAISING = ("SIGCHLD", "SIGALRM", "SIGVTALRM", "SIGPROF", "SIGUSR2", "SIGHUP", "SIGTERM")
"""Signals that programs and libraries handle in Python."""


@contextmanager
def undisturbed() -> Iterator[None]:
    """While the auditor writes down how a run ended, no Python handler of the program's runs. Only
    in the main thread.
    """
    held: list[tuple[int, Any]] = []
    try:
        for number in _numbers():
            handler = signal.getsignal(number)
            if callable(handler):
                held.append((number, handler))
                signal.signal(number, _nothing)
        yield
    finally:
        for number, handler in held:
            with suppress(ValueError, OSError):
                if signal.getsignal(number) is _nothing:
                    signal.signal(number, handler)


def _nothing(number: int, frame: FrameType | None) -> None:
    """A handler that keeps a signal from doing anything."""


def _numbers() -> Iterator[int]:
    try:
        signal.signal(signal.SIGINT, signal.getsignal(signal.SIGINT))
    except (ValueError, TypeError):  # not the main thread, or a handler that is none of Python's
        return
    for name in RAISING:
        number = getattr(signal, name, None)
        if number is not None:
            yield number


class ChildSignal:
    """Keeps a handler of SIGCHLD from raising in the auditor's own code, between steps and inside
    of probes.

    torch's handler raises in the main thread, wherever it is, when a loader's worker has died. An
    error there would be taken for the auditor's. In the program's own code, and in torch's loader,
    it raises as ever; a worker that died while our code ran is found by the loader itself, as it
    waits for the next batch.
    """

    def __init__(self) -> None:
        self._theirs: Callable[[int, FrameType | None], Any] | None = None

    def look(self) -> None:
        """See whether there is a handler by now, and stand before it; once per step."""
        handler = signal.getsignal(signal.SIGCHLD) if hasattr(signal, "SIGCHLD") else None
        if callable(handler) and handler != self._heard:
            with suppress(ValueError):  # a step that runs in another thread
                signal.signal(signal.SIGCHLD, self._heard)
                self._theirs = _behind(handler)

    def stop(self) -> None:
        """Leave the handler as it was. May be called twice."""
        if self._theirs is not None and signal.getsignal(signal.SIGCHLD) == self._heard:
            with suppress(ValueError):
                signal.signal(signal.SIGCHLD, self._theirs)
        self._theirs = None

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self._theirs is not None and not _in_own_code(frame):
            self._theirs(number, frame)


def _behind(handler: Callable[..., Any]) -> Callable[..., Any] | None:
    """The program's handler: two of ours that stood before each other would call in a circle."""
    owner = getattr(handler, "__self__", None)
    return owner._theirs if isinstance(owner, ChildSignal) else handler


def _in_own_code(frame: FrameType | None) -> bool:
    """True if the innermost frame that is neither a library's nor torch's loader is the
    auditor's.
    """
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(OWN):
            return True
        if LOADER in file or not (
            "site-packages" in file or file.startswith((os.path.dirname(os.__file__), "<"))
        ):
            return False
        frame = frame.f_back
    return False
