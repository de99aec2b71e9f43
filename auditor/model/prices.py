"""What a price weighs beside step and peak, and the one order in which findings are listed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from auditor.model import Finding, Run, Severity, StepTimes

NOTE_BELOW = 0.001
"""Share of the step (of the peak, for memory) below which a priced finding is a note:
``note-below`` in ``[tool.audit]``. Ours: what comes back is then less than the difference between
two steps of any machine that we measured."""

LONG_RUN = 100_000
"""Steps that a training may take: an error's growing memory is weighed by then. Ours."""

EPOCH = 1000
"""Steps over which growth that is no error is weighed: an epoch may empty its holder. Ours."""

USUAL_MEMORY = 16 << 30
"""Bytes of a device or a host of which nothing is known."""

SMALL = 0.01
"""Share of the step or of the memory below which a note stands behind all warnings. Ours."""

OPENS = frozenset({"MEM015"})
"""Rules whose findings a report opens with: they say why the run ended."""

TRAINED = frozenset(
    "AMP006 CFG009 CFG012 CFG013 DATA011 DATA014 GRAPH005 GRAPH006 GRAPH011 NUM005 NUM012 OPT005 OPT006 "
    "OPT007 OPT009 OPT010 OPT011 OPT013 OPT014 OPT015 OPT016 OPT017 OPT018 OPT019".split()
)
"""Rules, besides TRAIN and errors of NUM, that say that something else is trained: costs come
behind that.
"""


def trains_otherwise(finding: Finding) -> bool:
    """True of a warning or an error of :data:`TRAINED` or of TRAIN, and of NaN that reach weights."""
    about = finding.code in TRAINED or finding.code.startswith("TRAIN")
    poisons = finding.code.startswith("NUM") and finding.severity == "error"
    return poisons or (about and finding.severity != "note")


def priced(finding: Finding) -> float | None:
    """``lost_us_per_step`` where it is a number above zero."""
    lost = finding.lost_us_per_step
    return lost if lost is not None and math.isfinite(lost) and lost > 0 else None


def unpriced_waits(finding: Finding) -> float:
    """How often in each step the host waits for a GPU; 0 if it is no wait, or has a price."""
    wait = finding.code.startswith("SYNC") and priced(finding) is None
    return finding.per_step if wait and not costs_nothing(finding) else 0.0


def costs_nothing(finding: Finding) -> bool:
    """True if a price in time was looked for, and the answer is that nothing would come back."""
    return finding.basis != "none" and finding.lost_us_per_step == 0


def share_of_step(us: float, times: StepTimes | None) -> float | None:
    """``us`` of each step as a share of the mean step; None if no step was timed.

    Of the mean and not of the median: prices are means, too (all time lost, divided by all steps),
    so the share is that of all the time the steps took. Reports of earlier versions hold no mean:
    there it is the median.
    """
    usual = usual_us(times)
    return us / usual if usual > 0 else None


def usual_us(times: StepTimes | None) -> float:
    """The step time that shares are of, in us; 0 if no step was timed."""
    if times is None:
        return 0.0
    return times.median if times.mean is None else times.mean


@dataclass(frozen=True)
class Scale:
    """What prices in time and in memory are shares of: us of the mean step, bytes that the device
    and the host have and that were used at the peak; 0 if not known.
    """

    step_us: float = 0.0
    device: int = 0
    device_peak: int = 0
    host: int = 0
    host_peak: int = 0

    @classmethod
    def of(cls, run: Run, environment: Mapping[str, str]) -> Scale:
        """That of a report."""
        device, host = (environment.get(name, "") for name in ("device_memory", "host_memory"))
        return cls(
            usual_us(run.step_us),
            int(device) if device.isdecimal() else 0,
            run.peak_bytes.device or 0,
            int(host) if host.isdecimal() else 0,
            run.peak_bytes.host or 0,
        )

    def worth(self, finding: Finding) -> float:
        """What comes back as a share of what there is, the larger one of time and memory: of the
        step, of the memory, and of what grows the part of the free memory that it fills in
        :data:`LONG_RUN` steps (of what is no error: in :data:`EPOCH`). An error of 1 or more the
        run does not survive.
        """
        us = finding.proven_us or 0.0
        return max(
            us / self.step_us if self.step_us > 0 else float(us > 0), self._of_memory(finding)
        )

    def _of_memory(self, finding: Finding) -> float:
        on_host = finding.seen_on in (None, "cpu")
        used = self.host_peak if on_host else self.device_peak
        there = (self.host if on_host else self.device) or max(USUAL_MEMORY, used)
        held = finding.lost_bytes or 0
        if not finding.grows:
            return held / there
        steps = LONG_RUN if finding.severity == "error" else EPOCH
        return held * steps / max(there - used, 1)


def in_order(findings: Iterable[Finding], scale: Scale | None = None) -> tuple[Finding, ...]:
    """By what comes back, time and memory as shares (:meth:`Scale.worth`), then what has no price,
    the worst first, and of waits the most; notes of little worth and negligible ones close.

    Errors open that are about no price: where the run ended or what was trained is worthless,
    everything is lost. Warnings about what is trained (:func:`trains_otherwise`) come before what a
    step could save. One that lets memory grow opens where the run does not survive it. A
    consequence stands behind the first finding of its cause, whatever its own price.
    """
    scale = scale or Scale()
    ranked = sorted(findings, key=lambda finding: _rank(finding, scale))
    first: dict[str, Finding] = {}
    for finding in ranked:
        if not finding.follows:
            first.setdefault(finding.code, finding)
    behind = [finding for finding in ranked if finding.follows and finding.follows in first]
    ahead = (finding for finding in ranked if not finding.follows or finding.follows not in first)
    return tuple(
        each
        for finding in ahead
        for each in (finding, *(late for late in behind if first[late.follows] is finding))
    )


def _rank(finding: Finding, scale: Scale) -> tuple[Any, ...]:
    # what is not proven orders nothing
    us, held = (finding.proven_us or 0.0, finding.lost_bytes or 0)
    place = finding.site.place if finding.site is not None else ("", 0)
    worth = scale.worth(finding)
    if finding.severity == "error" and not (us or held or finding.grows):
        worth = math.inf
    elif trains_otherwise(finding):
        worth = max(worth, 1.0)  # as the whole step: its result is in doubt
    all_lost = finding.severity == "error" and worth >= 1.0 and not us
    return (
        finding.code not in OPENS,
        not all_lost,
        finding.negligible,
        finding.severity == "note" and worth < SMALL,
        -worth,
        -us,
        -held,
        finding.severity.rank if finding.severity is not None else 9,
        -unpriced_waits(finding),
        finding.code,
        place,
    )


def weighed(
    finding: Finding,
    note: Severity,
    below: float,
    times: StepTimes | None,
    peaks: Mapping[str, int | None],
) -> Finding:
    """The finding, as a ``note`` where all that it costs is below that share: of the step's time,
    of the device's peak memory.

    ``peaks`` are bytes by where findings were seen. Unchanged: what has no price or an unknown
    share, what grows with each step (it has no share), and errors, which are about more than their
    price.
    """
    shares: list[float | None] = [0.0] if costs_nothing(finding) else []
    if (us := priced(finding)) is not None:
        shares.append(share_of_step(us, times))
    if finding.lost_bytes:
        peak = None if finding.grows else peaks.get(finding.seen_on or "cpu")
        shares.append(finding.lost_bytes / peak if peak else None)
    if (
        not shares
        or finding.severity == "error"
        or any(share is None or share >= below for share in shares)
    ):
        return finding
    return replace(finding, severity=note, negligible=True)
