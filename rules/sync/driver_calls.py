"""SYNC012: memory obtained from the driver in the step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from auditor import amounts
from auditor.allocator.replay import GAINS, LOSSES
from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.snapshot.file import snapshot_of
from auditor.evidence.snapshot.history import Allocations
from auditor.evidence.snapshot.state_at import NeverFreed, origins_of
from auditor.evidence.table import MALFORMED, Evidence, Table
from auditor.evidence.trace.facts import timeline_of
from auditor.model import Finding, Remedy, Severity, Site
from auditor.model.what_if import Change
from auditor.rule import NotLooked, Rule, knob, see

if TYPE_CHECKING:
    from auditor.timeline import Timeline


WARMING = 1
"""Steps at the begin of a trace in which allocations are still warm-up."""


@dataclass(frozen=True)
class DriverCalls:
    """Calls of one API. ``per_step`` counts them on each step; ``us`` is the host's time inside all
    of them, ``lost_us`` on each step the device's idle time that they caused.
    """

    api: str
    n: int
    us: float
    per_step: tuple[int, ...]
    lost_us: tuple[float, ...]
    rows: tuple[tuple[int, ...], ...] = ()
    """For each step the calls of the timeline that they are."""

    @property
    def steady(self) -> Change:
        """What a replay leaves out: these calls, but for those of the warm-up."""
        return Change("calls", tuple(row for step in self.rows[WARMING:] for row in step))

    @property
    def pins(self) -> bool:
        """Whether it takes or gives back pinned memory of the host, not memory of the device."""
        return "Host" in self.api

    def told(self, timed: bool, each: bool = True) -> str:
        """How many calls, and how long each or all of them took where the times are a GPU's."""
        took = (
            f", {amounts.duration(self.us / self.n)} each"
            if each
            else f", {amounts.duration(self.us)}"
        )
        return f"{self.n} calls{took if timed else ''}"

    @property
    def pattern(self) -> StepPattern:
        """On which steps it was called, those of the warm-up left out."""
        counted = self.per_step[WARMING:]
        return step_pattern({step for step, count in enumerate(counted) if count}, len(counted))


@dataclass(frozen=True)
class TraceDriver(Table):
    """Allocator calls by API."""

    files: ClassVar[tuple[str, ...]] = ("trace.json.gz",)

    marked: bool = False
    timed: bool = True
    """Whether its times are a GPU's: not those of a null device."""
    span_us: float = 0.0
    allocator: tuple[DriverCalls, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> TraceDriver:
        """From the trace. Raises :class:`NotLooked` if it holds no call of a GPU's runtime."""
        line = timeline_of(evidence)
        if not len(line.trace.calls.start):
            raise NotLooked(
                "the trace holds no call of a GPU's runtime"
                if line.devices
                else "the trace shows no GPU"
            )
        from auditor.timeline.intervals import STREAM_ORDERED, plain

        start, end = line.trace.span_ns()
        waiting = [one for one in line.allocator_calls if plain(one.api) not in STREAM_ORDERED]
        return cls(
            marked=line.steps.marked,
            timed=not line.trace.info.null_device,
            span_us=(end - start) / 1e3,
            allocator=tuple(_calls(line, one.rows.tolist(), one.api) for one in waiting),
        )


def _calls(line: Timeline, rows: list[int], api: str) -> DriverCalls:
    import numpy as np

    calls = line.trace.calls
    us = float((calls.end[rows] - calls.start[rows]).sum()) / 1e3
    step = line.steps.of(calls.start[rows]).tolist()
    inside: list[list[int]] = [[] for _ in range(line.steps.count)]
    lost = [0.0] * line.steps.count
    for each, row, ns in zip(step, rows, line.call_prices(np.array(rows)).tolist(), strict=True):
        if each >= 0:
            inside[each].append(row)
            lost[each] += ns / 1e3
    number = tuple(map(len, inside))
    return DriverCalls(api, len(rows), us, number, tuple(lost), tuple(map(tuple, inside)))


PINS = Remedy(
    "Pin memory once: keep a pinned buffer and fill it on each step, or let "
    "DataLoader(pin_memory=True) do it."
)
FREES = Remedy(
    "Find what returns memory: empty_cache() in the step, an allocator that runs out and retries "
    "(use less memory per step), or a cache that is switched off (PYTORCH_NO_CUDA_MEMORY_CACHING, "
    "torch.cuda.caching_allocator_enable(False))."
)
GROWS = Remedy(
    "Give the allocator blocks that fit: pad batches to a few sizes, run the largest first, or let "
    "segments grow.",
    config={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
)


@dataclass(frozen=True)
class Cause:
    """What a history says of it: the line, in words, and the rule that this follows from."""

    site: Site | None = None
    said: str = ""
    follows: str = ""


@dataclass(frozen=True)
class DriverAllocationsInSteadyState(Rule):
    """Steps obtain memory from the driver after warm-up."""

    code = "SYNC012"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.5, "Warn if at least this share of the steps after the first does so.")
    noticed: float = knob(0.01, "Without marked steps, report a note from this share of time on.")

    def detect(
        self, driver: TraceDriver, asked: SegmentRequests, kept: NeverFreed
    ) -> Iterator[Finding]:
        for pins in (False, True):
            calls = [one for one in driver.allocator if one.pins == pins]
            cause = Cause() if pins else _cause(asked, kept)
            if driver.marked:
                yield from self._in_steps(calls, driver.timed, cause)
            elif driver.timed:
                yield from self._in_all(calls, driver.span_us)

    def _in_steps(self, calls: list[DriverCalls], timed: bool, cause: Cause) -> Iterator[Finding]:
        steady = [one for one in calls if len(one.pattern.seen) > WARMING]
        if not steady:
            return
        most = max((one.pattern for one in steady), key=lambda one: len(one.seen))
        lost = sum(sum(one.lost_us[WARMING:]) for one in steady) / most.of
        names = " and ".join(one.api for one in steady)
        known = most.share >= self.share and not cause.follows
        yield Finding(
            cause.site,
            f"{names} on {len(most.seen)} of the {amounts.count(most.of, 'step')} after the first: "
            f"{'pinned' if steady[0].pins else 'device'} memory comes from the driver again"
            f"{cause.said}",
            steps=len(most.seen),
            per_step=sum(sum(one.per_step[WARMING:]) for one in steady) / most.of,
            lost_us_per_step=lost if timed else None,
            basis="estimated" if timed else "none",
            seen_on="trace",
            severity=None if known else Severity.NOTE,
            facts=tuple((one.api, one.told(timed)) for one in steady),
            follows=cause.follows,
            remedy=_remedy(steady),
            changes=tuple(one.steady for one in steady) if timed else (),
        )

    def _in_all(self, calls: list[DriverCalls], span_us: float) -> Iterator[Finding]:
        us, n = sum(one.us for one in calls), sum(one.n for one in calls)
        if n < 2 or us < self.noticed * span_us:
            return
        names = " and ".join(one.api for one in calls)
        message = (
            f"{n} calls of {names} take {amounts.percent(us / span_us)} of the trace, which marks "
            "no steps: warm-up may be among them"
        )
        facts = tuple((one.api, one.told(timed=True, each=False)) for one in calls)
        yield Finding(
            None, message, seen_on="trace", severity=Severity.NOTE, facts=facts, remedy=GROWS
        )


def _remedy(calls: list[DriverCalls]) -> Remedy:
    if calls[0].pins:
        return PINS
    return FREES if any("Free" in one.api or "Release" in one.api for one in calls) else GROWS


def _cause(asked: SegmentRequests, kept: NeverFreed) -> Cause:
    """Without a history, as in a trace that stands alone, nothing is known."""
    if asked.emptied is not None:
        said = f"; empty_cache() here returned it{see('SYNC009')}"
        return Cause(asked.emptied, said, follows="SYNC009")
    if kept.lines:
        first = kept.lines[0].site
        said = f"; tensors made here are never freed{see('MEM003')}"
        return Cause(first, said, follows="MEM003")
    if not asked.lines:
        return Cause()
    site, times = asked.lines[0]
    return Cause(site, f"; {times} of {sum(n for _, n in asked.lines)} times for tensors made here")


# -- segment requests ------------------------------------------------------------------------------
# For which lines the allocator went to the driver, and who gave memory back, by an allocation
# history.


@dataclass(frozen=True)
class SegmentRequests(Table):
    """All devices of the history together; empty if there is none.

    ``lines`` are those whose tensors needed memory from the driver, with the number of times, most
    often first; ``emptied`` is the line whose ``empty_cache`` returned memory most often.
    """

    files: ClassVar[tuple[str, ...]] = ("snapshot.pickle",)

    lines: tuple[tuple[Site, int], ...] = ()
    emptied: Site | None = None

    @classmethod
    def build(cls, evidence: Evidence) -> SegmentRequests:
        try:
            courses, data = evidence.get(Allocations).devices, snapshot_of(evidence)
            origins = origins_of(evidence)
            asked, emptied = Counter[Site](), Counter[Site]()
            for event in (event for course in courses for event in data.trace(course.device)):
                frames = event.get("frames") or ()
                if event["action"] in GAINS:
                    counter = asked
                elif event["action"] in LOSSES and any(
                    "empty_cache" in each["name"] for each in frames
                ):
                    counter = emptied
                else:
                    continue
                site = origins.site(frames)
                if site is not None:
                    counter[site] += 1
        except (NotLooked, *MALFORMED):
            return cls()
        return cls(tuple(asked.most_common()), next(iter(dict(emptied.most_common())), None))
