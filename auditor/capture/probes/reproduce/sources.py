"""Where a program takes what its next run may not get again: seeds, NumPy's own generators, the
clock. Noted, and held where a run is asked to.
"""

from __future__ import annotations

import functools
import random
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from auditor.capture.instruments.import_hook import AfterImport
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.user_frames import INSTALLED, OWN
from auditor.runs.repeat import Repeat

SEED = 0
CLOCKS = ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns")
BEGIN_NS, TICK_NS = 1_700_000_000 * 10**9, 10**6
"""A clock that is held begins here, and each look at it is so much later."""

MOST = 10_000
"""Notes that are kept."""

_LIBRARIES = ("<", *OWN, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")))


@dataclass
class Note:
    """``name`` as :class:`ReproduceSourceRow` has it; where the program was."""

    name: str
    value: str
    file: str
    line: int
    function: str


@dataclass
class Sources:
    """Of this process. Patches what the program has not imported yet, so it is begun before its
    first line.
    """

    held: frozenset[str] = frozenset()
    notes: list[Note] = field(default_factory=list)
    _patches: Patches = field(default_factory=Patches)
    _imports: list[AfterImport] = field(default_factory=list)
    _ticks: int = 0

    def begin(self, repeat: Repeat) -> None:
        """Note from now on, and hold what the run is to hold."""
        self.held = frozenset(repeat.held)
        if "random" in self.held:
            random.seed(SEED)
        self._seeds(random, "seed", "random")
        for name in CLOCKS:
            self._clock(name)
        for module, action in (("numpy.random", self._numpy), ("torch", self._torch)):
            self._imports.append(AfterImport(module, action))
            self._imports[-1].install()

    def end(self) -> None:
        """Put all back. May be called twice."""
        for each in self._imports:
            each.uninstall()
        self._patches.undo()

    def _numpy(self) -> None:
        numpy_random = sys.modules["numpy.random"]
        if "numpy" in self.held:
            numpy_random.seed(SEED)
        for name in ("seed", "default_rng"):
            self._seeds(numpy_random, name, "numpy", f"numpy.random.{name}")

    def _torch(self) -> None:
        torch = sys.modules["torch"]
        if "torch" in self.held:
            torch.manual_seed(SEED)
        for module in (torch, torch.random):
            self._seeds(module, "manual_seed", "torch", "torch.manual_seed")

    def _seeds(self, module: Any, name: str, source: str, label: str = "") -> None:
        original: Callable[..., Any] = getattr(module, name)
        label = label or f"{module.__name__}.{name}"

        @functools.wraps(original)
        def seeded(*args: Any, **kwargs: Any) -> Any:
            given = next(iter((*args, *kwargs.values())), None)
            value = repr(given)[:80] if isinstance(given, (int, float, str)) else ""
            self._note(label, "" if given is None else value or type(given).__name__)
            return original(SEED) if source in self.held else original(*args, **kwargs)

        self._patches.attribute(module, name, seeded)

    def _clock(self, name: str) -> None:
        original = getattr(time, name)

        @functools.wraps(original)
        def read() -> Any:
            if _is_library(sys._getframe(1)):
                return original()
            self._note("clock", "")
            if "clock" not in self.held:
                return original()
            self._ticks += 1
            now = BEGIN_NS + self._ticks * TICK_NS
            return now if name.endswith("_ns") else now / 1e9

        self._patches.attribute(time, name, read)

    def _note(self, name: str, value: str) -> None:
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and _is_library(frame):
            frame = frame.f_back
        if frame is not None and len(self.notes) < MOST:
            code = frame.f_code
            self.notes.append(Note(name, value, code.co_filename, frame.f_lineno, code.co_qualname))


def _is_library(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(_LIBRARIES) or any(mark in file for mark in INSTALLED)


SOURCES = Sources()
"""Those of this process."""
