"""Which passes a run takes, how long each is, and why it ends: :func:`passes_of`. No torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from auditor.cycles import cycle_of, prolonged, whole_cycles
from auditor.model.devices import DeviceInfo
from auditor.runs.plan import (
    LEANER_STEPS,
    LEAST_REHEARSED,
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
    """At most ``most`` steps under one set of instruments. ``until`` is asked after each of them why
    it ends now (``""``: it goes on), ``wanted``, when the pass before it has ended, whether it is
    taken at all.
    """

    name: str
    most: int
    until: Callable[[Stats], str] = lambda stats: ""
    wanted: Callable[[Stats], bool] = lambda stats: True
    usual: int = -1  # as a rule; 0: the run shows whether there is such a pass; default: most
    done: int = 0
    why: str = ""  # it ended before `most` steps
    seconds: float = 0.0  # without waiting for a processor
    us: list[float] = field(default_factory=list)  # of each step alone
    compiled: bool = False  # code that torch.compile made ran in it

    def __post_init__(self) -> None:
        self.usual = self.most if self.usual < 0 else min(self.usual, self.most)

    @property
    def over(self) -> bool:
        """It has its steps."""
        return bool(self.why) or self.done >= self.most

    @property
    def steps(self) -> int:
        """All its steps, as far as is known by now."""
        return self.done if self.over else max(self.usual, self.done)


@dataclass
class Stats:
    """What a run has shown after a step; ``passes`` are those that it has begun."""

    overhead_s: float
    warn: Callable[[str], None] = lambda text: None
    passes: list[Pass] = field(default_factory=list)
    alike: int = 0  # last steps that looked alike: same lines as often, same rows but for times
    bursts: dict[object, set[int]] = field(default_factory=dict)  # lines with many reads: steps
    compiles: int = 0  # by torch.compile
    calm: int = 0  # last steps in which it compiled nothing
    anomaly: bool = False  # a backward ran under anomaly mode
    profiled: bool = False  # the program runs torch.profiler itself
    unused: bool = False  # a rehearsed program has trained, and put nothing on the device
    full: bool = False  # a longer trace would need too much memory
    asked_on: Callable[[], bool] = lambda: False  # a probe needs more steps to say anything
    half_full: Callable[[], bool] = lambda: False  # half of a GPU's memory was used
    peak_counts: Callable[[], bool] = lambda: True  # what a rehearsed step holds could matter

    @property
    def now(self) -> Pass:
        """The pass under way."""
        return self.passes[-1]

    def of(self, name: str) -> Pass:
        """The pass of this name; one without steps if there was none."""
        return next((each for each in self.passes if each.name == name), Pass(name, 0))


Until = Callable[[Stats], str]

# -- the passes ------------------------------------------------------------------------------------

STEADY_STEPS = 12  # what comes again after more is rate-limited, and named by no rule
DIAGNOSED_STEPS = 20  # twice what happens in every tenth step
CHEAP_S = 3.0  # that a rehearsal may take for steps that show what is done now and then
INSTANT_S, SELDOM_STEPS = 1.0, 51  # and for those that show what each 25th or 50th step does
MORE_STEPS = 20  # of a pass that goes on: a program that compiles on and on is never warm
ASKED = frozenset({"loud", "leaner", "numbers", "gradients", "values"})
"""Passes that are taken only if a probe watches them."""

TIMELESS = frozenset({"numbers", "gradients"})
"""Passes of a run on a CPU from which no time is read, not even a share. They are its last ones."""


def passes_of(plan: Plan, device: DeviceInfo, watched: frozenset[str]) -> list[Pass]:
    """The passes of a run in order; ``watched`` are those that its probes watch."""
    steps = plan.steps
    match plan.purpose:
        case Replay(step=step):
            return [Pass("replay", step + 1)]
        case Drill():
            return [Pass("drill", steps)]
        case Repeat():
            return [Pass("reproduce", steps)]
        case UntilOom(steps=most):
            return [Pass("memory", most)]
        case Change():  # nothing but the peak of memory is asked for
            return [Pass("warmup", plan.warmup), Pass("loud", steps)]
        case Trial():  # compared step by step
            timed = [Pass("warmup", plan.warmup), Pass("quiet", steps)]
            syncs = Pass("loud", 3 if device.accelerator else 0)
            passes = [Pass("loud", steps)] if device.simulated else [*timed, syncs]
        case _ if plan.device == "null":  # the steps of the rehearsal that it is laid beside
            passes = [Pass("loud", steps - 3), Pass("memory", 3)]
        case _ if device.shadow:
            passes = [each for each in _rehearsed(plan) if each.name in {*watched, "loud"}]
        case _:
            passes = [
                each
                for each in _measured(plan, device)
                if each.name in watched or each.name not in ASKED
            ]
    if plan.world_size > 1:  # a rank that took fewer would leave the others in a collective
        passes = [Pass(each.name, each.usual) for each in passes]
    if plan.fit is not None:
        share_out(plan.fit, passes)
    return [each for each in passes if each.most > 0]


def _measured(plan: Plan, device: DeviceInfo) -> list[Pass]:
    """Of a run on the device that there is: without instruments first, since those leave traces."""
    traced, steps, warmup = plan.purpose_as(Passes) or Passes(), plan.steps, plan.warmup
    causes, timed = min(steps, DIAGNOSED_STEPS), 0 if device.simulated else 1
    eager = first(as_many_as("quiet"), slower_than("quiet", 10, 3.0))
    return [
        Pass("warmup", warmup + MORE_STEPS if warmup else 0, warm, usual=warmup),
        Pass("quiet", timed * steps),
        Pass("anomaly_off", timed * 20, as_many_as("quiet"), lambda stats: stats.anomaly, usual=0),
        Pass("eager_held", timed * steps, eager, compiled_with_room, usual=0),
        Pass("compiled_again", timed * steps, as_many_as("eager_held"), eager_was_faster, usual=0),
        Pass(
            "trace",
            traced.trace,
            first(lambda stats: COMPLETE * stats.full, long(1, 0.1)),
            unprofiled,
        ),
        Pass("loud", steps, first(causes_known(causes), long(8, 0.25)), usual=causes),
        Pass("numbers", 3 + MORE_STEPS, first(told, long(1, 0.2)), usual=3),
        Pass("gradients", 2),
        Pass("memory", 12 if device.native else 0, long(3, 0.1)),
    ]


def _rehearsed(plan: Plan) -> list[Pass]:
    """Of a rehearsal: no step has a time, so it is watched from the first one on."""
    purpose = plan.purpose_as(Passes) or Passes()
    causes, changes = purpose.loud or min(plan.steps, DIAGNOSED_STEPS), len(LEANER_STEPS)
    further = bool(purpose.loud or purpose.values)
    now_and_then = (DIAGNOSED_STEPS, SELDOM_STEPS) if further else (causes, causes)
    causes_seen = first(
        lambda stats: COMPLETE * stats.unused,
        bursts_known(causes, *now_and_then),
        long(LEAST_REHEARSED, 0.3),
    )
    return [
        Pass("loud", max(causes + MORE_STEPS, now_and_then[1]), causes_seen, usual=causes),
        Pass(  # one change in each step: all, or none
            "leaner",
            changes,
            wanted=lambda stats: stats.peak_counts() and short(changes, 0.2)(stats),
        ),
        Pass("numbers", 3 + MORE_STEPS, first(told, long(1, 0.2)), usual=3),
        Pass("values", purpose.values, long(1, 1.0)),
    ]


# -- why a pass ends -------------------------------------------------------------------------------

ALIKE = "the last steps were alike"

LONG_STEPS = (
    "steps are long: passes with instruments had fewer of them, as the report's method lists; "
    "--overhead S gives them more time"
)

COMPLETE = "its evidence is complete"


def first(*untils: Until) -> Until:
    """The first reason of several."""
    return lambda stats: next((why for until in untils if (why := until(stats))), "")


def long(least: int, share: float) -> Until:
    """One more step would take it beyond this share of ``--overhead``, after ``least`` steps."""

    def until(stats: Stats) -> str:
        at = stats.now
        takes = at.seconds / at.done * (at.done + 1)
        if at.done < least or at.over or takes <= share * stats.overhead_s:
            return ""
        if at.done >= at.usual:
            return COMPLETE
        stats.warn(LONG_STEPS)
        return LONG_STEPS

    return until


def warm(stats: Stats) -> str:
    """torch.compile, where it is used, has compiled nothing for three steps."""
    at = stats.now
    if at.done < at.usual or (stats.compiles and stats.calm < 3 and not at.over):
        return ""
    if at.done > at.usual and stats.calm < 3:
        stats.warn(
            f"torch.compile still compiled after {at.done} warm-up steps: compilation does not "
            "settle"
        )
    elif at.done > at.usual:
        stats.warn(
            f"the warm-up took {at.done} steps, {at.done - at.usual} more than planned: "
            "torch.compile was still compiling"
        )
    return COMPLETE


def as_many_as(name: str) -> Until:
    """It has as many steps as another pass had."""
    return lambda stats: COMPLETE if stats.now.done >= stats.of(name).done else ""


def slower_than(name: str, least: int, times: float) -> Until:
    """It has taken this multiple of another pass's time; ``least`` steps make an interval."""

    def until(stats: Stats) -> str:
        too_long = stats.now.seconds > times * stats.of(name).seconds
        return COMPLETE if too_long and stats.now.done >= least else ""

    return until


def causes_known(steps: int) -> Until:
    """The last steps were alike, and no probe needs one more; or it has so many steps, or whole
    cycles if the timing pass shows phases that come once in many steps.
    """

    def until(stats: Stats) -> str:
        at, us = stats.now, stats.of("quiet").us
        if at.most > steps and cycle_of(us) is not None:
            wanted = whole_cycles(us, steps, at.most)
            if wanted > steps == at.done:
                stats.warn(prolonged(wanted))
            return COMPLETE if at.done >= wanted else ""
        if cycle_of(us) is None and stats.alike >= STEADY_STEPS and not stats.asked_on():
            return ALIKE
        return COMPLETE if at.done >= steps else ""

    return until


def told(stats: Stats) -> str:
    """After three steps no probe needs one more (steps may alternate)."""
    return COMPLETE if stats.now.done >= 3 and not stats.asked_on() else ""


def bursts_known(steps: int, cheap: int, instant: int) -> Until:
    """Each line that reads many values at once has done so in two steps, so that it is known how
    far they are apart, after ``steps``; where steps take little or no time after more of them, since
    much is done in each 20th or 50th step.
    """

    def until(stats: Stats) -> str:
        at, again = stats.now, all(len(seen) > 1 for seen in stats.bursts.values())
        fits = instant if at.seconds < INSTANT_S else cheap if at.seconds < CHEAP_S else steps
        over = again or at.done >= steps + MORE_STEPS
        return COMPLETE if over and at.done >= max(steps, fits) else ""

    return until


# -- whether there is such a pass ------------------------------------------------------------------


def compiled_with_room(stats: Stats) -> bool:
    """Compiled functions ran in the timing pass, and eager ones, which need more, fit the GPU."""
    if stats.of("quiet").compiled and stats.half_full():
        stats.warn(
            "what torch.compile gains was not measured: without it the step may need more memory "
            "than the GPU has"
        )
        return False
    return stats.of("quiet").compiled


def eager_was_faster(stats: Stats) -> bool:
    """Which may be the machine's doing as well."""
    eager = stats.of("eager_held").us
    return bool(eager) and median(eager) < median(stats.of("quiet").us)


def unprofiled(stats: Stats) -> bool:
    """Two profilers cannot run at once."""
    if stats.profiled:
        stats.warn(
            "the step runs torch.profiler itself: our own trace was left out (two profilers "
            "cannot run at once), and the step times include the cost of yours"
        )
    return not stats.profiled


def short(steps: int, share: float) -> Callable[[Stats], bool]:
    """So many steps, as long as those before, stay within a share of ``--overhead``."""

    def wanted(stats: Stats) -> bool:
        at = stats.now
        fits = steps * at.seconds / max(1, at.done) <= share * stats.overhead_s
        if not fits:
            stats.warn(LONG_STEPS)
        return fits

    return wanted


# -- a target that ends ----------------------------------------------------------------------------

ALL = 1 << 30
SHARED = (
    *(("loud", 3), ("quiet", 1), ("numbers", 1), ("memory", 3), ("trace", 1)),
    *(("loud", 8), ("numbers", 3), ("quiet", 3), ("gradients", 2), ("loud", 12), ("leaner", 5)),
    *(("quiet", 10), ("trace", 5), ("memory", 12), ("quiet", 20), ("loud", 20)),
    *(("quiet", ALL), ("loud", ALL), ("values", ALL)),
)
"""Passes of a target with too few steps for all: in this order, up to this many steps each. Below
three diagnosed steps rules say nothing of a pattern, and some ask for eight; a median of less than
three steps is one step.
"""

WHOLE = ("gradients", "leaner")
"""Passes that tell nothing with fewer steps."""


def share_out(total: int, passes: Sequence[Pass]) -> None:
    """Shorten the passes so that they have ``total`` steps together."""
    by_name = {each.name: each for each in passes if each.usual}
    most = {name: each.usual for name, each in by_name.items()}
    given = {
        name: min(n, max(1, total // 10)) if name == "warmup" else 0 for name, n in most.items()
    }
    for name, up_to in SHARED:
        left = total - sum(given.values())
        more = min(up_to, most.get(name, 0)) - given.get(name, 0)
        if more > 0 and (more <= left or name not in WHOLE):
            given[name] += min(more, left)
    for name, each in by_name.items():
        each.most = each.usual = given[name]


# -- the course ------------------------------------------------------------------------------------


class Schedule:
    """The passes of one run, as they are taken."""

    def __init__(self, plan: Plan, stats: Stats) -> None:
        self._counted = plan.fit is not None
        self.stats = stats
        self.queue: list[Pass] = []

    @property
    def done(self) -> bool:
        """All passes are complete."""
        return bool(self.stats.passes) and self.stats.now.over and not self.queue

    @property
    def between(self) -> bool:
        """No pass is under way."""
        return not self.stats.passes or self.stats.now.over

    @property
    def planned(self) -> list[Pass]:
        """All passes, done and to come, as far as they are known by now."""
        return [*self.stats.passes, *(each for each in self.queue if each.usual)]

    def next(self) -> Pass:
        """Begin the next pass."""
        at = self.queue.pop(0)
        at.usual = at.usual or at.most
        self.stats.passes.append(at)
        return at

    def step_done(self) -> None:
        """A step of the pass is complete, and ``stats`` is up to date."""
        at = self.stats.now
        at.done += 1
        at.why = at.until(self.stats)
        while at.over and self.queue and not self._taken(self.queue[0]):
            del self.queue[0]

    def _taken(self, further: Pass) -> bool:
        if self.stats.unused or not further.wanted(self.stats):
            return False
        if self._counted and not further.usual:  # half of the diagnostic steps that are to come
            loud = next((each for each in self.queue if each.name == "loud"), Pass("loud", 0))
            further.most = min(further.most, loud.most // 2)
            loud.most = loud.usual = loud.most - further.most
        return further.most > 0
