"""The moment at which instruments are put on and taken off in a loop that we do not own.

A step ends inside a hook of its optimizer, while torch walks its list of hooks, which must not
change then. So the work waits until the program's next backward begins: then no such list is being
walked, also where the backward runs in a closure inside of ``optimizer.step``.
"""

from __future__ import annotations

import functools
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
        self._waiting: Callable[[], None] | None = None

    def __bool__(self) -> bool:
        """Whether something waits."""
        return self._waiting is not None

    def do(self, work: Callable[[], None]) -> None:
        """Call ``work`` as the next backward begins."""
        import torch

        self.cancel()
        original = torch.autograd.backward

        @functools.wraps(original)
        def backward(*args: Any, **kwargs: Any) -> Any:
            self._now()
            return original(*args, **kwargs)

        self._waiting = work
        self._patches.attribute(torch.autograd, "backward", backward)

    def _now(self) -> None:
        work = self._waiting
        if work is None or not self._may():
            return
        self.cancel()  # before the work, which may put functions of its own in the same place
        try:
            work()
        except Exception as error:
            self._failed(error)

    def cancel(self) -> None:
        """Forget what waits. May be called twice."""
        self._waiting = None
        self._patches.undo()
