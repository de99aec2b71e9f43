"""What stands first on the page of a run that ran out of memory, and of saved checkpoints."""

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.model import Report
from auditor.model.sections import RanOut

from . import text


@dataclass(frozen=True)
class HeadAmount:
    """A name and an amount of the head of the page."""

    name: str
    amount: str
    more: str = ""


def shortage(report: Report) -> tuple[HeadAmount, ...]:
    """Limit, in use, asked for, and missing to it; empty if memory did not run out."""
    return tuple(_shortage(report.ran_out)) if report.ran_out is not None else ()


def _shortage(found: RanOut) -> Iterator[HeadAmount]:
    if found.limit is not None:
        yield HeadAmount("Limit", amounts.size(found.limit))
    yield HeadAmount(
        "In use", amounts.size(found.in_use), f"of {amounts.size(found.reserved)} reserved"
    )
    if found.requested is not None:
        segment = found.segment
        needs = segment is not None and amounts.size(segment) != amounts.size(found.requested)
        more = f"in a segment of {amounts.size(segment or 0)}" if needs else ""
        yield HeadAmount("Requested", amounts.size(found.requested), more)
    if found.free is not None:
        yield HeadAmount("Free on the device", amounts.size(found.free))
    if found.short is not None:
        yield HeadAmount("Short by", amounts.size(found.short))


def fits(report: Report) -> tuple[str, ...]:
    """What would have fitted, a sentence each: allocator settings."""
    found = report.ran_out
    if found is None:
        return ()
    if found.fits:
        names = " or ".join(f"`{text.one_line(name, 80)}`" for name in found.fits[:3])
        return (f"A replay of the same allocations fits with {names}",)
    if found.tried:
        tried = amounts.count(found.tried, "replayed allocator setting")
        return (f"None of {tried} makes it fit: the step must hold less",)
    return ()


def latest_good(report: Report) -> str:
    """The latest good checkpoint's name; empty if none is good."""
    return next((text.one_line(each.name, 200) for each in report.checkpoints if each.latest), "")


def good(report: Report) -> str:
    """``2 of 4 checkpoints are good``."""
    number = sum(each.good for each in report.checkpoints)
    of = amounts.count(len(report.checkpoints), "checkpoint")
    return f"{number} of {of} {'is' if 1 in (number, len(report.checkpoints)) else 'are'} good"
