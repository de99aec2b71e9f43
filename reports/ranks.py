"""A job's ranks as a table: the one that waits least comes first, since the others wait for it."""

import statistics

from auditor import amounts
from auditor.model import Rank, Report

HEADINGS = (
    "rank",
    "median step",
    "device busy",
    "computing",
    "communicating",
    "exposed",
    "loader",
    "host waits",
    "peak memory",
)

UNKNOWN = "-"

STANDS_OUT = 0.8
"""Share of the median's communication below which a rank is named. Ours."""


def ordered(report: Report, limit: int) -> tuple[Rank, ...]:
    """At most ``limit`` ranks; in their order if all fit, else those that communicate least."""
    if len(report.ranks) <= limit:
        return report.ranks
    return tuple(sorted(report.ranks, key=lambda rank: rank.communication_us)[:limit])


def straggler(report: Report) -> int | None:
    """The rank that communicates least, for which the others wait; None if none stands out."""
    talking = sorted(
        (rank for rank in report.ranks if rank.communication_us > 0),
        key=lambda rank: rank.communication_us,
    )
    usual = statistics.median(rank.communication_us for rank in talking) if talking else 0.0
    return talking[0].rank if talking and talking[0].communication_us < STANDS_OUT * usual else None


def cells(rank: Rank) -> tuple[str, ...]:
    """One row, under :data:`HEADINGS`."""
    times = (
        rank.step_us,
        rank.busy_us,
        rank.compute_us,
        rank.communication_us,
        rank.exposed_us,
        rank.loader_us,
        rank.wait_us,
    )
    shown = [amounts.duration(us) for us in times]
    if not rank.device:  # recorded without a GPU: nothing is known of what a device did
        shown[1:5], shown[6] = [UNKNOWN] * 4, UNKNOWN
    peak = amounts.size(rank.peak_bytes) if rank.peak_bytes is not None else UNKNOWN
    return ("?" if rank.rank is None else str(rank.rank), *shown, peak)


def table(report: Report, limit: int) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Headings and rows of at most ``limit`` ranks, without columns empty on every rank."""
    rows = [cells(rank) for rank in ordered(report, limit)]
    known = [
        column
        for column in range(len(HEADINGS))
        if column < 2 or any(_holds(row[column]) for row in rows)
    ]
    return tuple(HEADINGS[column] for column in known), [
        tuple(row[column] for column in known) for row in rows
    ]


def alone(report: Report) -> str:
    """The facts of the only rank in words, those that are zero or unknown left out; empty if
    there are several ranks.

    Empty also without a device: the step's time is said elsewhere, and nothing else is known.
    """
    if len(report.ranks) != 1:
        return ""
    told = zip(HEADINGS[2:], cells(report.ranks[0])[2:], strict=True)
    return ", ".join(f"{name} {value}" for name, value in told if _holds(value))


def _holds(cell: str) -> bool:
    return cell != UNKNOWN and not cell.startswith("0 ")


def left_out(report: Report, limit: int) -> str:
    """What is said under a table that does not hold all ranks; empty if it does."""
    more = len(report.ranks) - limit
    return (
        f"and {amounts.count(more, 'rank')} that wait longer in collectives (report.json has all)"
        if more > 0
        else ""
    )
