"""Where one thread is while it is inside a watched call: its stack, looked at from another thread
every few milliseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import dis
import functools
import itertools
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Hashable
from types import CodeType, FrameType

Stack = tuple[tuple[CodeType, int], ...]
"""Code and line of each frame, innermost first, down to the watched call without it."""

INTERVALS_S = (0.0015, 0.0025, 0.0020, 0.0017, 0.0023)
"""Seconds between two looks, in turn: a loop with a beat of its own is not met at one place
always.
"""

SWITCH_S = 0.00001
"""Python's switch interval while a call is watched. With its usual 5 ms the one who looks would get
the interpreter where the program lets go of it of itself (inside torch's operators), and never see
the Python code before.
"""

LOOK_S = 0.05
"""The same during a look, which nobody may interrupt."""

PR_SET_TIMERSLACK = 29
"""Linux rounds short waits of a thread up by 50 us unless it is told otherwise (prctl(2))."""

DEEPEST = 200
"""Frames of a stack above which it is not followed to the watched call."""


class StackSampler:
    """Looks at one thread at a time; the time since the last look goes to the stack that is seen.

    C code that keeps the interpreter to itself is seen when it returns, with the time that it
    took. The thread that looks lives from the first :meth:`begin` to :meth:`rest`.
    """

    def __init__(self) -> None:
        self._watched: tuple[FrameType, int, Hashable, int] | None = None
        self._looked_ns = 0
        self._looker: threading.Thread | None = None
        self._over = threading.Lock()
        self._usual_s = 0.0
        self._us: defaultdict[tuple[Hashable, Stack], list[float]] = defaultdict(lambda: [0.0, 0.0])

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
        if self._watched is not None:
            self._watched = None
            sys.setswitchinterval(self._usual_s)

    def rest(self) -> None:
        """End the thread that looks, so that this process may fork; the next :meth:`begin` starts
        another one.
        """
        looker, self._looker = self._looker, None
        if looker is not None:
            self._over.release()
            looker.join()

    def taken(self) -> dict[tuple[Hashable, Stack], tuple[float, int]]:
        """Us and looks by key and stack since the last call."""
        seen, self._us = self._us, defaultdict(lambda: [0.0, 0.0])
        return {where: (us, int(looks)) for where, (us, looks) in seen.items()}

    def _look_on(self, over: threading.Lock) -> None:
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)
        for seconds in itertools.cycle(INTERVALS_S):
            if over.acquire(timeout=seconds):
                return
            if self._watched is not None:
                sys.setswitchinterval(LOOK_S)
                self._look()
                sys.setswitchinterval(self._usual_s if self._watched is None else SWITCH_S)

    def _look(self) -> None:
        watched = self._watched
        if watched is None:
            return
        door, thread, key, since_ns = watched
        frame = sys._current_frames().get(thread)
        now = time.perf_counter_ns()
        stack: list[tuple[CodeType, int]] = []
        while frame is not None and frame is not door and len(stack) < DEEPEST:
            stack.append((frame.f_code, line_of(frame)))
            frame = frame.f_back
        if frame is not door:  # the call ended meanwhile
            return
        seen = self._us[key, tuple(stack)]
        seen[0] += (now - max(since_ns, self._looked_ns)) / 1e3
        seen[1] += 1
        self._looked_ns = now


def line_of(frame: FrameType) -> int:
    """The line that runs. Of an instruction without one that of the nearest one before it; the jump
    back of a loop, at which threads take turns, often has none, and then it is the loop's head.
    """
    return frame.f_lineno or _line_at(frame.f_code, frame.f_lasti)


@functools.lru_cache(maxsize=1024)
def _line_at(code: CodeType, offset: int) -> int:
    back = next(
        (each for each in dis.get_instructions(code) if each.offset == offset and _is_jump(each)),
        None,
    )
    if back is not None and back.argval < offset:
        offset = back.argval
    found = code.co_firstlineno
    for start, _, line in code.co_lines():
        if start > offset:
            break
        found = line or found
    return found


def _is_jump(instruction: dis.Instruction) -> bool:
    return instruction.opname.startswith("JUMP") and isinstance(instruction.argval, int)
