"""Steps of a script that updates its parameters by hand, without an optimizer of torch's."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

LEAVES = 512
"""Parameters that are compared at most."""

FRAMES = 8
"""Frames between the end of a block and the line of the program that it belongs to, at most."""

Place = tuple[str, int]
"""File and line."""


class HandSteps:
    """Calls ``on_step`` where a ``torch.no_grad()`` block ends in which what a backward gave
    gradients to was written.

    Learned from the first iterations: which line such a block is of, and how many of them an
    iteration has. Two iterations that agree are enough. Where an optimizer steps, this stops.
    """

    def __init__(self, on_step: Callable[[], None]) -> None:
        self._on_step = on_step
        self._leaves: dict[int, tuple[Any, int, int]] = {}
        self._ends: Counter[Place] = Counter()
        self._last: tuple[Place, int] | None = None
        self._before: tuple[Place, int] | None = None
        self._learned: tuple[Place, int] | None = None
        self._put_back: list[Callable[[], None]] = []
        self.steps = 0

    def install(self) -> None:
        """Watch backwards, and the ends of such blocks; torch must be imported."""
        import torch

        from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS

        BACKWARD_HOOKS.add(self)
        for block in (torch.no_grad, torch.set_grad_enabled):
            self._watch(block)

    def stop(self) -> None:
        """An optimizer steps, or the run is over. May be called twice."""
        if self._put_back:  # else it was not installed, and torch may not be imported
            self._forget()
        self._learned = None
        while self._put_back:
            self._put_back.pop()()

    def _forget(self) -> None:
        from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS

        BACKWARD_HOOKS.remove(self)
        self._leaves.clear()

    def _watch(self, block: type) -> None:
        original = vars(block)["__exit__"]

        @functools.wraps(original)
        def ends(*args: Any) -> Any:
            result = original(*args)
            if self._looked():
                self._on_step()
            return result

        def put_back() -> None:
            if vars(block)["__exit__"] is ends:  # else another patch lies over it
                block.__exit__ = original  # type: ignore[attr-defined]

        block.__exit__ = ends  # type: ignore[attr-defined]
        self._put_back.append(put_back)

    # -- what happens ------------------------------------------------------------------------------

    def backward_begins(self, call: Any) -> None:
        """An iteration has been seen, if parameters were written since the last one."""
        if call.nested:
            return
        if self._last is not None:
            agree, self._before = self._before == self._last, self._last
            self._last = None
            if agree:
                self._learned = self._before
                self._forget()
            self._ends.clear()
        if self._learned is None:
            for node in call.walked.leaves[:LEAVES]:
                self._remember(node.variable)

    def backward_ends(self, call: Any) -> None:
        """Nothing to do: gradients alone are no step."""

    def backward_lost(self, error: Exception) -> None:
        """Nothing is learned then, and the script is said to have no steps."""

    def _looked(self) -> bool:
        """Whether a step ended with the block. A fault of ours is none of the program's: nothing is
        learned then.
        """
        try:
            return self._ended()
        except Exception:
            self._forget()
            self._learned = None
            return False

    def _ended(self) -> bool:
        """A block is over; true if a step is."""
        if not (self._leaves or self._learned):
            return False
        import torch

        from auditor.capture.instruments.torch_private.autograd import running_backward

        if not torch.is_grad_enabled() or running_backward() != -1:
            return False
        place = _place()
        if place is None or (self._learned is not None and place != self._learned[0]):
            return False
        self._ends[place] += 1
        if self._learned is None:
            if self._written():
                self._last = place, self._ends[place]
            return False
        if self._ends[place] < self._learned[1]:
            return False
        self._ends.clear()
        self.steps += 1
        return True

    def _remember(self, leaf: Any) -> None:
        import weakref

        self._leaves[id(leaf)] = weakref.ref(leaf), *_state(leaf)

    def _written(self) -> bool:
        """Whether any of the leaves was written since this was asked last."""
        written = False
        for reference, version, place in list(self._leaves.values()):
            leaf = reference()
            if leaf is not None and _state(leaf) != (version, place):
                written = True
                self._remember(leaf)
        return written


def _state(leaf: Any) -> tuple[int, int]:
    """How often it was written to, and where it lies (``p.data = ...`` moves it)."""
    from auditor.capture.instruments.plain_tensor import plain
    from auditor.capture.instruments.torch_private.tensors import version_hint

    return version_hint(leaf), int(plain(leaf).data_ptr())


def _place() -> Place | None:
    """The line of the program that the block which just ended belongs to."""
    frame: Any = sys._getframe(2)
    for _ in range(FRAMES):
        if frame is None:
            return None
        name = str(frame.f_globals.get("__name__", ""))
        if not name.startswith(("torch.", "auditor.")):
            return frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back
    return None
