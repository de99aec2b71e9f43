"""Where a thread is in a watched call: its stack, looked at every few milliseconds."""

from __future__ import annotations

import contextlib
import ctypes
import dis
import functools
import gc
import itertools
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Hashable, Iterator
from types import CodeType, FrameType
from typing import NamedTuple

from auditor.recordings.writer import identity_of


class KeptOpen:
    """Reads its whole content each time.

    A target that closes all files closes this one, too; its number may then be that of a file of
    the target's, which is neither read nor closed.
    """

    def __init__(self, path: str) -> None:
        try:
            self._number: int | None = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
        except OSError:
            self._number = None
        self._identity = None if self._number is None else identity_of(self._number)

    def words(self) -> list[bytes]:
        """Its words; none where it cannot be read."""
        if self._number is None or identity_of(self._number) != self._identity:
            return []
        try:
            return os.pread(self._number, 256, 0).split()
        except OSError:
            return []

    def close(self) -> None:
        """Close it. May be called twice."""
        if self._number is not None and identity_of(self._number) == self._identity:
            os.close(self._number)
        self._number = None


Stack = tuple[tuple[CodeType, int], ...]
"""Code and line of each frame, innermost first, down to the watched call without it."""

INTERVALS_S = (0.0015, 0.0025, 0.0020, 0.0017, 0.0023)
"""Seconds between two looks, in turn: a loop with a beat is not always met at one place."""

SWITCH_S = 0.00001
"""Python's switch interval while a call is watched. With its usual 5 ms the sampler would get the
interpreter only when the program releases it by itself (inside torch's operators), and never see
Python code.
"""

LOOK_S = 0.05
"""Switch interval during a look, which no other thread may interrupt."""

PR_SET_TIMERSLACK = 29
"""Linux rounds short waits of a thread up by 50 us unless it is told otherwise (prctl(2))."""

DEEPEST = 200
"""Frames of a stack above which it is not followed to the watched call."""


LATE_NS = 200_000
"""Discard looks this late: by then the thread had given up its processor, or the interpreter."""

PERIOD_US = 1e6 * sum(INTERVALS_S) / len(INTERVALS_S)
"""What one look stands for at least."""


class StackSampler:
    """Looks at one thread at a time; the time since the last look goes to the stack that is seen.

    C code that keeps the interpreter to itself is seen when it returns, with the time that it took.
    A look counts for nothing where the program went on meanwhile. What no look stands for is the time of the empty stack, so that a share is one of all
    the time. The thread that looks lives from the first :meth:`begin` to :meth:`rest`.
    """

    def __init__(self) -> None:
        self._watched: tuple[FrameType, int, Hashable, int] | None = None
        self._looked_ns = 0
        self._looker: threading.Thread | None = None
        self._over = threading.Lock()
        self._usual_s = 0.0
        self._us: defaultdict[tuple[Hashable, Stack], list[float]] = defaultdict(lambda: [0.0, 0.0])
        self._inside_us: defaultdict[Hashable, float] = defaultdict(float)
        self._covered_us: defaultdict[Hashable, float] = defaultdict(float)

    def begin(self, key: Hashable) -> None:
        """The caller's frame begins the watched call; what is seen is kept under ``key``."""
        if self._looker is None:
            self._over = threading.Lock()
            self._over.acquire()
            self._looker = threading.Thread(
                target=self._look_on, args=(self._over,), name="audit-stacks", daemon=True
            )
            self._looker.start()
        self._usual_s = sys.getswitchinterval()
        sys.setswitchinterval(min(SWITCH_S, self._usual_s))
        now = time.perf_counter_ns()
        self._watched = (sys._getframe(1), threading.get_ident(), key, now)

    def end(self) -> None:
        """The watched call is over."""
        watched, self._watched = self._watched, None
        if watched is not None:
            sys.setswitchinterval(self._usual_s)
            self._inside_us[watched[2]] += (time.perf_counter_ns() - watched[3]) / 1e3

    def rest(self) -> None:
        """End the thread that looks, so that this process may fork, until :meth:`begin`."""
        looker, self._looker = self._looker, None
        if looker is not None:
            self._over.release()
            looker.join()

    def taken(self) -> dict[tuple[Hashable, Stack], tuple[float, int]]:
        """Us and looks by key and stack since the last call."""
        seen, self._us = self._us, defaultdict(lambda: [0.0, 0.0])
        inside, self._inside_us = self._inside_us, defaultdict(float)
        covered, self._covered_us = self._covered_us, defaultdict(float)
        for key, known_us in covered.items():
            us = sum(each[0] for (whose, _), each in seen.items() if whose == key)
            if us:
                seen[key, ()][0] += us * max(0.0, inside[key] / known_us - 1)
        return {where: (us, int(looks)) for where, (us, looks) in seen.items()}

    def _look_on(self, over: threading.Lock) -> None:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
        queue = KeptOpen(f"/proc/self/task/{threading.get_native_id()}/schedstat")
        waited_ns = queued_ns(queue)
        for seconds in itertools.cycle(INTERVALS_S):
            if over.acquire(timeout=seconds):
                break
            if self._watched is not None:
                sys.setswitchinterval(LOOK_S)
                known = self._meet()
                before_ns, waited_ns = waited_ns, queued_ns(queue)
                if known is not None:
                    self._note(known, waited_ns - before_ns)
                sys.setswitchinterval(self._usual_s if self._watched is None else SWITCH_S)
            else:
                waited_ns = queued_ns(queue)
        queue.close()

    def _meet(self) -> Met | None:
        """Where the thread is. None if the call has ended, or went on meanwhile."""
        watched = self._watched
        if watched is None:
            return None
        door, thread, key, since_ns = watched
        with _no_collection():
            top = sys._current_frames().get(thread)
            frames = _chain(top)
        since_ns, now_ns = max(since_ns, self._looked_ns), time.perf_counter_ns()
        inside = list(itertools.takewhile(lambda each: each is not door, frames))
        if len(inside) == len(frames):
            return None
        self._looked_ns = now_ns
        met = [(each, line_of(each), each.f_lasti) for each in inside]
        with _no_collection():
            now = sys._current_frames().get(thread)
        if now is not top or any(each.f_lasti != at for each, _, at in met):
            return None
        return Met(key, since_ns, now_ns, tuple((each.f_code, line) for each, line, _ in met))

    def _note(self, met: Met, waited_ns: int) -> None:
        """Keep it, unless the look waited for a processor."""
        ns = met.now_ns - met.since_ns
        us = ns / 1e3
        if waited_ns > max(LATE_NS, ns / 2):  # whose time it is has nothing to do with that
            self._covered_us[met.key] += us
            return
        seen = self._us[met.key, met.stack]
        seen[0] += us
        seen[1] += 1
        self._covered_us[met.key] += max(us, PERIOD_US)


class Met(NamedTuple):
    """What one look shows."""

    key: Hashable
    since_ns: int
    now_ns: int
    stack: Stack


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Python before 3.12 may collect garbage wherever an object is made, also while frames of another
    thread are listed: what is collected runs code, threads take turns, a frame that is being read
    ends, and the process crashes (python/cpython#106883).
    """
    collects = sys.version_info < (3, 12) and gc.isenabled()
    if collects:
        gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def _chain(top: FrameType | None) -> list[FrameType]:
    """A frame of another thread and those around it, in one call of C, so that no frame ends."""
    frames: list[FrameType] = []
    with contextlib.suppress(AttributeError):  # None has no frame around it
        frames.extend(
            itertools.accumulate(itertools.repeat("f_back", DEEPEST), getattr, initial=top)  # type: ignore[arg-type]
        )
    return frames


def queued_ns(queue: KeptOpen) -> int:
    """How long the calling thread has waited for a processor; 0 if the kernel does not tell."""
    words = queue.words()
    return int(words[1]) if len(words) > 1 else 0


def line_of(frame: FrameType) -> int:
    """The line that runs. Of an instruction without one that of the nearest one before it; the jump
    back of a loop, at which threads take turns, often has none, and then it is the loop's head.
    """
    return frame.f_lineno or _line_at(frame.f_code, frame.f_lasti)


@functools.lru_cache(maxsize=1024)
def _line_at(code: CodeType, offset: int) -> int:
    back = next((each for each in dis.get_instructions(code) if each.offset == offset), None)
    if (
        back is not None
        and back.opname.startswith("JUMP")
        and isinstance(back.argval, int)
        and back.argval < offset
    ):
        offset = back.argval
    found = code.co_firstlineno
    for start, _, line in code.co_lines():
        if start > offset:
            break
        found = line or found
    return found
