"""What the fixes of a trace save, alone and one after the other, in words and rows."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.model import Finding, Report
from auditor.model.prices import usual_us
from auditor.model.what_if import OVERLAPS, WhatIf

from . import text

_MESSAGE_LIMIT = 300


@dataclass(frozen=True)
class FixRow:
    """One fix as it is shown. ``anchor`` is its finding on the page, empty without a page."""

    code: str
    where: str
    alone: str
    after: str
    left: str
    """What a step takes with this one and all above it fixed."""
    anchor: str
    message: str


HEADINGS = ("fix", "alone", "after those above", "step time then", "where")


def rows(report: Report) -> tuple[FixRow, ...]:
    """The table of savings; empty for a single fix, or without a replay."""
    found = report.what_if
    return tuple(_rows(report, found)) if found and len(found.fixes) > 1 else ()


def _rows(report: Report, found: WhatIf) -> Iterator[FixRow]:
    left = found.recorded_us
    anchors = {
        (each.code, each.key, each.message): f"finding-{number}"
        for number, each in enumerate(report.findings, 1)
    }
    for fix in found.fixes:
        left -= fix.after_us
        yield FixRow(
            text.one_line(fix.code, 20),
            text.path(fix.place) if fix.place else "",
            amounts.duration(fix.alone_us),
            amounts.duration(fix.after_us),
            amounts.duration(max(0.0, left)),
            anchors.get((fix.code, fix.key, fix.message), ""),
            text.one_line(fix.message, _MESSAGE_LIMIT),
        )


def sentences(report: Report) -> tuple[str, ...]:
    """Whether the single prices overlap, and how true the replay is; or why no replay was made."""
    return tuple(_sentences(report, report.what_if)) if report.what_if is not None else ()


def _sentences(report: Report, found: WhatIf) -> Iterator[str]:
    if found.reason:
        yield (
            f"No replay of the trace: {text.one_line(found.reason, 300)}. Each price considers its "
            "finding alone, and prices may overlap."
        )
        return
    if len(found.fixes) > 1 and found.overlap:
        more = "less" if found.joint_us < found.alone_us else "more"
        yield (
            f"Single prices sum to {amounts.duration(found.alone_us)} per step; all fixes "
            f"together save {more}, {amounts.duration(found.joint_us)}."
        )
    yield (
        f"Prices come from a replay of the trace. Unchanged, the replay takes "
        f"{amounts.duration(found.replayed_us)} per step; "
        f"{amounts.duration(found.recorded_us)} were recorded{_played(report, found)}."
    )


def _played(report: Report, found: WhatIf) -> str:
    """That the replay's steps are not all whose mean is shown; empty if these take as long."""
    mean = usual_us(report.run.step_us)
    if not mean or amounts.duration(mean) == amounts.duration(found.recorded_us):
        return ""
    return f" in the replayed steps (the mean of all steps is {amounts.duration(mean)})"


@dataclass(frozen=True)
class Together:
    """What findings give back together, in us per step; ``alone_us``: summed prices if other."""

    us: float
    alone_us: float | None
    findings: tuple[Finding, ...]


def together(report: Report, found: Iterable[Finding]) -> Together:
    """Of these findings. Those that the replay prices together count so, others are added."""
    priced = {
        (fix.code, fix.key, fix.message): fix.after_us
        for fix in (report.what_if.fixes if report.what_if is not None else ())
    }
    counted = tuple(found)
    single = [each.proven_us or 0.0 for each in counted]
    joint = [
        priced.get((each.code, each.key, each.message), us)
        for each, us in zip(counted, single, strict=True)
    ]
    findings = tuple(
        each for each, alone, after in zip(counted, single, joint, strict=True) if alone or after
    )
    alone, us = sum(single), sum(joint)
    return Together(us, alone if abs(alone - us) > OVERLAPS * max(alone, us) else None, findings)
