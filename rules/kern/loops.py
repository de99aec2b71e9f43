"""KERN006 and 7: Python loops that run an operator or a module for each element."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import ClassVar, NamedTuple

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source, shorten
from auditor.evidence.source.loops import loop_around, trains
from auditor.evidence.table import Evidence, Table, rows_of, together
from auditor.model import Finding, FoundAt, Remedy, Severity, Site
from auditor.rule import Rule, knob

from .rows import ModuleLoopRow, PiecewiseRow

OPERATOR_NS = 2000
"""Of an operator, in recordings that do not say it: 1.7 to 6 us on machines that we measured."""

LISTED = 0.5
"""Share of an operator's cost besides its arithmetic that ``torch._foreach_*`` saves a CPU: 0.35 to
0.6 (norm, mul_, add_, lerp_ of 100 tensors of 64 and 4,096 numbers, torch 2.13.0).
"""

BODY = 20
"""Operators in each turn, at most: more of them are a program, and no line to write at once."""

SMALL = 8192
"""Numbers in a piece above which a loop over a module may be there to save memory (not of cells)."""

FUNCTIONS = ("torch/nn/functional.py", "torch/functional.py", "torch/_tensor.py")
"""Libraries whose operators belong to the user's line: modules, optimizers loop themselves."""

SEQUENCES = {"GRUCell": "nn.GRU", "LSTMCell": "nn.LSTM", "RNNCell": "nn.RNN"}


class Kind(NamedTuple):
    """What a loop does, with ``{op}`` and ``{n}`` turns, and what does it at once."""

    said: str
    advice: str


KINDS = {
    "pieces": Kind(
        "passes {n} pieces of a tensor to `{op}` one by one",
        "Do it for the whole tensor at once: broadcasting, a mask, index_select, scatter or "
        "torch.vmap.",
    ),
    "reads": Kind(
        "reads {n} elements of a tensor one by one",
        "Read the whole tensor at once: tensor.tolist().",
    ),
    "masks": Kind(
        "compares a tensor with {n} values one by one",
        "Do it for all values at once: index_add or scatter_reduce sums rows by label, "
        "torch.nn.functional.one_hot makes all masks as one tensor to multiply or sum with.",
    ),
    "parameters": Kind(
        "passes {n} parameters to `{op}` one by one",
        "Pass all of them to one call: torch._foreach_mul_ and similar functions take lists "
        "(torch._foreach_norm, then one torch.stack(...).tolist()); AveragedModel with a multi_avg_fn "
        "averages weights, weight_decay is an L2 penalty.",
    ),
}


@dataclass(frozen=True)
class LoopAt:
    """A Python loop: the line in it that is run ``turns`` times in each of ``steps`` watched steps,
    and the line of its ``for`` (None if it is the same one or was not found). ``share`` of the
    step: of its operators outside the backward, or of its time.
    """

    site: Site
    head: Site | None
    turns: float
    share: float
    elements: int
    steps: int

    def finding(self, said: str, advice: str, saved_us: float | None = None) -> Finding:
        """The finding of this loop."""
        places = (self.head, self.site) if self.head is not None else ()
        return Finding(
            self.site,
            said,
            steps=self.steps,
            per_step=self.turns,
            lost_us_per_step=saved_us,
            basis="none" if saved_us is None else "estimated",
            remedy=Remedy(advice),
            places=tuple(
                FoundAt(each, shorten(each.text), self.turns if each is self.site else 0.0)
                for each in places
            ),
        )


@dataclass(frozen=True)
class ModuleLoop(LoopAt):
    """Calls of a ``module``, as often in each step if ``same``."""

    module: str = ""
    recurrent: bool = False
    same: bool = True


@dataclass(frozen=True)
class ModuleLoops(Table):
    """One for each loop, that of the outermost module; ``steps`` were watched."""

    parts: ClassVar[tuple[str, ...]] = ("turns",)

    steps: int = 0
    loops: tuple[ModuleLoop, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> ModuleLoops:
        series: defaultdict[tuple[tuple[int, ...], str], list[ModuleLoopRow]] = defaultdict(list)
        for row in rows_of(evidence, ModuleLoopRow):
            series[tuple(row.lines), row.module].append(row)
        best: dict[tuple[str, int], ModuleLoop] = {}
        for rows in sorted(series.values(), key=lambda rows: len(rows[0].lines)):
            found = _module_loop(evidence, rows)
            if found is not None:
                best.setdefault((found.head or found.site).place, found)
        return cls(evidence.steps_of("numbers"), tuple(best.values()))


def _module_loop(evidence: Evidence, rows: list[ModuleLoopRow]) -> ModuleLoop | None:
    source = evidence.get(Source)
    for number in reversed(rows[0].lines):
        site = evidence.recording.site(number)
        line = loop_around(source, site)
        if line is None or trains(source, site.file, line):
            continue
        text = source.texts[site.file].split("\n")[line - 1].strip()
        head = Site(site.file, line, site.function, text)
        return ModuleLoop(
            site,
            head if line != site.line else None,
            min(row.n for row in rows),
            median(row.us / (row.step_us or math.inf) for row in rows),
            rows[0].elements,
            len(rows),
            rows[0].module,
            rows[0].recurrent,
            len({row.n for row in rows}) == 1,
        )
    return None


@dataclass(frozen=True)
class IndexingLoop(LoopAt):
    """``operators`` of all turns of a step; ``op`` is given what differs, by ``KINDS``."""

    op: str = ""
    operators: float = 0.0
    kind: str = "pieces"


@dataclass(frozen=True)
class IndexingLoops(Table):
    """The loops of the pass ``numbers``, which watched ``steps`` steps."""

    parts: ClassVar[tuple[str, ...]] = ("piecewise",)

    steps: int = 0
    loops: tuple[IndexingLoop, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> IndexingLoops:
        rows = [row for row in rows_of(evidence, PiecewiseRow) if _is_own(evidence, row)]
        loops = tuple(_loop(evidence, list(here)) for here in together(rows, lambda row: row.at))
        return cls(evidence.steps_of("numbers"), loops)


def _is_own(evidence: Evidence, row: PiecewiseRow) -> bool:
    via = evidence.recording.site_row(row.at).via or ""
    return not via or via.startswith(FUNCTIONS) or row.cut is not None


def _loop(evidence: Evidence, rows: list[PiecewiseRow]) -> IndexingLoop:
    steps = len({row.step for row in rows})
    site, head = _place(evidence, rows[0])
    return IndexingLoop(
        site,
        head,
        sum(row.n for row in rows) / steps,
        sum(row.operators for row in rows) / max(1, sum(row.all for row in rows)),
        max(row.elements for row in rows),
        steps,
        rows[0].op,
        sum(row.operators for row in rows) / steps,
        "reads" if rows[0].op == "local_scalar_dense" else rows[0].kind,
    )


def _place(evidence: Evidence, row: PiecewiseRow) -> tuple[Site, Site | None]:
    """The line in the loop, and the loop's own. Where the operator runs in a function that the loop
    calls, the line in the loop is the one that cuts the pieces.
    """
    source, recording = evidence.get(Source), evidence.recording
    sites = [(at, recording.site(at)) for at in (row.at, row.cut) if at is not None]
    for at, site in sites:
        line = loop_around(source, site)
        if line is not None:
            file = recording.site_row(at).file
            return site, recording.site_at(file, line, site.function) if line != site.line else None
    return sites[0][1], None


@dataclass(frozen=True)
class LoopOverIndex(Rule):
    """A Python loop does piece by piece what one operator could do at once."""

    code = "KERN006"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    advice = KINDS["pieces"].advice

    operators: float = knob(0.25, "Report at least this share of operators outside the backward.")

    def detect(self, piecewise: IndexingLoops, machine: Machine) -> Iterator[Finding]:
        for loop in piecewise.loops:
            few = loop.share < self.operators or loop.operators > BODY * loop.turns
            if few or loop.steps < piecewise.steps:
                continue
            kind, turns = KINDS[loop.kind], amounts.digits(loop.turns)
            us = (machine.operator_ns or OPERATOR_NS) / 1e3
            saved = us * LISTED if loop.kind == "parameters" else us
            head = loop.head
            at = (
                ""
                if head is None
                else f"; the loop starts at line {head.line}, `{shorten(head.text)}`"
            )
            yield loop.finding(
                f"a Python loop {kind.said.replace('{op}', loop.op).replace('{n}', turns)}: "
                f"{amounts.digits(loop.operators)} operators per step, "
                f"{amounts.percent(loop.share)} of all outside the backward{at}",
                kind.advice,
                None if machine.gpu_path else saved * loop.operators,
            )


@dataclass(frozen=True)
class ModulePieceByPiece(Rule):
    """A loop calls a module once for each piece of a tensor."""

    code = "KERN007"
    severity = Severity.WARNING
    since = "0.1"

    turns: int = knob(8, "Report a loop with at least this many calls in each watched step.")
    share: float = knob(0.05, "Report at least this share of the time outside the backward.")

    def detect(self, loops: ModuleLoops) -> Iterator[Finding]:
        """A cell's sequence may differ in length; other turns are as many each time, and small."""
        for each in loops.loops:
            small = each.recurrent or (each.same and each.elements <= SMALL)
            often = each.steps == loops.steps and each.turns >= self.turns
            if not small or not often or each.share < self.share:
                continue
            loop = f"the loop at {each.head or each.site}"
            if each.recurrent:
                said = (
                    f"{each.module} processes a sequence of {each.turns:.0f} pieces or more in {loop}, "
                    "one call for each piece, and passes only its own state from call to call"
                )
                advice = (
                    f"Give the whole sequence to {SEQUENCES[each.module]} of the same sizes, which "
                    "keeps the state itself; torch.nn.utils.rnn.pack_padded_sequence handles different "
                    "lengths."
                )
            else:
                said = (
                    f"{each.module} is called {each.turns:.0f} times a step in {loop}, each time "
                    f"with another piece of one tensor; the calls take {amounts.percent(each.share)} of the "
                    "watched forward"
                )
                advice = (
                    "Call the module once with the whole tensor (join its first dimensions if "
                    "needed), and split the result. torch.vmap helps if it takes only one sample."
                )
            yield each.finding(said, advice)
