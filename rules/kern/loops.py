"""KERN006 and 7: Python loops that run an operator or a module for each element."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from statistics import median
from typing import ClassVar

from auditor import amounts
from auditor.evidence.recorded.steps import Steps, own_times
from auditor.evidence.source.files import Source
from auditor.evidence.source.loops import loop_around, trains
from auditor.evidence.source.statements import shorten
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.evidence.trace.patterns import Loop, Structure
from auditor.model import Finding, FoundAt, Remedy, Severity, Site
from auditor.recordings.schema.numerics import LoopTimeRow
from auditor.rule import Rule, knob

from .rows import ModuleLoopRow, PiecewiseRow

CALL_US = 4.0
"""What ``torch._foreach_*`` saves of an operator on a CPU: 3 of 6 us for 64 numbers, 5 of 8 us for
4,096, nothing for 65,536 (mul_, add_, addcmul_ of 100 tensors, torch 2.13.0, two slow cores).
"""


def saved_us(us: float | None, turns: float) -> float | None:
    """Of a loop of ``us`` in each step what all its ``turns`` but one take; None where it was not
    timed.
    """
    return None if us is None else us * (1.0 - 1.0 / max(1.0, turns))


def timed(us: float | None) -> tuple[tuple[str, str], ...]:
    """Its time as a fact."""
    return () if us is None else (("time in the loop", f"{amounts.duration(us)} per step"),)


@dataclass(frozen=True)
class ModuleLoop:
    """``site``, in the loop at ``head``, calls a ``module`` at least ``turns`` times in a step, with
    pieces of ``elements`` numbers; ``share`` of the time of the middle watched step. ``same``: as
    often in each of them. ``us`` of a step in it, None where it was not timed.
    """

    site: Site
    head: Site
    module: str
    turns: int
    elements: int
    share: float
    recurrent: bool
    same: bool
    steps: int
    us: float | None = None


@dataclass(frozen=True)
class ModuleLoops(Table):
    """One for each loop, that of the outermost module; ``steps`` were watched."""

    parts: ClassVar[tuple[str, ...]] = ("turns",)

    steps: int = 0
    loops: tuple[ModuleLoop, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> ModuleLoops:
        """From the precision pass."""
        steps = evidence.steps_of("numbers")
        series: defaultdict[tuple[tuple[int, ...], str], list[ModuleLoopRow]] = defaultdict(list)
        for row in rows_of(evidence, ModuleLoopRow):
            series[tuple(row.lines), row.module].append(row)
        best: dict[Site, ModuleLoop] = {}
        for rows in sorted(series.values(), key=lambda rows: len(rows[0].lines)):
            found = _module_loop(evidence, rows)
            if found is not None and found.head not in best:
                best[found.head] = found
        return cls(steps, tuple(best.values()))

    def worth(self, turns: int, share: float, elements: int) -> Iterator[ModuleLoop]:
        """Those on every step, of so many turns, that take so much of it. A cell's sequence may
        differ in length; other turns must be as many each time, and of small pieces.
        """
        for each in self.loops:
            small = each.recurrent or (each.same and each.elements <= elements)
            often = each.steps == self.steps and each.turns >= turns
            if small and often and each.share >= share:
                yield each


def _module_loop(evidence: Evidence, rows: list[ModuleLoopRow]) -> ModuleLoop | None:
    source = evidence.get(Source)
    for number in reversed(rows[0].lines):
        site = evidence.recording.site(number)
        head = loop_around(source, site)
        if head is None or trains(source, site.file, head):
            continue
        text = source.texts[site.file].split("\n")[head - 1].strip()
        turns = [row.n for row in rows]
        return ModuleLoop(
            site,
            Site(site.file, head, site.function, text),
            rows[0].module,
            min(turns),
            rows[0].elements,
            statistics.median(row.us / (row.step_us or math.inf) for row in rows),
            rows[0].recurrent,
            len(set(turns)) == 1,
            len(rows),
            evidence.get(LoopTimes).us_of(number),
        )
    return None


FUNCTIONS = ("torch/nn/functional.py", "torch/functional.py", "torch/_tensor.py")
"""Libraries below which an operator still belongs to the user's line: modules and optimizers have
loops of their own.
"""


@dataclass(frozen=True)
class IndexingLoop:
    """A line that one operator runs on, turn after turn, on ``steps`` watched steps.

    ``turns`` and ``operators`` (of all turns) in each step; ``share`` of all operators outside the
    backward; ``elements`` of a piece at most. ``head`` is the line of the ``for``, None where it is
    the same one or was not found. ``us`` of a step in it, None where it was not timed, or is that
    of a loop over a module.
    """

    site: Site
    op: str
    turns: float
    operators: float
    share: float
    elements: int
    steps: int = 1
    kind: str = "pieces"
    """What it is given in turn: ``pieces`` of a tensor, ``masks`` (values that one is compared
    with), ``parameters`` or ``groups`` of rows.
    """
    head: Site | None = None
    us: float | None = None

    @property
    def saved_us(self) -> float | None:
        """Us of a step that one call for all takes less. With parameters it does the same
        arithmetic, and only the calls are saved.
        """
        saved = saved_us(self.us, self.turns)
        if saved is None or self.kind != "parameters":
            return saved
        return min(saved, self.operators * CALL_US)


@dataclass(frozen=True)
class IndexingLoops(Table):
    """The loops of the pass ``numbers``, which watched ``steps`` steps."""

    parts: ClassVar[tuple[str, ...]] = ("piecewise",)

    steps: int = 0
    loops: tuple[IndexingLoop, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> IndexingLoops:
        """From what the pass left."""
        steps = evidence.steps_of("numbers")
        rows = [row for row in rows_of(evidence, PiecewiseRow) if _is_own(evidence, row)]
        by_line = groupby(sorted(rows, key=lambda row: row.at), key=lambda row: row.at)
        return cls(steps, tuple(_loop(evidence, list(here)) for _, here in by_line))

    def short(self, body: int, many: int, body_of_many: int) -> Iterator[IndexingLoop]:
        """Loops of so few operators a turn that are there on every step; those of ``many`` turns
        may have more.
        """
        return (
            each
            for each in self.loops
            if each.steps == self.steps
            and each.operators <= (body if each.turns < many else body_of_many) * each.turns
        )


def _is_own(evidence: Evidence, row: PiecewiseRow) -> bool:
    """The user's line has the loop: it calls the operator, or it cut the pieces for a module."""
    via = evidence.recording.site_row(row.at).via or ""
    return not via or via.startswith(FUNCTIONS) or row.cut is not None


def _loop(evidence: Evidence, rows: list[PiecewiseRow]) -> IndexingLoop:
    steps = len({row.step for row in rows})
    site, head = _place(evidence, rows[0])
    modules = evidence.get(ModuleLoops).loops if evidence.has(ModuleLoopRow.part) else ()
    theirs = any(each.us and each.head.place == (head or site).place for each in modules)
    return IndexingLoop(
        site=site,
        op=rows[0].op,
        turns=sum(row.n for row in rows) / steps,
        operators=sum(row.operators for row in rows) / steps,
        share=sum(row.operators for row in rows) / max(1, sum(row.all for row in rows)),
        elements=max(row.elements for row in rows),
        steps=steps,
        kind=rows[0].kind,
        head=head,
        us=None if theirs else evidence.get(LoopTimes).us_of(rows[0].at, rows[0].cut),
    )


def _place(evidence: Evidence, row: PiecewiseRow) -> tuple[Site, Site | None]:
    """The line in the loop, and the loop's own. Where the operator runs in a function that the loop
    calls, the line in the loop is the one that cuts the pieces.
    """
    source, recording = evidence.get(Source), evidence.recording
    sites = [recording.site(at) for at in (row.at, row.cut) if at is not None]
    for site in sites:
        line = loop_around(source, site)
        if line is not None:
            file = recording.site_row(row.at if site is sites[0] else row.cut or row.at).file
            head = recording.site_at(file, line, site.function) if line != site.line else None
            return site, head
    return sites[0], None


REMEDIES = {
    "pieces": "Do it for the whole tensor at once: broadcasting, a mask, index_select, scatter or "
    "torch.vmap.",
    "masks": "Do it for all values at once: index_add or scatter_reduce sums rows by label, "
    "torch.nn.functional.one_hot makes all masks as one tensor to multiply or sum with.",
    "groups": "Do it for all groups at once: give each row the number of its group, and sum them with "
    "index_add, or with scatter_reduce for means and extremes.",
    "parameters": "Give all parameters to one call: torch._foreach_mul_, torch._foreach_add_, "
    "torch._foreach_norm and their like take lists. For an average of weights use "
    "torch.optim.swa_utils.AveragedModel with a multi_avg_fn, for clipping "
    "torch.nn.utils.clip_grad_norm_(foreach=True), for an update an optimizer of torch.optim, and "
    "for an L2 penalty its weight_decay.",
}


@dataclass(frozen=True)
class LoopOverIndex(Rule):
    """A Python loop does one by one what one operator could do."""

    code = "KERN006"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    advice = REMEDIES["pieces"]

    share: float = knob(
        0.1, "Share of the steps' time on the host in such loops from which it is reported."
    )
    operators: float = knob(
        0.25, "In a run: share of the operators outside the backward from which it is reported."
    )
    noted: float = knob(
        0.1, "In a run: the same share, from which a loop over parameters is a note."
    )
    body: int = knob(16, "In a run: operators in each turn, at most.")
    many: int = knob(100, "In a run: turns in a step from which `body_of_many` holds.")
    body_of_many: int = knob(48, "In a run: operators in each of many turns, at most.")

    def detect(self, piecewise: IndexingLoops) -> Iterator[Finding]:
        for loop in piecewise.short(self.body, self.many, self.body_of_many):
            noted = loop.share < self.operators
            if noted and (loop.kind != "parameters" or loop.share < self.noted):
                continue
            yield Finding(
                loop.site,
                f"{_gives(loop)}: {amounts.digits(loop.operators)} operators per step, "
                f"{amounts.percent(loop.share)} of all outside the backward{_head(loop)}",
                steps=loop.steps,
                per_step=loop.turns,
                severity=Severity.NOTE if noted else None,
                lost_us_per_step=loop.saved_us,
                basis="none" if loop.us is None else "estimated",
                facts=(
                    *(
                        (("elements of a piece", str(loop.elements)),)
                        if loop.kind == "pieces"
                        else ()
                    ),
                    *timed(loop.us),
                ),
                remedy=Remedy(REMEDIES[loop.kind]),
                places=_places(loop),
            )

    def in_trace(self, structure: Structure) -> Iterator[Finding]:
        step_us = structure.window_us / structure.steps
        for loop in structure.loops:
            if not step_us or loop.us_per_step < self.share * step_us:
                continue
            yield Finding(
                loop.where.site,
                f"{_said(loop)} {loop.repeats} times in a "
                f"row{f' in `{loop.parent}`' if loop.parent else ''}{loop.where}: "
                f"{amounts.duration(loop.us_per_step)} of host "
                f"time{' per step' if structure.marked else ''}",
                steps=structure.steps if structure.marked else 0,
                per_step=loop.times / structure.steps if structure.marked else 0.0,
                seen_on="trace",
                severity=None if structure.marked else Severity.NOTE,
                facts=(
                    (
                        "share of the step on the host",
                        f"{amounts.percent(loop.us_per_step / step_us)}",
                    ),
                ),
            )


def _gives(loop: IndexingLoop) -> str:
    turns = amounts.digits(loop.turns)
    if loop.kind == "masks":
        return f"a Python loop compares a tensor with {turns} values one by one"
    if loop.kind == "groups":
        return f"a Python loop gathers {turns} groups of rows and reduces them one by one"
    if loop.kind == "parameters":
        return f"a Python loop gives `{loop.op}` {turns} parameters one by one"
    return f"a Python loop gives `{loop.op}` {turns} pieces of a tensor one by one"


def _head(loop: IndexingLoop) -> str:
    """The loop's own line, where it is another one."""
    if loop.head is None:
        return ""
    return f"; the loop is line {loop.head.line}, `{shorten(loop.head.text)}`"


def _places(loop: IndexingLoop) -> tuple[FoundAt, ...]:
    if loop.head is None:
        return ()
    head = FoundAt(loop.head, shorten(loop.head.text))
    return head, FoundAt(loop.site, shorten(loop.site.text), loop.turns)


def _said(loop: Loop) -> str:
    return ", ".join(f"`{name}`" for name in loop.cycle)


SEQUENCES = {"GRUCell": "nn.GRU", "LSTMCell": "nn.LSTM", "RNNCell": "nn.RNN"}


@dataclass(frozen=True)
class ModulePieceByPiece(Rule):
    """A loop calls a module once for each piece of a tensor."""

    code = "KERN007"
    severity = Severity.WARNING
    since = "0.1"

    turns: int = knob(8, "Calls in each watched step from which a loop is reported.")
    share: float = knob(
        0.05,
        "Share of the precision pass's time outside backward, inside the calls, from which it is "
        "reported.",
    )
    elements: int = knob(
        8192, "Numbers in a piece above which a loop may be there to save memory (not of cells)."
    )

    def detect(self, loops: ModuleLoops) -> Iterator[Finding]:
        for each in loops.worth(self.turns, self.share, self.elements):
            yield Finding(
                each.site,
                _module_said(each),
                steps=each.steps,
                per_step=float(each.turns),
                places=_module_places(each),
                lost_us_per_step=saved_us(each.us, each.turns),
                basis="none" if each.us is None else "estimated",
                facts=(("numbers in a piece", f"{each.elements:,}"), *timed(each.us)),
                remedy=_module_remedy(each),
            )


def _module_remedy(each: ModuleLoop) -> Remedy:
    if each.recurrent:
        return Remedy(
            f"Give the whole sequence to {SEQUENCES[each.module]} of the same sizes, which keeps the "
            "state itself; torch.nn.utils.rnn.pack_padded_sequence takes lengths that differ."
        )
    return Remedy(
        "Call the module once with the whole tensor (its first dimensions joined, if need be), and "
        "cut the result; torch.vmap helps where it takes one sample only."
    )


def _module_said(each: ModuleLoop) -> str:
    loop = f"the loop at {each.head}"
    if each.recurrent:
        did = f"{each.module} goes through a sequence of {each.turns} pieces or more in {loop}"
        return f"{did}, one call for each, with nothing but its own state between them"
    return (
        f"{each.module} is called {each.turns} times a step in {loop}, each time with another "
        f"piece of one tensor: {amounts.percent(each.share)} of the watched forward is inside"
    )


def _module_places(each: ModuleLoop) -> tuple[FoundAt, ...]:
    if each.head == each.site or each.head.line == each.site.line:
        return ()
    own = FoundAt(each.site, shorten(each.site.text), float(each.turns))
    return (FoundAt(each.head, shorten(each.head.text)), own)


# -- loop times ------------------------------------------------------------------------------------
# How long Python loops take, from the pass that follows their lines and nothing else.


@dataclass(frozen=True)
class LoopTimes(Table):
    """Us of a step in loops, by the number of a line's site: the median of the steps of that pass,
    and no more than the median step of the timing pass.
    """

    us: Mapping[int, float] = field(default_factory=dict)

    @classmethod
    def build(cls, evidence: Evidence) -> LoopTimes:
        """From the pass ``loops``, where there was one beside a timing pass."""
        seen: defaultdict[int, list[float]] = defaultdict(list)
        for row in evidence.rows(LoopTimeRow) if evidence.has(LoopTimeRow.part) else ():
            seen[row.at].append(max(0.0, row.us))
        quiet = own_times(evidence.get(Steps).quiet) if seen and evidence.has("steps") else ()
        step_us = median(quiet) if quiet else 0.0
        return cls({at: min(step_us, median(each)) for at, each in seen.items()})

    def us_of(self, *numbers: int | None) -> float | None:
        """Of the first of these lines that is known; None where none is."""
        known = (self.us.get(each, 0.0) for each in numbers if each is not None)
        return next(filter(None, known), None)
