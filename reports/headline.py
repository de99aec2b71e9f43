"""What a report says first in all formats: what is proven, what could be saved, how it waits."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from auditor import amounts
from auditor.model import Finding, Report, Severity
from auditor.model.devices import device_named
from auditor.model.prices import priced, share_of_step, trains_otherwise, unpriced_waits, usual_us

from . import outcomes, summary, text, verified, what_ifs


@dataclass(frozen=True)
class Gain:
    """A sentence of the headline, and how the page shows it: the ``figure`` in large digits, with its
    ``unit``, over the sentence, or over ``beside``; without a figure as a sentence alone. ``among``
    are the findings that it is of, ``share`` that of the mean step. With ``page_only`` no other
    format has it.
    """

    sentence: str
    figure: str = ""
    unit: str = ""
    kind: str = ""
    among: tuple[Finding, ...] = ()
    share: float | None = None
    href: str = ""
    page_only: bool = False
    beside: str = ""


def headline(report: Report) -> tuple[str, ...]:
    """The report's first words, without a verb of promise: what is not trained as the program says,
    what was verified, then each basis of price alone.
    """
    priced = (gain.sentence for gain in gains(report) if not gain.page_only)
    return (*_trained_otherwise(report), *priced)


def gains(report: Report) -> Iterator[Gain]:
    """The headline, the best first."""
    if report.checkpoints:
        latest = outcomes.latest_good(report)
        kind, unit = ("verified", "is the latest good one") if latest else ("", "")
        yield Gain(
            outcomes.good(report),
            latest or "None is good",
            unit,
            kind,
            href="checkpoints",
            page_only=True,
        )
    if not report.findings:
        yield _nothing(report)
        return
    priced_gains = tuple(_priced(report))
    yield from priced_gains
    yield from _waits(report)
    if not priced_gains and not all(map(trains_otherwise, report.findings)):
        known = "what it costs" if len(report.findings) == 1 else "what they cost"
        counted, why = summary.severities(report), f"{known} in time is not known"
        if any(priced(each) is not None and not verified.settled(each) for each in report.findings):
            why = "no time saving is proven"
        yield Gain(f"found {counted}; {why}", f"Found {counted}", beside=why)
    yield from _memory(report)


def _nothing(report: Report) -> Gain:
    """No finding, and how many rules passed or could not be checked."""
    early = report.run.outcome != "completed"
    return Gain(
        f"No findings: {summary.looked(report)}.",
        f"Nothing found{' before that' if early else ''}",
        kind="" if early or report.caveats else "nothing",
        href="skipped" if summary.with_status(report, "skipped") else "verdicts",
    )


def _trained_otherwise(report: Report) -> Iterator[str]:
    """How many findings say that something else is trained than the program says."""
    found = tuple(each for each in report.findings if trains_otherwise(each))
    if found:
        verb, first = "changes" if len(found) == 1 else "change", found[0]
        site = f" at {text.path(str(first.site))}" if first.site else ""
        where = f"{'first ' if len(found) > 1 else ''}{first.code}{site}"
        yield f"{amounts.count(len(found), 'finding')} {verb} what is trained: {where}"


def _priced(report: Report) -> Iterator[Gain]:
    best, banner = proven(report), verified.banner(report)
    if banner:
        yield Gain(f"verified: {', '.join(banner)}", banner[0], kind="verified")
    elif best is not None and best.verified is not None:
        before, after = best.verified.step_us_before or 0.0, best.verified.step_us_after or 0.0
        saved, was, now = (amounts.duration(us) for us in (before - after, before, after))
        yield Gain(
            f"verified: the patch for {best.code} saves {saved} per step ({was} to {now})",
            saved,
            "per step",
            "verified",
            (best,),
        )
    if dropped := verified.dropped(report):
        yield Gain(dropped)
    parts = recoverable(report)
    for basis, part in parts:
        fixing, apart = f"fixing {_named(part.findings)}", ""
        if part.alone_us is not None:
            fixing += " together"
            apart = f" ({summary.one_by_one(part.us, part.alone_us)})"
        said = f"{basis}: {fixing} could save {_price(report, part)}{apart}"
        share = share_of_step(part.us, report.run.step_us)
        figure = amounts.duration(part.us)
        yield Gain(said, figure, "per step", basis, part.findings, share)
    if len(parts) > 1:
        yield Gain("measured and estimated savings are not added together", page_only=True)
    if unproven := verified.nothing_proven(report):
        yield Gain(unproven, "Not confirmed" if parts else "Nothing proven", "by re-runs")


def _named(findings: Sequence[Finding]) -> str:
    """``KERN006 at train.py:12``, or how many there are."""
    if len(findings) > 1 or findings[0].site is None:
        return amounts.count(len(findings), "finding")
    return f"{findings[0].code} at {text.path(str(findings[0].site))}"


def _price(report: Report, part: what_ifs.Together) -> str:
    lost, times = amounts.duration(part.us), report.run.step_us
    share = share_of_step(part.us, times)
    if times is None or share is None:
        return f"{lost} per step"
    if share > 1:
        return f"{lost} per step ({summary.beside_step(part.us, report, len(part.findings))})"
    return f"{lost} of {amounts.duration(usual_us(times))} per step ({amounts.percent(share)})"


def _waits(report: Report) -> Iterator[Gain]:
    """How often each step waits for a missing GPU, and where most; nothing if less than once."""
    found = [each for each in report.findings if unpriced_waits(each)]
    total = sum(map(unpriced_waits, found))
    if (
        total < 1
        or device_named(report.run.device).timed
        or all(summary.severity(each) is Severity.NOTE for each in found)
    ):
        return
    most = max(found, key=unpriced_waits)
    there = amounts.digits(unpriced_waits(most))
    where = f", {there} of them at {most.site}" if len(found) > 1 else f" at {most.site}"
    what, cost = ("wait", "its cost") if total == 1 else ("waits", "their cost")
    times = "once" if total == 1 else f"{amounts.digits(total)} times"
    place, number = where if most.site is not None else "", amounts.digits(total)
    taken = summary.rehearsed_steps(report)
    now_and_then = any((each.steps or taken) < taken for each in found)
    often = " on average" if now_and_then else ""
    yield Gain(
        f"each step would wait for the GPU {times}{often}{place}; {cost} can be measured only on a GPU",
        number,
        f"{what} per step",
    )


def _memory(report: Report) -> Iterator[Gain]:
    most = largest_memory(report)
    if most is not None:
        basis = "" if most.basis == "none" else f"{most.basis}: "
        does = "ends this growth" if most.grows else "saves it"
        yield Gain(
            f"{basis}fixing {most.code} {does} (the largest single finding)",
            amounts.size(most.lost_bytes or 0),
            f"of memory{' per step' if most.grows else ''}",
            "memory",
            (most,),
            page_only=True,
        )


# -- what is added up ------------------------------------------------------------------------------


def recoverable(report: Report) -> tuple[tuple[str, what_ifs.Together], ...]:
    """What would come back per step, once for each basis that has a proven price: measured first,
    and never added together. What re-runs with a patch have settled is not promised once more.
    """
    counted = [finding for finding in _causes(report) if not verified.settled(finding)]
    found = (
        (basis, what_ifs.together(report, (each for each in counted if each.basis == basis)))
        for basis in ("measured", "estimated")
    )
    return tuple((basis, each) for basis, each in found if each.us > 0)


def proven(report: Report) -> Finding | None:
    """The finding whose patch saved most time in re-runs; None if no patch was verified as better."""

    def saved(finding: Finding) -> float:
        made = finding.verified
        return (made.step_us_before or 0.0) - (made.step_us_after or 0.0) if made else 0.0

    better = (
        each for each in report.findings if each.verified and each.verified.status == "better"
    )
    return max(filter(saved, better), key=saved, default=None)


def largest_memory(report: Report) -> Finding | None:
    """The finding that gives back most bytes; bytes of several may be the same: never added."""

    def held(finding: Finding) -> int:
        return (finding.lost_bytes or 0) * (max(1, report.run.steps) if finding.grows else 1)

    return max(filter(held, _causes(report)), key=held, default=None)


def _causes(report: Report) -> Iterable[Finding]:
    """The findings without consequences of others; these stand for a cause that is missing."""
    there = {finding.code for finding in report.findings if not finding.follows}
    return (
        finding
        for finding in report.findings
        if not finding.follows or finding.follows not in there
    )
