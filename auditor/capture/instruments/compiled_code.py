"""Programs that torch compiles: our code stays out of their graphs, and their steps are reported."""

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

from auditor.capture.instruments.monkeypatch import SWAPPED, AfterImport, Patches
from auditor.capture.instruments.torch_private.compiler import (
    MARK,
    PACKAGE,
    Listener,
    beneath_compiled,
    is_compilation,
    leave_out,
    when_left,
    when_told,
)
from auditor.capture.instruments.user_frames import OWN

Told = Callable[[Any], None]


class CompiledCode:
    """One for the process, as the compiler is. Costs nothing until the program imports that.

    Hooks of ours are invisible to the compiler (``compiler.traced_as``) and what runs of them
    beneath compiled code is not compiled. An optimizer whose step was traced runs no hook: it is
    told of when the compiled function has returned.
    """

    def __init__(self) -> None:
        self._patches = Patches()
        self._imports: list[AfterImport] = []
        self._told: list[Told] = []
        self._put_off: list[Callable[[], None]] = []
        self._tells_of_leaving = False
        self.compiles = 0
        """Frames, and backwards of frames, compiled so far; 0 if the program compiles nothing."""
        self.listeners: list[Listener] = []
        """Hear all that the compiler says of its work; what they raise is lost."""
        self.ran: set[int] = set()
        """``id`` of the callbacks that began since this was cleared; their holder keeps numbers."""
        self.calls = 0
        """How often compiled functions began so far, those that others called included."""

    def install(self) -> None:
        """Act when the compiler is imported, or at once."""
        if not self._imports:
            self._imports.append(AfterImport(PACKAGE, self._imported))
            self._imports[-1].install()

    def uninstall(self) -> None:
        """Put its rules back. May be called twice."""
        waiting, self._imports = self._imports, []
        for each in waiting:
            each.uninstall()
        self._patches.undo()
        self.compiles = 0
        self._tells_of_leaving = False
        self._put_off.clear()
        self.ran.clear()
        self.calls = 0
        MARK.optimizer = None

    def add(self, told: Told) -> None:
        """Call ``told`` with each optimizer that has stepped in compiled code."""
        self._told.append(told)

    def remove(self, told: Told) -> None:
        """Call it no more. May be called twice."""
        if told in self._told:
            self._told.remove(told)

    def outside(self, do: Callable[[], None]) -> None:
        """Call ``do`` now, or when the compiled function around us has returned."""
        if self._tells_of_leaving and beneath_compiled(sys._getframe(1)):
            self._put_off.append(do)
        else:
            do()

    def _imported(self) -> None:
        ours = [each.replace(os.sep, "/") for each in OWN]
        self._patches.on_undo(leave_out([*ours, SWAPPED]))
        when_told(self._patches.attribute, self._hears)
        self._tells_of_leaving = when_left(
            self._patches.attribute, self._left, self._waits, self._entered
        )

    def _hears(self, name: str, data: Callable[[], Any], text: Callable[[], Any] | None) -> None:
        with contextlib.suppress(Exception):  # the user's program continues
            if name.endswith("compilation_metrics"):
                known = data()
                self.compiles += is_compilation(name, known)
        for listener in tuple(self.listeners):
            with contextlib.suppress(Exception):
                listener(name, data, text)

    def _entered(self, callback: object) -> None:
        self.ran.add(id(callback))
        self.calls += 1

    @property
    def tells_of_calls(self) -> bool:
        """Whether :attr:`ran` can be relied on: the compiler says when it is called."""
        return self._tells_of_leaving

    def _waits(self) -> bool:
        return MARK.optimizer is not None or bool(self._put_off)

    def _left(self) -> None:
        optimizer, MARK.optimizer = MARK.optimizer, None
        if optimizer is not None:
            for told in tuple(self._told):
                told(optimizer)
        waiting, self._put_off = self._put_off, []
        for do in waiting:
            do()


COMPILED_CODE = CompiledCode()
