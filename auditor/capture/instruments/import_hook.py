"""Acting as the program imports torch: after its environment is set, before its code."""

from __future__ import annotations

import contextlib
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """Meanwhile garbage is not looked for: an import makes what lives on, and torch so much of it
    that every fifth second of its import is spent on looking.
    """
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls ``action`` once, right after the named module was executed for the first time."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name = name
        self._action = action
        self._busy = False
        self._acted = False

    def install(self) -> None:
        """Begin to watch; acts at once if the module is already there."""
        if self._name in sys.modules:
            self._act()
        else:
            sys.meta_path.insert(0, self)

    def uninstall(self) -> None:
        """Watch no more. May be called twice."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._acted = True

    def _act(self) -> None:
        if not self._acted:
            self._acted = True
            self._action()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Let the others find the module, and wrap its execution."""
        if fullname != self._name or self._busy:
            return None
        self._busy = True
        try:
            spec = importlib.util.find_spec(fullname)
        finally:
            self._busy = False
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            with uncollected():
                execute(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                self._act()  # imports, too: our probes

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec
