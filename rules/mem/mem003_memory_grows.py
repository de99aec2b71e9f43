"""MEM003: memory grows step over step, on the device or on the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.retained_graphs import RetainedGraphs
from auditor.evidence.recorded.trend import Trend
from auditor.evidence.snapshot.never_freed import NeverFreed
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import NotLooked, Rule, knob, see

from ..placing import places_of
from .growing_lines import GrowingLines
from .kept_tensors import Keeper, KeptTensors
from .memory import DeviceMemory, HostMemory

MIB = 2**20

NEVER_AGAIN = {
    "tensors": "its keys are tensors, which are compared by identity, so none is found again",
    "shuffled": "its keys are the same numbers put together again each time, and none came twice",
}
"""By ``Keeper.keys``."""


@dataclass(frozen=True)
class MemoryGrowsEveryStep(Rule):
    """Memory grows step over step."""

    code = "MEM003"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    rises: float = knob(
        0.7, "Share of the steps that must end with more memory than the one before."
    )
    tail: float = knob(
        0.2,
        "Share of the growth that must fall in the last third of the pass (a steady one has 0.33).",
    )
    device_share: float = knob(0.01, "Growth over the pass as a share of the peak, on the device.")
    device_mib: float = knob(1.0, "Growth over the pass in MiB, on the device.")
    trifle_kib: float = knob(
        1.0,
        "Growth per step in KiB below which device memory is a note: two tensors of one number each, "
        "as a history of losses has them.",
    )
    host_mib: float = knob(32.0, "Growth over the pass in MiB, on the host.")
    host_step_kib: float = knob(256.0, "Growth per step in KiB, on the host.")
    counted_kib: float = knob(
        1.0,
        "Growth per step in KiB of a variable in host memory that is known never to end: a million "
        "steps of it are 1 GiB.",
    )
    unended_kib: float = knob(
        16.0,
        "Growth per step in KiB of a variable in host memory that nothing cuts: 100,000 steps of it "
        "are 1.5 GiB.",
    )
    host_returned: float = knob(
        0.2,
        "Share of its rises that the host may have taken back in falls (glibc's arenas spread "
        "where sizes vary, and give back as much as a quarter).",
    )

    host_even: float = knob(
        0.25,
        "Share of the growth per step that the median step must add on the host, where no line is "
        "known; below it, it is a note (where sizes vary, the allocator's arenas spread in jumps).",
    )

    def detect(
        self,
        device: DeviceMemory,
        host: HostMemory,
        held: RetainedGraphs,
        kept: NeverFreed,
        growing: GrowingLines,
        *,
        keepers: KeptTensors,
        machine: Machine,
    ) -> Iterator[Finding]:
        if not device.trend.values and not host.trend.values:
            raise NotLooked("the memory of no step was measured")
        floor = max(self.device_mib * MIB, self.device_share * device.trend.peak)
        on_device = self._rate(device.trend, floor, 0.0)
        line = _line(kept, growing, self._rate, floor)
        keeper = None if line.name else self._keeper(keepers, floor, on_device)
        line = line if keeper is None else replace(keeper, allocated=line.site)
        if on_device is None and line.name:  # what else is freed or not yet freed hides it
            on_device = self._rate(line.trend, 0.0 if line.unbounded else floor, 0.0)
        on_host = self._rate(host.trend, self.host_mib * MIB, self.host_step_kib * 1024)
        on_host_at = _by_source((*growing.tensors, *growing.lists))
        if machine.simulated:
            on_host = None  # the shadow's tensors lie in host memory
        if on_host is not None:  # what was seen to grow tells more than the source
            on_host_at = self._keeper(keepers, None, on_host) or on_host_at
        if host.trend.returned > self.host_returned and not on_host_at.name:
            on_host = None  # it comes and goes
        of_host = host.trend
        if on_host is None:
            on_host_at = self._unended(keepers) or _Line()
            of_host = on_host_at.trend
            on_host = self._rate(of_host, 0.0, 0.0)
        names = ", ".join(sorted({root.name for root in held.roots if root.bytes_per_step()}))
        cause = f"; {names} keeps graphs{see('GRAPH001')}" if names else ""
        for where, trend, rate, place in (
            ("device", device.trend, on_device, line),
            ("host", of_host, on_host, on_host_at),
        ):
            if rate is None:
                continue
            yield Finding(
                place.site,
                f"{where} memory grows by {amounts.size(rate)} per step{place.said}{cause}"
                + (_full(host, rate) if where == "host" else ""),
                steps=len(trend.values),
                per_step=1.0,
                lost_bytes=round(rate),
                grows=True,
                basis=machine.bytes_basis if where == "device" else "measured",
                severity=Severity.NOTE
                if names  # GRAPH001 is the warning and has the line
                or place.may_end
                or (where == "device" and machine.simulated and not place.unbounded)
                or (where == "device" and rate <= self.trifle_kib * 1024)
                or (where == "host" and not place.name and trend.evenness < self.host_even)
                else None,
                facts=trend.facts,
                places=places_of(place.site, place.allocated),
                remedy=_remedy(where, place),
                follows="GRAPH001" if names else "",
            )

    def _keeper(
        self, keepers: KeptTensors, floor: float | None, rate: float | None
    ) -> _Line | None:
        """The variable whose tensors are half of what grows; in host memory with no ``floor``."""
        for each in keepers.growing(self.rises, device=floor is not None):
            trend = Trend(tuple(float(nbytes) for nbytes in each.nbytes))
            least = math.inf if floor is None else floor
            if each.bytes_per_step >= (rate or math.inf) / 2 or self._rate(trend, least, 0.0):
                return _kept_by(each)
        return None

    def _unended(self, keepers: KeptTensors) -> _Line | None:
        """The variable in host memory that is known to grow as long as the run, or else one that
        nothing cuts.
        """
        for known in (True, False):
            least = 1024 * (self.counted_kib if known else self.unended_kib)
            for each in keepers.growing(self.rises, device=False):
                line = _kept_by(each)
                counts = each.endless if known else not each.bounded
                if counts and self._rate(line.trend, 0.0, least) is not None:
                    return replace(line, may_end=not known)
        return None

    def _rate(self, trend: Trend, floor: float, per_step: float) -> float | None:
        """Growth in bytes per step; None where it is not established."""
        slope = trend.slope
        if slope is None or slope.low <= 0 or slope.per_step < per_step or trend.total < floor:
            return None
        if trend.noise > slope.per_step * len(trend.values):
            return None  # it comes and goes by more than it grew
        return (
            slope.per_step if trend.rises >= self.rises and trend.last_third >= self.tail else None
        )


@dataclass(frozen=True)
class _Line:
    """The line that growth is told at. ``name`` is what gets longer there: a variable that holds
    more and more tensors (``kept``), else one that is put behind itself. ``keys``: why its keys are
    never found again, as in ``NEVER_AGAIN``; ``last_alone``: only its last items are read.
    """

    site: Site | None = None
    said: str = ""
    name: str = ""
    unbounded: bool = False
    trend: Trend = field(default_factory=Trend)
    may_end: bool = False
    kept: bool = False
    keys: str = ""
    last_alone: bool = False
    allocated: Site | None = None
    """Where the tensors come from that a variable keeps."""


def _remedy(where: str, line: _Line) -> Remedy:
    name = line.name
    if name and not line.kept:
        return Remedy(
            f"Give {name} a bound: allocate it once and write each step's part into the next rows (a "
            "ring buffer), or keep the last rows alone after each step. Each step also copies all of "
            "it: what must be kept whole belongs into a list on the host, joined once at the end."
        )
    if name and line.keys:
        return Remedy(
            f"Key {name} by what comes again: a sample's own number, one entry for each sample. Or "
            "compute all of it once before the first step, and index that."
        )
    if name and line.last_alone:
        return Remedy(
            f"Keep what is read: make {name.split('[')[0]} a collections.deque(maxlen=...) for as "
            "many items, or a plain variable for the last one."
        )
    if name:
        return Remedy(
            f"Give {name} a bound (keep the last ones alone, or clear it when they were used), or "
            "keep numbers of them."
        )
    if where == "host":
        return Remedy(
            "Look for containers that grow: logged arrays, cached batches, histories. Bound them or "
            "write them out."
        )
    return Remedy(
        "Look for tensors kept from step to step: logged outputs, lists of losses, caches without a "
        "bound."
    )


def _kept_by(each: Keeper) -> _Line:
    trend = Trend(tuple(float(nbytes) for nbytes in each.nbytes))
    end = "" if each.bounded else ", and nothing cuts it"
    if each.joined:
        said = f": {each.joined} is appended to itself here on each step{end}"
        return _Line(each.site, said, each.joined, not each.bounded, trend, each.bounded)
    said = f": {each.name} holds more tensors after each step, put there by this line{end}"
    said += f" ({NEVER_AGAIN[each.keys]})" if each.keys in NEVER_AGAIN else ""
    alone = each.last_alone and not each.bounded and not each.keys
    said += ", and only its last items are read" if alone else ""
    line = _Line(each.site, said, each.name, not each.bounded, trend, each.bounded, True, each.keys)
    return replace(line, last_alone=alone)


def _full(host: HostMemory, rate: float) -> str:
    """When the host is full at this rate, as far as its memory is known."""
    values = host.trend.values
    room = host.usable - (values[-1] if values else 0.0)
    if room <= 0:
        return ""
    return f"; {amounts.size(host.usable)} are full after {float(f'{room / rate:.2g}'):,.0f} steps"


def _by_source(named: Sequence[tuple[Site, str]]) -> _Line:
    """The one line at which the source lets something grow without a bound."""
    if len(named) != 1:
        return _Line()
    ((site, name),) = named
    return _Line(site, f": {name} gets longer here on each step, and nothing cuts it", name, True)


def _line(
    kept: NeverFreed,
    growing: GrowingLines,
    rate: Callable[[Trend, float, float], float | None],
    floor: float,
) -> _Line:
    """Blocks that stay tell more than a line that holds more; what is put behind itself, most."""
    for each in growing.lines:
        found = each.accumulated
        least = 0.0 if found is not None and found.unbounded else floor
        if found is not None and rate(each.held, least, 0.0) is not None:
            said = f": {found.name} is appended to itself here on each step"
            if found.unbounded:
                said += ", and nothing cuts it"
            return _Line(each.site, said, found.name, found.unbounded, each.held)
    lists = _by_source(growing.lists)
    if kept.lines and lists.site is not None:
        held = (each.held for each in growing.lines if each.site == kept.lines[0].site)
        trend = next((each for each in held if rate(each, 0.0, 0.0) is not None), None)
        if trend is not None:
            return replace(lists, trend=trend)
    if kept.lines:
        said = f": {kept.lines[0].blocks} blocks allocated here were never freed"
        return _Line(kept.lines[0].site, said)
    for each in growing.lines:
        if rate(each.held, floor / 2, 0.0) is not None:
            return _Line(each.site, ": what is allocated here is larger on each step")
    return _Line()
