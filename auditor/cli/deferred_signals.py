"""What is recorded is judged before a command ends: the first signal that asks it to is heard, and
obeyed when the report is there.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from auditor.cli import console
from auditor.cli.usage import STOPPING


class Ending:
    """Whether somebody asked for the end."""

    def __init__(self) -> None:
        self.asked = False

    def is_asked(self) -> bool:
        """The same, for those who ask again and again."""
        return self.asked

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        with suppress(RuntimeError):  # the signal came while we were writing
            console.say(
                "audit: interrupted; the report is finished first (once more ends at once)",
                err=True,
            )

    @contextmanager
    def after_the_report(self) -> Iterator[None]:
        """Meanwhile Ctrl-C, SIGTERM and SIGHUP are only noted; the second one raises
        :class:`KeyboardInterrupt`.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = [getattr(signal, name) for name in ("SIGINT", *STOPPING) if hasattr(signal, name)]
        before = {each: signal.getsignal(each) for each in numbers}
        taken = [each for each in numbers if callable(before[each])]
        for each in taken:
            signal.signal(each, self._heard)
        try:
            yield
        finally:
            for each in taken:
                signal.signal(each, before[each])
