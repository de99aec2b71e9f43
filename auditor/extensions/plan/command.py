"""``audit plan``: what fits on which GPU, from re-runs of the program on a machine without one."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from auditor import amounts, null_device
from auditor.cli import console, progress_display
from auditor.cli.usage import EXIT_INTERRUPTED
from auditor.errors import AuditProblem, TargetFailed
from auditor.extensions.plan.planning import Planning, PlanResult, PlanRow
from auditor.extensions.plan.reruns import Failed, Reruns
from auditor.model.gpus import gpu_named
from auditor.runs import null_run
from auditor.runs import target as targets
from auditor.runs.plan import Device

# -- table -----------------------------------------------------------------------------------------
# The table of ``audit plan`` as lines of text.

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
    cards = [f"{card.name}: fits, largest" for card in result.cards]
    head = ["", "batch", "reserved", "allocated", "fits from", *cards]
    yield from _aligned([head, *(_cells(row, result) for row in shown)])
    yield f"{ESTIMATED} estimated; all other peaks and batches are those of a re-run"
    for card in result.cards:
        yield (
            f"{card.name}: {amounts.size(card.usable)} for tensors: {amounts.size(card.memory)} as "
            f"torch reports it, less {amounts.size(card.context)} for context and kernels"
        )
    yield from _peak(shown)
    yield from _changes(result)
    yield from _footnotes(result)


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
    fits = ESTIMATED * (row.basis == "estimated") + row.fits[card]
    largest = row.largest.get(card)
    if largest is None:
        return fits
    if largest.batch is None:
        return f"{fits}, {largest.why or 'no batch fits'}"
    mark = ESTIMATED * (largest.basis == "estimated")
    return f"{fits}, {mark}{largest.batch:,}{' or more' * largest.more}"


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
    if result.world is not None:
        yield (
            f"ZeRO rows: parameters, gradients and optimizer state of the peak divided by "
            f"{result.world}; buckets of collectives are not counted"
        )
    yield from (f"note: {note}" for note in result.notes)
    ended = ", interrupted: the rest is not known" if result.interrupted else ""
    runs = amounts.count(result.runs, "re-run", "re-runs")
    yield f"{runs} in {result.seconds:.0f} s{ended}"


# -- command ---------------------------------------------------------------------------------------


def run(
    *,
    target: str,
    gpu: tuple[str, ...],
    batch: str,
    world: int | None,
    device: str,
    budget: float,
    form: str,
    out: str | None,
    quiet: bool,
    args: tuple[str, ...],
) -> int:
    """Plan a target; returns the exit code."""
    targets.parse(target)
    found = [gpu_named(name) for name in gpu or (null_run.DEFAULT_GPU,)]
    gpus = tuple(dict.fromkeys(found))
    if out is not None and Path(out).is_dir():
        raise AuditProblem(f"--out {out} is a folder; it must be a file")
    lacking = null_device.lacking()
    if device == "null" and lacking is not None:
        raise AuditProblem(f"--device null: {lacking.message}", lacking.hint)
    played: Device = "rehearse" if device == "rehearse" or lacking is not None else "null"
    planning = Planning(
        Reruns(target, args, played, gpus[0].key), gpus, budget, world=world, batch=batch
    )
    try:
        with progress_display.working(
            "plan", lambda: f"re-run {planning.reruns.n}: {planning.now}", quiet=quiet
        ):
            result = planning.make()
    except Failed as problem:
        if problem.ours:
            raise AuditProblem(f"nothing can be planned: {problem}") from None
        raise TargetFailed(f"nothing can be planned: {problem}") from None
    _deliver(result, form, out)
    if lacking is not None and not quiet:
        console.say(
            f"the null device, which runs torch's own CUDA code, is more exact: {lacking.message}"
            f" ({lacking.hint})",
            err=True,
        )
    return EXIT_INTERRUPTED if result.interrupted else 0


def _deliver(result: PlanResult, form: str, out: str | None) -> None:
    """Print the table, or the JSON where no file takes it; then write the file."""
    table = [line.replace("\n", "\\n") for line in lines(result)]
    data = json.dumps(result.to_dict(), indent=2)
    if form == "terminal":
        for line in table:
            console.say(line)
    elif out is None:
        console.hand_over(data, form="json")
    if out is None:
        return
    try:
        Path(out).parent.mkdir(parents=True, exist_ok=True)
        text = data if form == "json" else "\n".join(table)
        Path(out).write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        if form == "json":
            console.hand_over(data, form="json")
        raise AuditProblem(f"{out} cannot be written: {error.strerror or error}") from None
    console.say(out)
