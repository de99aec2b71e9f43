"""Which passes there are, as far as that is known when the first step begins."""

from __future__ import annotations

from dataclasses import dataclass

from auditor.model.devices import DeviceInfo
from auditor.runs.plan import (
    DIAGNOSED_STEPS,
    GRADIENT_STEPS,
    LEANER_STEPS,
    LEAST_MEMORY,
    LEAST_REHEARSED,
    MEMORY_STEPS,
    NULL_MEMORY_STEPS,
    NULL_TIMED_STEPS,
    NUMBERS_STEPS,
    ORIGIN_STEPS,
    SYNC_STEPS,
    TELLING,
    Change,
    Drill,
    Passes,
    Plan,
    Replay,
    Trial,
    UntilOom,
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
    "origin": (1, 0.25),
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
        else plan.fit.share_out(plan.warmup, wanted)
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
        "origin": 0 if device.accelerator else ORIGIN_STEPS,
    }
    causes = {name: steps for name, steps in causes.items() if name in watched}
    if device.shadow:
        values = passes.values if "values" in watched else 0
        return {"loud": plan.steps, **causes, "values": values}
    if plan.device == "null":  # the same steps as the rehearsal, as far as that was judged
        timed = {} if plan.world_size > 1 or plan.fit else {"quiet": NULL_TIMED_STEPS}
        judged = plan.steps - NULL_MEMORY_STEPS
        return {"loud": judged, "memory": NULL_MEMORY_STEPS, **timed}
    causes.pop("leaner", None)
    if device.native:
        causes["memory"] = MEMORY_STEPS
    timing = {} if device.simulated else {"quiet": plan.steps}
    return {**timing, "trace": passes.trace, **causes}
