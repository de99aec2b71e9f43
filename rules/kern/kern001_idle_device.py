"""KERN001: the device is idle for a large part of the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.table import Others
from auditor.evidence.trace.idle import DEVICE, DRIVER, HOST, INPUT, LAUNCHING, WAIT, DeviceIdle
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob, see

OWNERS = {
    INPUT: ("the loop has no batch", ("DATA007",)),
    WAIT: (
        "the host had waited for the device",
        ("SYNC001", "SYNC002", "SYNC003", "SYNC004", "SYNC005", "SYNC006", "SYNC007"),
    ),
    DRIVER: (
        "the host was in calls of the driver that take or return memory",
        ("SYNC012", "SYNC008"),
    ),
    LAUNCHING: ("the host launches slower than the device works", ("KERN003",)),
    HOST: ("the host is busy with something else", ("KERN002",)),
}
"""Who else reports the idle time, by its cause: what they carry is no second warning here."""

LONG_KERNELS = "the host is slow between launches, though most kernels are not short"
QUEUED = "work was queued and did not start"
TOLD_US = 100.0
"""Gaps of queued work that are told one by one: a launch takes about 5 us, and another stream's
kernel seldom longer than this.
"""

UNEXPLAINED = "no single cause explains half of it"


@dataclass(frozen=True)
class Hints:
    """Whether most of the idle time is work that was queued and waited."""

    queued: bool = False


@dataclass(frozen=True)
class DeviceIdleInStep(Rule):
    """The device has nothing to do for a large part of the step."""

    code = "KERN001"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.3, "Share of the steps' time without any work of the device from which it is reported."
    )
    least_kernels: int = knob(
        20, "Kernels in the trace below which the finding is a note: that is no training step."
    )

    def detect(self, idle: DeviceIdle, others: Others) -> Iterator[Finding]:
        if idle.share < self.share or not idle.kernels:
            return
        carried = [
            cause
            for cause, (_, owners) in OWNERS.items()
            if not others.silent(*owners) and (cause != LAUNCHING or idle.small)
        ]
        unowned = idle.share - idle.share_of(*carried)
        loud = idle.marked and idle.kernels >= self.least_kernels and unowned >= self.share
        cause = max((*OWNERS, DEVICE), key=idle.share_of)
        mostly = 2 * idle.share_of(cause) >= idle.share
        why = (
            f"mostly ({amounts.percent(idle.share_of(cause))}) because {_because(idle, cause)}"
            if mostly
            else UNEXPLAINED
        )
        yield Finding(
            None,
            f"the device has nothing to do for {amounts.percent(idle.share)} of {idle.of_what}: "
            f"{why}",
            steps=idle.steps if idle.marked else 0,
            lost_us_per_step=unowned * idle.window_us / idle.steps if loud else None,
            basis="estimated" if loud else "none",
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=(*idle.facts, *_waiting_in_queue(idle)),
            hints=Hints(mostly and cause == DEVICE),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        if finding.hints_as(Hints).queued:
            return Remedy(
                "Look at what the queued work waits for: an event of another stream, a copy, a "
                "collective whose peers are late, or "
                "other programs on the same device."
            )
        return Remedy(
            "Take the largest cause first: feed the loop faster, remove host waits, launch less "
            "(torch.compile, CUDA graphs)."
        )


def _because(idle: DeviceIdle, cause: str) -> str:
    if cause == DEVICE:
        return f"{QUEUED}{_longest(idle)}"
    if cause == LAUNCHING and not idle.small:
        return LONG_KERNELS
    words, owners = OWNERS[cause]
    return f"{words}{see(*owners)}"


def _longest(idle: DeviceIdle) -> str:
    """The longest gap of queued work in words."""
    gap = max(idle.queued, key=lambda gap: gap.us, default=None)
    if gap is None:
        return ""
    return (
        f" (the longest gap is {amounts.duration(gap.us)}: {gap.api} had returned "
        f"{amounts.duration(gap.launched_us)} before the work began)"
    )


def _waiting_in_queue(idle: DeviceIdle) -> Iterator[tuple[str, str]]:
    """Gaps of queued work that are long, one by one."""
    for gap in idle.queued:
        if gap.us >= TOLD_US:
            when = (
                f"queued by {gap.api}, which returned {amounts.duration(gap.launched_us)} before "
                "the work began"
            )
            yield f"gap at {amounts.duration(gap.at_us)}", f"{amounts.duration(gap.us)}, {when}"
