"""The search for the largest batch that fits: predicted by the model, rehearsed, predicted anew."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from auditor.plan.fitting import MemoryModel, Point, rounded
from auditor.plan.result import Largest

TRIES = 6
"""Re-runs for one GPU at most. Memory that is linear in the batch takes one or two; of what is not
each re-run is nearer to the limit.
"""

NEAR = 1.05
"""A batch that is predicted to fit and larger by less than this is not worth another re-run."""

JUMP = 32
"""How many times the largest rehearsed batch is tried at most: memory may grow in another way from
some size on.
"""

MARGIN = 0.99
"""Share of the memory that is aimed at after a batch that was predicted to fit did not."""

TOLD = 8
"""The same of a batch that is told and was not rehearsed."""


@dataclass(frozen=True)
class Refused:
    """No peak is known of a batch. ``failed``: the program itself did not run with it."""

    why: str
    failed: bool = False


Rehearse = Callable[[int], Point | Refused]


def largest_batch(points: Sequence[Point], usable: int, rehearse: Rehearse) -> Largest:
    """The largest batch that reserves at most ``usable`` bytes; ``points`` are two rehearsed batch
    sizes at least.
    """
    known = list(points)
    if not MemoryModel(known).grows:
        return Largest(None, "estimated", why="the peak does not grow with the batch")
    for _ in range(TRIES):
        batch = _next(known, usable)
        if batch is None:
            break
        answer = rehearse(batch)
        if isinstance(answer, Refused):
            return _without(known, usable, answer)
        known.append(answer)
    return _known(known, usable)


def _next(known: list[Point], usable: int) -> int | None:
    """The batch to try next; None where that would tell no more."""
    model = MemoryModel(known)
    missed = len(known) > 2 and known[-1].reserved > usable
    batch = model.largest(round(MARGIN * usable) if missed else usable)
    last = model.points[-1].batch
    if batch is None:
        return None
    batch = min(batch, max(rounded(JUMP * last), last))
    best = _best(known, usable)
    if any(point.batch == batch for point in known):
        return None
    return None if best is not None and best.batch < batch < NEAR * best.batch else batch


def _best(known: list[Point], usable: int) -> Point | None:
    fitting = [point for point in known if point.reserved <= usable]
    return max(fitting, key=lambda point: point.batch, default=None)


def _known(known: list[Point], usable: int, why: str = "") -> Largest:
    best, batch = _best(known, usable), MemoryModel(known).largest(usable)
    if best is None:
        return Largest(batch, "estimated", why="" if batch is None else "it was not rehearsed")
    more = batch is not None and batch >= NEAR * best.batch
    return Largest(best.batch, "rehearsed", best.reserved, why, more)


def _without(known: list[Point], usable: int, refused: Refused) -> Largest:
    """What is told of a batch that was not rehearsed: not much more than what was."""
    model = MemoryModel(known)
    batch = model.largest(usable)
    if batch is None or (refused.failed and _best(known, usable) is not None):
        return _known(known, usable, refused.why)
    told = min(batch, max(rounded(TOLD * model.points[-1].batch), 1))
    return Largest(told, "estimated", round(model.reserved(told)), refused.why, told < batch)
