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

LEARN_REPEATS = 3
"""Optimizer steps of the busiest optimizer that are watched before a boundary is chosen."""

LEARN_REPEATS_WAITING = 12
"""Limit while an optimizer has not stepped yet (a GAN's generator, once in ten)."""

LOST_AFTER = 60
"""Steps of others without one of the chosen one, after which another is chosen."""

MOST_NAMED = 5
"""Optimizers inside a step that are named."""


class StopAudit(BaseException):
    """Ends the script from an optimizer hook; ``except Exception`` does not catch it."""


class StepFinder:
    """Calls ``on_step`` once for each training iteration of a running script.

    One optimizer: after each of its steps (gradient accumulation is therefore one step). Several
    (GANs): after the one that steps least often, the last in the cycle among equals, learned from
    the first iterations. An optimizer step that GradScaler skipped counts all the same. An
    optimizer that steps from a gradient's hook does so inside the backward: the iteration then ends
    when that has returned (a profiler that starts or stops inside the engine crashes the process).
    """

    def __init__(self, on_step: Callable[[], None], place: Callable[[], str] = lambda: "") -> None:
        self._on_step = on_step
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
        self._place = place
        self._named: list[str] = []
        self._within: Counter[int] = Counter()
        self._whole: Counter[int] = Counter()
        self._counting = False
        # Of torch, which a script imports itself once its environment is set: of install().
        self._capturing: Callable[[], bool] = lambda: False
        self._running_backward: Callable[[], int] = lambda: -1
        self.steps = 0
        """Of all optimizers."""

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
        from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

        from auditor.capture.instruments.compiled_code import COMPILED_CODE
        from auditor.capture.instruments.torch_private.autograd import running_backward
        from auditor.capture.instruments.torch_private.compiler import STEPPED, traced_as
        from auditor.capture.probes.optim.optimizer_hooks import capturing

        self._capturing, self._running_backward = capturing, running_backward

        def after(optimizer: Any, args: Any, kwargs: Any) -> None:
            if COMPILED_CODE.tells_of_calls:
                COMPILED_CODE.outside(lambda: self._after_step(optimizer))
            else:
                self._after_step(optimizer)

        self._patches.on_undo(register_optimizer_step_post_hook(traced_as(after, STEPPED)).remove)
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

    def uninstall(self) -> None:
        """Remove them. May be called twice."""
        self._patches.undo()

    def _after_step(self, optimizer: Any) -> None:
        if self._capturing():
            # the step is being recorded into a CUDA graph: to end it here would break the user's
            # capture
            return
        number = self._number(optimizer)
        if number == self._boundary and len(self._named) == 1:
            # One optimizer, as nearly always: there is nothing to tell apart, and of a long run
            # each step pays for this.
            self.steps += 1
            self._stepped = True
            self._reached()
            return
        self.steps += 1
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
