"""Where the user's program wraps modules in ``DistributedDataParallel``."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from torch.nn.parallel import DistributedDataParallel

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.user_frames import Frames

MOST = 64
"""Modules that are followed."""

T = TypeVar("T")


class DataParallelModules(Generic[T]):
    """Follows them from :meth:`install` on, and keeps none alive.

    ``note`` makes what a probe keeps of a module, from its number, in the order in which modules
    were wrapped, and its line: a number in ``sites``, None where it is not known.
    """

    def __init__(self, frames: Frames, note: Callable[[int, int | None], T]) -> None:
        self._frames = frames
        self._note = note
        self._count = 0
        self.each: weakref.WeakKeyDictionary[Any, T] = weakref.WeakKeyDictionary()

    def install(self, patches: Patches) -> None:
        """Watch the constructor, until these are undone."""
        patches.around(DistributedDataParallel, "__init__", after=self._made)

    def _made(self, _: None, module: Any, *args: Any, **kwargs: Any) -> None:
        if self._count < MOST:
            self.each[module] = self._note(self._count, self._frames.here())
            self._count += 1
