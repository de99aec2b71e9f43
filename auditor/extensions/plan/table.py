"""The table of ``audit plan`` as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from auditor import amounts
from auditor.extensions.plan.result import Largest, PlanResult, PlanRow

ESTIMATED = "~"
"""Stands before what no re-run had."""

PURPOSES = 6
"""Purposes of the peak that are named."""


def lines(result: PlanResult) -> Iterator[str]:
    """The table, the changes to make, and what it rests on."""
    how = (
        "the null device (torch's own CUDA code and allocator)"
        if result.device == "null device"
        else "the shadow device (simulated allocator)"
    )
    yield f"{result.target}: peak memory of a few steps, rehearsed on {how}"
    yield f"batch: {result.batch_of}"
    yield ""
    shown = [row for row in result.rows if row.allocated is not None]
    yield from _aligned([_head(result), *(_cells(row, result) for row in shown)])
    yield f"{ESTIMATED} estimated; all other peaks and batches are those of a re-run"
    for card in result.cards:
        yield (
            f"{card.name}: {amounts.size(card.usable)} for tensors: {amounts.size(card.memory)} as "
            f"torch reports it, less {amounts.size(card.context)} for context and kernels"
        )
    yield from _peak(shown)
    yield from _changes(result)
    yield from _footnotes(result)


def _head(result: PlanResult) -> list[str]:
    cards = [f"{card.name}: fits, largest" for card in result.cards]
    return ["", "batch", "reserved", "allocated", "fits from", *cards]


def _cells(row: PlanRow, result: PlanResult) -> list[str]:
    mark = ESTIMATED if row.basis == "estimated" else ""
    return [
        row.name,
        "" if row.batch is None else str(row.batch),
        f"{mark}{amounts.size(row.reserved or 0)}",
        f"{mark}{amounts.size(row.allocated or 0)}",
        row.smallest or "none",
        *(_on_card(row, card.name) for card in result.cards),
    ]


def _on_card(row: PlanRow, card: str) -> str:
    mark = ESTIMATED if row.basis == "estimated" else ""
    fits = mark + row.fits[card]
    largest = row.largest.get(card)
    return fits if largest is None else f"{fits}, {_largest(largest)}"


def _largest(largest: Largest) -> str:
    if largest.batch is None:
        return largest.why or "no batch fits"
    mark = ESTIMATED if largest.basis == "estimated" else ""
    return f"{mark}{largest.batch:,}{' or more' * largest.more}"


def _aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """The first column to the left, numbers to the right, cards to the left."""
    widths = [max(len(row[number]) for row in rows) for number in range(len(rows[0]))]
    for row in rows:
        cells = [
            cell.rjust(width) if 0 < number < 4 else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _peak(shown: Sequence[PlanRow]) -> Iterator[str]:
    """What the peak of the program as it is was for."""
    if not shown or not shown[0].purposes or not shown[0].allocated:
        return
    row, total = shown[0], shown[0].allocated or 1
    parts = [
        f"{name} {amounts.size(size)} ({amounts.percent(size / total)})"
        for name, size in row.purposes[:PURPOSES]
    ]
    yield ""
    yield f"peak {row.name}:"
    yield from (f"  {part}" for part in parts)
    if row.holder:
        yield f"  most of it at one line: {row.holder} ({amounts.size(row.holder_bytes)})"


def _changes(result: PlanResult) -> Iterator[str]:
    yield ""
    yield "changes:"
    for row in result.rows:
        if row.allocated is not None and row.change:
            yield f"  {row.name}: {row.change}"
    left_out = [row for row in result.rows if row.allocated is None]
    if left_out:
        yield "left out:"
        yield from (f"  {row.name}: {row.why}" for row in left_out)
    why = dict.fromkeys(
        largest.why
        for row in result.rows
        for largest in row.largest.values()
        if largest.batch is not None and largest.why
    )
    if why:
        yield f"no larger batch was rehearsed: {'; '.join(why)}"


def _footnotes(result: PlanResult) -> Iterator[str]:
    yield ""
    if result.checked:
        worst = [max(abs(each.off[n]) for each in result.checked) for n in (0, 1)]
        count = amounts.count(len(result.checked), "batch size", "batch sizes")
        yield (
            f"the linear model beside {count} rehearsed after it: allocated off by up to "
            f"{amounts.percent(worst[0])}, reserved by up to {amounts.percent(worst[1])}"
        )
    if result.world is not None:
        yield (
            f"ZeRO rows: parameters, gradients and optimizer state of the peak divided by "
            f"{result.world}; buckets of collectives are not counted"
        )
    yield from (f"note: {note}" for note in result.notes)
    ended = ", interrupted: the rest is not known" if result.interrupted else ""
    runs = amounts.count(result.runs, "re-run", "re-runs")
    yield f"{runs} in {result.seconds:.0f} s{ended}"
