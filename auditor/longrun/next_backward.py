"""The moment at which instruments are put on and taken off in a loop that we do not own.

A step ends inside a hook of its optimizer, while torch walks its list of hooks, which must not
change then. So the work waits until the program's next backward begins: then no such list is being
walked, also where the backward runs in a closure inside of ``optimizer.step``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from auditor.capture.instruments.monkeypatch import Patches


class NextBackward:
    """Does one thing at a time, at a backward of which ``may`` says yes; ``failed`` hears what that
    raises, and the backward goes on.
    """

    def __init__(self, may: Callable[[], bool], failed: Callable[[Exception], None]) -> None:
        self._may = may
        self._failed = failed
        self._patches = Patches()
        self._ours: Callable[..., Any] | None = None
        self._waiting: Callable[[], None] | None = None

    def __bool__(self) -> bool:
        """Whether something waits."""
        return self._waiting is not None

    def do(self, work: Callable[[], None]) -> None:
        """Call ``work`` as the next backward begins."""
        import torch

        self.cancel()
        self._waiting = work
        if self._patches:
            return  # what another has put over ours still leads here
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            changed = self._now() and torch.autograd.backward is not backward
            return (torch.autograd.backward if changed else original)(*args, **kwargs)

        self._ours = backward
        self._patches.attribute(torch.autograd, "backward", backward)

    def _now(self) -> bool:
        work = self._waiting
        if work is None or not self._may():
            return False
        self.cancel()  # before the work, which may put functions of its own in the same place
        try:
            work()
        except Exception as error:
            self._failed(error)
        return True

    def cancel(self) -> None:
        """Forget what waits. May be called twice."""
        self._waiting = None
        if self._patches and sys.modules["torch"].autograd.backward is self._ours:
            self._patches.undo()
