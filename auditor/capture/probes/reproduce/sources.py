"""Where a program takes what its next run may not get again: seeds, generators without one, the
clock, what the operating system gives. Noted, and held where a run is asked to.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import random
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, NamedTuple

from auditor.capture.instruments.monkeypatch import AfterImport, Patches
from auditor.capture.instruments.user_frames import INSTALLED, OWN
from auditor.runs.repeat import Repeat

SEED = 0
CLOCKS = ("time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns")
BEGIN_NS, TICK_NS = 1_700_000_000 * 10**9, 10**6
"""A clock that is held begins here, and each look at it is so much later."""

MOST = 10_000
"""Notes that are kept."""

_THROUGH = tuple(f"{os.sep}{name}.py" for name in ("random", "secrets", "uuid"))
"""Modules through which a program asks the operating system for random bytes."""

_LIBRARIES = ("<", *OWN, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib")))


NO_DRAWS = ("seed", "getstate", "setstate", "get_state", "set_state")
"""Methods of a generator that draw nothing from it."""


class Place(NamedTuple):
    """Where the program is."""

    file: str
    line: int
    function: str

    @classmethod
    def of(cls, frame: FrameType) -> Place:
        """The line that runs in a frame."""
        return cls(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


@dataclass
class Note:
    """``name`` as :class:`ReproduceSourceRow` has it; where the program was."""

    name: str
    value: str
    place: Place


@dataclass
class Sources:
    """Of this process. Begun before the program's first line: patches what it imports."""

    held: frozenset[str] = frozenset()
    notes: list[Note] = field(default_factory=list)
    drawn: dict[str, Place] = field(default_factory=dict)
    """Who drew last from Python's or NumPy's shared generator."""
    _patches: Patches = field(default_factory=Patches)
    _imports: list[AfterImport] = field(default_factory=list)
    _ticks: int = 0

    def begin(self, repeat: Repeat) -> None:
        """Note from now on, and hold what the run is to hold."""
        self.held = frozenset(repeat.held)
        if "random" in self.held:
            random.seed(SEED)
        self._seeds(random, "seed", "random")
        self._draws(random, "random")
        self._system()
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
        self._draws(numpy_random, "numpy")

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

    def _draws(self, module: Any, source: str) -> None:
        """Record the callers of a module's functions that are methods of its shared generator."""
        shared = module.random.__self__
        for name, original in tuple(vars(module).items()):
            if name not in NO_DRAWS and getattr(original, "__self__", None) is shared:
                self._patches.attribute(module, name, self._drawing(original, source))

    def _drawing(self, original: Callable[..., Any], source: str) -> Callable[..., Any]:
        @functools.wraps(original)
        def draw(*args: Any, **kwargs: Any) -> Any:
            frame = sys._getframe(1)
            if not _is_library(frame):
                self.drawn[source] = Place.of(frame)
            return original(*args, **kwargs)

        return draw

    def _system(self) -> None:
        """``os.urandom``, also below ``uuid4``, ``secrets`` and NumPy; ``random.Random()`` without a
        seed. Not ``os.getpid``: a program may send that process a signal.
        """
        bytes_of, seed_of = os.urandom, random.Random.seed
        held, numbers = "system" in self.held, itertools.count()

        @functools.wraps(bytes_of)
        def urandom(size: int, /) -> bytes:
            if self._takes_from_system() and held:
                return hashlib.shake_128(b"%d" % next(numbers)).digest(size)
            return bytes_of(size)

        @functools.wraps(seed_of)
        def seed(generator: random.Random, a: Any = None, *args: Any, **kwargs: Any) -> None:
            if a is None and self._takes_from_system() and held:
                a = SEED
            seed_of(generator, a, *args, **kwargs)

        for owner, name, function in (
            (os, "urandom", urandom),
            (random, "_urandom", urandom),
            (random.Random, "seed", seed),
        ):
            self._patches.attribute(owner, name, function)

    def _takes_from_system(self) -> bool:
        """Whether the program itself asks; noted."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.endswith(_THROUGH):
            frame = frame.f_back
        if frame is None or _is_library(frame):
            return False
        self._add("system", "", Place.of(frame))
        return True

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
        if frame is not None:
            self._add(name, value, Place.of(frame))

    def _add(self, name: str, value: str, place: Place) -> None:
        if len(self.notes) < MOST:
            self.notes.append(Note(name, value, place))


def _is_library(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    return file.startswith(_LIBRARIES) or any(mark in file for mark in INSTALLED)


SOURCES = Sources()
"""Those of this process."""
