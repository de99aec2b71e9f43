"""What a replay of the trace says of findings: alone, together, and one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

from auditor.evidence.table import Evidence
from auditor.evidence.trace.facts import timed_timeline
from auditor.model.what_if import Change
from auditor.rule import NotLooked

if TYPE_CHECKING:
    from auditor.timeline.replay.what_if import Replays

Changes = tuple[Change, ...]

MOST_EVENTS = 3_000_000
"""Events that the replays for one report go through at most: about 15 s on one core. One replay of
a trace with 100,000 events goes through about 10,000."""

NO_LAUNCHES = "the trace does not show who launched the device's work"

MOST_STREAMS = 64
"""Streams of one device in a trace that is replayed: recordings have 1 to 20, and each work that
may have waited for others looks at all of them."""


@dataclass(frozen=True)
class Replayed:
    """What each of several sets of changes buys, in us per step."""

    recorded_us: float
    replayed_us: float
    alone_us: tuple[float, ...] = ()
    order: tuple[int, ...] = ()
    """The sets that are counted, the one that buys most alone first."""
    after_us: tuple[float, ...] = ()
    """What each buys where those before it in :attr:`order` are made; in that order."""
    share_us: tuple[float, ...] = ()
    """The part of each in what all that are counted buy together; 0 for the others. A part is in
    proportion to what the set buys alone and what it buys as the last one.
    """
    reason: str = ""
    """Why nothing is said; empty where something is."""


def replayed(
    evidence: Evidence, asked: Sequence[Changes], counted: Sequence[bool]
) -> Replayed | None:
    """What each of these sets of changes buys, and those that are ``counted`` together; None where
    the trace shows no device at work.
    """
    try:
        line = timed_timeline(evidence)
    except NotLooked:
        return None
    streams = max((len(use.stream_busy_ns) for use in line.devices), default=0)
    if streams > MOST_STREAMS:
        return Replayed(0.0, 0.0, reason=f"work on {streams:,} streams of one device is too much")
    if len(line.trace.calls.start) > MOST_EVENTS:
        return Replayed(0.0, 0.0, reason=f"{len(line.trace.calls.start):,} calls are too many")
    replays = line.replays
    if replays is None:
        return Replayed(0.0, 0.0, reason=NO_LAUNCHES) if line.devices else None
    us = 1e3 * replays.plan.steps
    base = replays.recorded_ns / us, replays.unchanged.whole_ns / us
    if replays.reason:
        return Replayed(*base, reason=replays.reason)
    if (2 * len(asked) + 1) * replays.plan.count > MOST_EVENTS:
        return Replayed(
            *base,
            reason=f"{replays.plan.count:,} calls and {len(asked)} findings are too many to replay",
        )
    alone = [replays.gain(each) for each in asked]
    rows = [row for row, each in enumerate(counted) if each]
    order = sorted(rows, key=lambda row: -alone[row])
    joint = [
        replays.gain(change for row in order[: place + 1] for change in asked[row])
        for place in range(len(order))
    ]
    after = [max(0, now - before) for before, now in pairwise(accumulate((0, *joint), max))]
    return Replayed(
        *base,
        tuple(ns / us for ns in alone),
        tuple(order),
        tuple(ns / us for ns in after),
        tuple(ns / us for ns in _shares(replays, asked, alone, rows)),
    )


def _shares(
    replays: Replays, asked: Sequence[Changes], alone: Sequence[int], rows: Sequence[int]
) -> list[float]:
    joint = replays.gain(change for row in rows for change in asked[row])
    weights = [0] * len(asked)
    for row in rows:
        others = (change for other in rows if other != row for change in asked[other])
        weights[row] = alone[row] + max(0, joint - replays.gain(others))
    whole = sum(weights)
    return [joint * weight / whole if whole else 0.0 for weight in weights]
