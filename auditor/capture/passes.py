"""Which passes there are, as far as that is known when the first step begins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.probes.base import Context
from auditor.model.devices import DeviceInfo
from auditor.runs.plan import (
    DIAGNOSED_STEPS,
    GRADIENT_STEPS,
    LEANER_STEPS,
    LEAST_MEMORY,
    LEAST_REHEARSED,
    MEMORY_STEPS,
    NULL_MEMORY_STEPS,
    NUMBERS_STEPS,
    STEADY_STEPS,
    SYNC_STEPS,
    TELLING,
    Change,
    Drill,
    Passes,
    Plan,
    Replay,
    Trial,
    UntilOom,
    share_out,
)
from auditor.runs.repeat import Repeat


@dataclass
class Pass:
    """One stretch of steps under one set of instruments."""

    name: str
    steps: int
    done: int = 0
    spared: int = 0
    """Steps that it was to have, and that would have shown nothing new."""
    cut: int = 0
    """Those for which there was no time."""

    def shorten(self) -> None:
        """End after the steps that are done."""
        self.spared += self.steps - self.done
        self.steps = self.done

    def goes_beyond(self, seconds: float, overhead_s: float, *, shadow: bool) -> bool:
        """Whether another step takes it beyond its share of ``overhead_s``; never before it has the
        steps that it needs. ``seconds`` is what it took so far.
        """
        least, share = (REHEARSED_SHARES if shadow else SHARES).get(self.name, (self.steps, 1.0))
        return self.done >= least and seconds / self.done * (self.done + 1) > share * overhead_s


SHARES = {
    "trace": (1, 0.1),
    "loud": (TELLING, 0.25),
    "numbers": (1, 0.2),
    "memory": (LEAST_MEMORY, 0.1),
}
"""Steps that a pass needs, and its share of the time that is given where steps are long."""

REHEARSED_SHARES = {"loud": (LEAST_REHEARSED, 0.3), "numbers": (1, 0.2)}
"""The same in a rehearsal."""

LONG_STEPS = (
    "steps are long: passes with instruments had fewer of them, as the report's method lists; "
    "--overhead S gives them more time"
)

LEANER_SHARE = 0.2
"""What its what-if pass may take, which is whole or left out."""


def passes_of(plan: Plan, device: DeviceInfo, watched: frozenset[str]) -> list[Pass]:
    """All passes of a plan in order; ``watched`` are those that probes ask for."""
    match plan.purpose:
        case Replay(step=step):
            return [Pass("replay", step + 1)]
        case Drill():
            return [Pass("drill", plan.steps)]
        case Repeat():
            return [Pass("reproduce", plan.steps)]
        case UntilOom(steps=most):
            return [Pass("memory", most)]
        case Change():  # nothing but the peak of memory is asked for
            return [Pass("warmup", plan.warmup), Pass("loud", plan.steps)]
        case Trial() if not device.simulated:
            syncs = SYNC_STEPS if device.accelerator else 0
            wanted = {"quiet": plan.steps, "loud": syncs}
        case _:
            wanted = _wanted(plan, device, watched)
    steps = (
        {"warmup": plan.warmup, **wanted}
        if plan.fit is None
        else share_out(plan.fit, plan.warmup, wanted)
    )
    return [Pass(name, n) for name, n in steps.items() if n > 0]


def _wanted(plan: Plan, device: DeviceInfo, watched: frozenset[str]) -> dict[str, int]:
    """Steps of the passes after the warm-up, in order, of a target that takes as many as it is
    asked for.
    """
    passes = plan.purpose_as(Passes) or Passes(trace=0)
    causes = {
        "loud": passes.loud or min(plan.steps, DIAGNOSED_STEPS),
        "leaner": len(LEANER_STEPS),
        "numbers": NUMBERS_STEPS,
        "gradients": 0 if device.shadow else GRADIENT_STEPS,
    }
    causes = {name: steps for name, steps in causes.items() if name in watched}
    if device.shadow:
        values = passes.values if "values" in watched else 0
        return {"loud": plan.steps, **causes, "values": values}
    if plan.device == "null":  # the same steps as the rehearsal, as far as that was judged
        return {"loud": plan.steps - NULL_MEMORY_STEPS, "memory": NULL_MEMORY_STEPS}
    causes.pop("leaner", None)
    if device.native:
        causes["memory"] = MEMORY_STEPS
    timing = {} if device.simulated else {"quiet": plan.steps}
    return {**timing, "trace": passes.trace, **causes}


# -- steady steps ----------------------------------------------------------------------------------
# Whether the steps of a pass are alike, so that more of them would show nothing new.


class SteadySteps:
    """Compares what the probes saw of each step with what they saw of the one before it: places in
    the source, as often as they were met, and rows, but for times and the steps' own numbers.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._before: object = None
        self._alike = 0

    def begins(self) -> None:
        """A pass begins."""
        self._before, self._alike = None, 0
        self._forget()

    def step_ends(self) -> None:
        """A step has ended, and its rows are written."""
        seen = (dict(self._context.rows), dict(self._context.frames.met))
        self._alike = self._alike + 1 if seen == self._before else 1
        self._before = seen
        self._forget()

    @property
    def enough(self) -> bool:
        """The last :data:`STEADY_STEPS` steps were alike."""
        return self._alike >= STEADY_STEPS

    def _forget(self) -> None:
        self._context.rows.clear()
        self._context.frames.met.clear()


# -- warm-up ---------------------------------------------------------------------------------------
# How long the warm-up of a program goes on that compiles: until it has compiled.


CALM = 3
"""Steps in a row in which nothing was compiled, after which the program is warm."""

MOST_MORE = 20
"""Steps that a warm-up gets at most beyond its own: a program that compiles on and on is never
warm.
"""


class WarmUp:
    """Says after each step of the warm-up whether it needs one more. Without the compiler it never
    does.
    """

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._before = 0
        self._calm = 0
        self._more = 0

    def begin(self) -> None:
        """A step begins."""
        self._before = COMPILED_CODE.compiles

    def needs_more(self, done: int, steps: int) -> bool:
        """After ``done`` of ``steps`` steps."""
        self._calm = self._calm + 1 if self._before == COMPILED_CODE.compiles else 0
        if done < steps:
            return False
        if COMPILED_CODE.compiles and self._calm < CALM and self._more < MOST_MORE:
            self._more += 1
            return True
        if self._more:
            self._say(done)
        return False

    def _say(self, done: int) -> None:
        if self._calm < CALM:
            self._warn(
                f"torch.compile still compiled after {done} warm-up steps: the program does not "
                "get warm"
            )
        else:
            self._warn(
                f"the warm-up took {done} steps, {self._more} more than planned: torch.compile "
                "was still compiling"
            )


# -- held eager ------------------------------------------------------------------------------------
# Whether a program is run for a while with ``torch.compile`` held off, to find what it gains.


PATIENCE = 3.0
"""The pass ends when it has taken so many times as long as the timing pass."""

LEAST = 10
"""Steps that it takes all the same: an interval needs some."""

FREE_SHARE = 0.5
"""Share of a GPU's memory that the program must never have used: an eager step may need far more
than a compiled one, and running out of memory would be our doing.
"""


class HeldEager:
    """Says after the timing pass whether a pass ``eager_held`` follows, and when that has lasted
    long enough.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._quiet_s = 0.0
        self._calls = 0

    def begins(self) -> None:
        """A pass begins."""
        self._calls = COMPILED_CODE.calls

    def wanted(self, seconds: float) -> bool:
        """When the timing pass has ended, which took so long: compiled functions ran in it, and
        there is room.
        """
        self._quiet_s = seconds
        if COMPILED_CODE.calls == self._calls:
            return False
        if not _room(self._context):
            self._context.warn(
                "what torch.compile gains was not measured: without it the step may need more "
                "memory than the GPU has"
            )
            return False
        return True

    def enough(self, done: int, seconds: float) -> bool:
        """After ``done`` steps of the pass, which took so long."""
        return done >= LEAST and seconds > PATIENCE * self._quiet_s


def _room(context: Context) -> bool:
    if not context.device.native:
        return True
    return all(
        torch.cuda.max_memory_reserved(each)
        <= FREE_SHARE * torch.cuda.get_device_properties(each).total_memory
        for each in range(torch.cuda.device_count())
    )
