"""Steps of an unmodified script, found from its optimizers, and a clean stop at the end."""

from __future__ import annotations

import functools
import os
import sys
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from auditor.capture.instruments.monkeypatch import Patches

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
        """Whether a step ended with the block. After a fault of ours nothing is learned."""
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


LEARN_REPEATS = 3
"""Optimizer steps of the busiest optimizer that are watched before a boundary is chosen."""

LEARN_REPEATS_WAITING = 12
"""Limit while an optimizer has not stepped yet (a GAN's generator, once in ten)."""

LOST_AFTER = 60
"""Steps of others without one of the chosen one, after which another is chosen."""

MOST_NAMED = 5
"""Optimizers inside a step that are named."""

LONG_CLOSURE = 200
"""Runs of one step's closure that say that no step ends (L-BFGS runs it 25 times)."""

ENDLESS_STEP = (
    "one optimizer.step(closure) ran its closure {:,} times and had not returned, and a step ends "
    "where optimizer.step() does: give the optimizer a smaller max_iter and call it in a loop, or "
    "name a function that takes one step: file.py:callable"
)


class StopAudit(BaseException):
    """Ends the script from an optimizer hook; ``except Exception`` does not catch it."""


class StepFinder:
    """Calls ``on_step`` once for each training iteration of a running script.

    One optimizer: after each of its steps (gradient accumulation is therefore one step). Several
    (GANs): after the one that steps least often, the last in the cycle among equals, learned from
    the first iterations. An optimizer step that GradScaler skipped counts all the same. An
    optimizer that steps from a gradient's hook does so inside the backward: the iteration then ends
    when that has returned (a profiler that starts or stops inside the engine crashes the process).
    Of a script that updates its parameters by hand, steps end where it has written them.
    """

    def __init__(
        self,
        on_step: Callable[[], None],
        on_endless: Callable[[str], None] = lambda _: None,
        place: Callable[[], str] = lambda: "",
    ) -> None:
        self._on_step = on_step
        self._on_endless = on_endless
        self._patches = Patches()
        self._order: list[int] = []
        self._counts: Counter[int] = Counter()
        self._boundary: int | None = None
        # Of optimizers by a number: the id of one that is gone is given to the next.
        self._numbers: dict[int, int] = {}
        self._alive: list[weakref.ref[Any]] = []
        self._others = 0
        self._stepped = False
        self._due = False
        self._waits = False
        self._made = 0
        self._by_hand = HandSteps(self._reached)
        self._place = place
        self._named: list[str] = []
        self._within: Counter[int] = Counter()
        self._whole: Counter[int] = Counter()
        self._counting = False
        # Of torch, which a script imports itself once its environment is set: of install().
        self._capturing: Callable[[], bool] = lambda: False
        self._running_backward: Callable[[], int] = lambda: -1
        self.optimizer_steps = 0

    @property
    def steps(self) -> int:
        """Steps of optimizers, and updates by hand."""
        return self.optimizer_steps + self._by_hand.steps

    @property
    def ends(self) -> str:
        """Which of several optimizers ends a step, and how often the others step within it."""
        steps = self._whole[self._boundary] if self._boundary is not None else 0
        others: Counter[str] = Counter()
        for optimizer, count in self._whole.items():
            if optimizer != self._boundary:
                others[self._named[optimizer]] += count
        if not steps or not others:
            return ""
        said = (
            f"{name} steps {'once' if often == 1 else f'{often:g} times'} within it"
            for name, often in ((name, round(n / steps, 1)) for name, n in others.items())
        )
        return "; ".join((self._named[self._boundary or 0], *list(said)[:MOST_NAMED]))

    def install(self) -> None:
        """Register the hooks; torch must be imported."""
        from torch.amp import GradScaler
        from torch.optim.optimizer import (
            Optimizer,
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        from auditor.capture.instruments.compiled_code import COMPILED_CODE
        from auditor.capture.instruments.torch_private.autograd import running_backward
        from auditor.capture.instruments.torch_private.compiler import NOTHING, STEPPED, traced_as
        from auditor.capture.probes.optim.optimizer_hooks import capturing

        self._capturing, self._running_backward = capturing, running_backward

        def before(optimizer: Any, args: Any, kwargs: Any) -> Any:
            return self._before_step(args, kwargs)

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if COMPILED_CODE.tells_of_calls:
                COMPILED_CODE.outside(lambda: self._after_step(optimizer))
            else:
                self._after_step(optimizer)

        for handle in (
            register_optimizer_step_pre_hook(traced_as(before, NOTHING)),
            register_optimizer_step_post_hook(traced_as(after, STEPPED)),
        ):
            self._patches.on_undo(handle.remove)
        COMPILED_CODE.add(self._after_step)
        self._patches.on_undo(lambda: COMPILED_CODE.remove(self._after_step))
        update, finder, make = GradScaler.update, self, Optimizer.__init__

        def counted_init(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            make(optimizer, *args, **kwargs)
            finder._made += 1

        def watched_update(scaler: Any, *args: Any, **kwargs: Any) -> Any:
            result = update(scaler, *args, **kwargs)
            finder._after_update(scaler)
            return result

        self._patches.attribute(GradScaler, "update", watched_update)
        self._patches.attribute(Optimizer, "__init__", counted_init)
        self._by_hand.install()

    def uninstall(self) -> None:
        """Remove them. May be called twice."""
        self._by_hand.stop()
        self._patches.undo()

    def _before_step(self, args: Any, kwargs: Any) -> Any:
        """Count the runs of the closure, until the first step is over."""
        given = "closure" in kwargs
        closure = kwargs.get("closure") if given else (args[1] if len(args) > 1 else None)
        if self.optimizer_steps or not callable(closure):
            return None
        counted = self._counted(closure)
        return (
            (args, {**kwargs, "closure": counted})
            if given
            else ((args[0], counted, *args[2:]), kwargs)
        )

    def _counted(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        runs = 0

        @functools.wraps(closure)
        def counted() -> Any:
            nonlocal runs
            runs += 1
            if runs == LONG_CLOSURE:
                self._on_endless(ENDLESS_STEP.format(runs))
            return closure()

        return counted

    def _after_step(self, optimizer: Any) -> None:
        if self._capturing():
            # the step is being recorded into a CUDA graph: to end it here would break the user's
            # capture
            return
        number = self._number(optimizer)
        if number == self._boundary and len(self._named) == 1:
            # One optimizer, as nearly always: there is nothing to tell apart, and of a long run
            # each step pays for this.
            self.optimizer_steps += 1
            self._stepped = True
            self._reached()
            return
        if not self.optimizer_steps:
            self._by_hand.stop()
        self.optimizer_steps += 1
        self._stepped = True
        self._saw(number)

    def _number(self, optimizer: Any) -> int:
        number = self._numbers.get(id(optimizer))
        if number is None or self._alive[number]() is not optimizer:
            number = self._numbers[id(optimizer)] = len(self._named)
            self._named.append(type(optimizer).__name__ + self._place())
            self._alive.append(weakref.ref(optimizer))
        return number

    def _after_update(self, scaler: Any) -> None:
        skipped, self._stepped = not self._stepped, False
        # With several optimizers the one that was skipped is not known: only the simple case counts
        # as a step.
        if skipped and scaler.is_enabled() and len(self._counts) <= 1:
            self._reached()

    def _saw(self, optimizer: int) -> None:
        self._within[optimizer] += 1
        if self._boundary is None:
            self._learn(optimizer)
        elif optimizer == self._boundary:
            self._others = 0
            self._count_whole()
            self._reached()
        else:
            self._others += 1
            if self._others > LOST_AFTER or self._alive[self._boundary]() is None:
                self._boundary, self._others = optimizer, 0
                self._whole.clear()
                self._within.clear()
                self._counting = False

    def _count_whole(self) -> None:
        """A step ended: count what stepped in it, but for the first, of which a part was seen."""
        if self._counting:
            self._whole.update(self._within)
        self._counting = True
        self._within.clear()

    def _reached(self) -> None:
        if self._running_backward() == -1:
            self._on_step()
            return
        import torch

        self._due = True
        if not self._waits:
            self._waits = True
            self._patches.attribute(
                torch.autograd, "backward", self._waiting(torch.autograd.backward)
            )

    def _waiting(self, backward: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(backward)
        def then_step(*args: Any, **kwargs: Any) -> None:
            backward(*args, **kwargs)
            if self._due:
                self._due = False
                self._on_step()

        return then_step

    def _learn(self, optimizer: int) -> None:
        self._counts[optimizer] += 1
        if self._counts[optimizer] == 1:
            self._order.append(optimizer)
        if not self._learned(self._counts[optimizer]):
            return
        counts = [self._counts[known] for known in self._order]
        # the first in the cycle may just have begun a new one
        same_pace = max(counts) - min(counts) <= 1
        rarest = [known for known in self._order if same_pace or self._counts[known] == min(counts)]
        self._boundary = rarest[-1]
        if optimizer == self._boundary:
            self._count_whole()
            self._reached()

    def _learned(self, repeats: int) -> bool:
        if self._made <= 1:
            return True
        return repeats >= (
            LEARN_REPEATS if len(self._order) >= self._made else LEARN_REPEATS_WAITING
        )


class Stopper:
    """Ends a script from inside a hook, again and again if the script catches everything."""

    LIMIT = 20

    def __init__(self, warn: Callable[[str], None], give_up: Callable[[], None]) -> None:
        self._warn = warn
        self._give_up = give_up
        self._raised = 0

    def stop(self) -> None:
        """Raise :class:`StopAudit`; after ``LIMIT`` swallowed ones write all and leave."""
        self._raised += 1
        if self._raised > self.LIMIT:
            try:
                self._warn(
                    f"the script dropped the stop {self.LIMIT} times (a bare 'except:'?), so its "
                    "process was ended at once"
                )
                self._give_up()
                sys.stdout.flush()
            finally:
                os._exit(0)
        raise StopAudit
