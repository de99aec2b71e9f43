"""Why a loader is slow, where that shows: the line to change, in words, and what to do there."""

from __future__ import annotations

from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.batches import Costliest, Loader, Loading, Starts
from auditor.model import Site

ONE = 1.5
"""Batches taken from an iterator, on average, below which it is taken one of and dropped."""

MOST = 0.5
"""Share of the loading from which a line is its place, and of the waiting from which iterators that
begin are its cause.
"""

LEAST_STARTS = 3
"""Iterators that must begin in the timing pass: one or two may be the ends of long epochs."""


@dataclass(frozen=True)
class Slow:
    """Why it is slow: where, what to add to the finding's sentence, and what to do."""

    site: Site
    said: str
    advice: str
    kind: str
    facts: tuple[tuple[str, str], ...] = ()
    loops: tuple[Site, ...] = ()
    """Those around it, other lines that take the time, and those that led to it."""


def cause(loader: Loader, starts: Starts, loading: Loading) -> Slow | None:
    """The first of: an iterator begun for each batch, workers started for each short epoch, a dear
    line.
    """
    return (
        begun_for_each_batch(loader, starts, loading)
        or started_for_each_epoch(loader, starts)
        or costliest_line(loader, loading)
    )


def begun_for_each_batch(loader: Loader, starts: Starts, loading: Loading) -> Slow | None:
    """The line that makes an iterator for each batch, where it drops what workers had loaded, or
    draws a whole order again.
    """
    site = loader.iter_at or loader.consumed_at
    dropped = starts.made >= LEAST_STARTS and starts.batches_each < ONE and loader.length != 1
    if not dropped or site is None or starts.share < MOST:
        return None
    if loader.workers:
        costs = f"restarts its {_workers(loader)} and drops what they had prefetched"
    elif loading.phase_share(loader.number, "sampler") >= MOST:
        costs = "draws the order of the whole dataset again"
    else:
        return None
    return Slow(
        site,
        f"a new iterator is created here for each batch, which {costs}",
        "Create one iterator before the steps (`batches = iter(loader)`), take `next(batches)` here, "
        "and create another one only when it raises StopIteration.",
        "iterator",
        (
            ("starting iterators", f"{amounts.percent(starts.share)} of the waiting"),
            *_made(loader, site),
        ),
    )


def started_for_each_epoch(loader: Loader, starts: Starts) -> Slow | None:
    """The line that makes a loader whose workers are started anew for each short epoch."""
    often = starts.made >= LEAST_STARTS and starts.share >= MOST
    if not loader.workers or loader.persistent or not often or loader.made_at is None:
        return None
    return Slow(
        loader.made_at,
        f"{amounts.percent(starts.share)} of that is starting and ending its {_workers(loader)} "
        f"every {starts.batches_each:.3g} batches",
        "Keep the workers between epochs with persistent_workers=True, or make the epochs longer.",
        "epoch",
        (("starting iterators", f"{amounts.percent(starts.share)} of the waiting"),),
    )


def _workers(loader: Loader) -> str:
    return f"{loader.workers} workers" if loader.workers > 1 else "worker"


# -- a dear line -----------------------------------------------------------------------------------

PHASES = {
    "dataset": "making samples",
    "collate": "collating samples",
    "sampler": "drawing indices",
    "other": "loading",
}


def costliest_line(loader: Loader, loading: Loading) -> Slow | None:
    """The line that takes most of the loading time; None where none does."""
    found = loading.costliest(loader.number, MOST)
    if found is None:
        return None
    made = loader.made_at if loader.made_at != found.site else None
    of = f" of the loader made at {made}" if made is not None else ""
    what = "the loop that starts here" if found.loop else "this line"
    if found.function:
        what = f"{found.function}, most of it this line"
    within = f" ({found.via})" if found.via else ""
    return Slow(
        found.site,
        f"{amounts.percent(found.share)} of the loading time{of} is {what}{within}, "
        f"{PHASES[found.phase]}",
        _advice(found),
        "line",
        (("share of the loading time", amounts.percent(found.share)), *_made(loader, found.site)),
        (*found.loops, *found.inside, *found.path),
    )


def _made(loader: Loader, site: Site) -> tuple[tuple[str, str], ...]:
    if loader.made_at is None or str(loader.made_at) == str(site):
        return ()
    return (("loader", str(loader.made_at)),)


def _advice(found: Costliest) -> str:
    if found.phase == "sampler":
        return (
            "Draw the indices of many batches at once, before the epoch starts (one permutation, "
            "cut into batches), instead of searching the whole dataset for each batch."
        )
    if found.loop:
        return "Do what this loop does with one call on whole arrays or tensors."
    return (
        "Make this line cheaper: do it once for the whole dataset (read, decode, tokenize) and keep "
        "the result."
    )
