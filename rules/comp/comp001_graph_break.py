"""COMP001: a line that breaks the graph of torch.compile."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from auditor.evidence.table import Evidence, Table
from auditor.evidence.trace.facts import timed_timeline
from auditor.rule import NotLooked

if TYPE_CHECKING:
    from auditor.timeline import Timeline
    from auditor.timeline.trace import Operators

from collections.abc import Iterator

from auditor import amounts
from auditor.evidence.recorded.compiles import Compiles
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule

MEANT = ("graph_break()", "disable", "backward")
"""In reasons for breaks that the program asks for, or that no other line would avoid: a call of
``torch._dynamo.graph_break``, what is kept out of the graph, and a backward inside a region."""

KINDS: dict[str, tuple[str, str, str]] = {
    "item": (
        "Tensor.item()",
        "it reads a tensor's value on the host",
        "Keep it a tensor (drop .item()), or set torch._dynamo.config.capture_scalar_outputs = True.",
    ),
    "list": (
        "Tensor.tolist()",
        "it reads a tensor's values on the host",
        "Keep them a tensor, or read them outside the compiled function.",
    ),
    "branch": (
        "Data-dependent",
        "Python branches here on a tensor's value",
        "Write it without a branch: torch.where(condition, a, b), torch.clamp, or torch.cond.",
    ),
    "autocast": (
        "autocast",
        "autocast is entered here in a way that the compiler cannot trace",
        "Enter it with `with torch.autocast(...):`, inside or outside; neither breaks the graph.",
    ),
    "print": (
        "`print`",
        "it prints here",
        "Move it out of the compiled function, or guard it: if not torch.compiler.is_compiling().",
    ),
}
"""Kind -> what the compiler's reason has in it, the reason in plain words, and what to do."""

OTHER = (
    "Move the call out of the compiled function, or rewrite it so that the compiler can trace "
    "it (TORCH_LOGS=graph_breaks prints all reasons)."
)


@dataclass(frozen=True)
class GraphBreak(Rule):
    """A line breaks a torch.compile graph"""

    code = "COMP001"
    severity = Severity.WARNING
    since = "0.1"
    cause = "read"  # of a line that reads a value, the rules of SYNC say what the wait costs
    leads = 5

    def detect(self, compiles: Compiles, entries: GraphEntries) -> Iterator[Finding]:
        for each in compiles.breaks:
            if not (each.own or each.lost) or any(word in each.reason for word in MEANT):
                continue
            kind = next((kind for kind, (word, *_) in KINDS.items() if word in each.reason), "")
            why = KINDS[kind][1] if kind else each.reason.partition(". ")[0].rstrip(".")
            of = f" of `{each.function}`" if each.function else ""
            what = f"breaks the torch.compile graph{of}"
            if each.lost:
                what = f"makes torch.compile skip `{each.function}` altogether"
            yield Finding(
                each.site,
                f"this line {what}: {why}",
                facts=(
                    ("the compiler says", each.reason),
                    ("its code", each.gb or "none"),
                    *_after(entries.of(each.after)),
                ),
                remedy=Remedy(KINDS[kind][2] if kind else OTHER),
            )


def _after(entered: Entered) -> tuple[tuple[str, str], ...]:
    """What the trace shows of what goes on after the break."""
    if not entered.n:
        return ()
    took = f", {amounts.duration(entered.lookup_us)} of lookup" if entered.lookup_us else ""
    return (("entered again after it", f"{amounts.digits(entered.n)} a step{took}"),)


# -- graph entries ---------------------------------------------------------------------------------
# How often compiled functions were entered in the traced steps, and what finding them cost.


LOOKUP = "TorchDynamo Cache Lookup"
"""Span in which the guards of what was compiled of a frame are checked, just before it runs."""

_REGION = re.compile(r"Torch-Compiled Region: !?(?:\d+/)?(?P<frame>\d+)/\d+")


@dataclass(frozen=True)
class Entered:
    """Of one frame in each step: how often it was entered, and the host time of its lookups, us."""

    n: float = 0.0
    lookup_us: float = 0.0


@dataclass(frozen=True)
class GraphEntries(Table):
    """``frames`` by the compiler's number; empty where there is no trace, or it has no times."""

    parts: ClassVar[tuple[str, ...]] = ("compiles",)

    frames: Mapping[str, Entered] = field(default_factory=dict)

    @classmethod
    def build(cls, evidence: Evidence) -> GraphEntries:
        """From the trace."""
        try:
            return cls(_entered(timed_timeline(evidence)))
        except NotLooked:
            return cls()

    def of(self, frames: Iterable[str]) -> Entered:
        """All of these together."""
        found = [self.frames[each] for each in frames if each in self.frames]
        return Entered(sum(each.n for each in found), sum(each.lookup_us for each in found))


def _entered(line: Timeline) -> dict[str, Entered]:
    import numpy as np

    operators, names = line.trace.operators, line.trace.names
    frames = {
        code: match["frame"]
        for code, name in enumerate(names)
        if (match := _REGION.match(name)) is not None
    }
    if not frames:
        return {}
    lookups = [code for code, name in enumerate(names) if name == LOOKUP]
    told = np.isin(operators.name, [*frames, *lookups])
    rows = np.flatnonzero(told)
    rows = rows[np.lexsort((operators.start[rows], operators.thread[rows]))]
    in_step = line.steps.of(operators.start[rows]) >= 0
    found: dict[str, Entered] = {}
    for place, row in enumerate(rows):
        frame = frames.get(int(operators.name[row]))
        if frame is not None and in_step[place]:
            us = _looked_up(operators, frames, int(rows[place - 1]), int(row)) if place else 0.0
            known = found.get(frame, Entered())
            found[frame] = Entered(known.n + 1, known.lookup_us + us)
    count = line.steps.count
    return {frame: Entered(each.n / count, each.lookup_us / count) for frame, each in found.items()}


def _looked_up(operators: Operators, frames: Mapping[int, str], before: int, row: int) -> float:
    if int(operators.name[before]) in frames or operators.thread[before] != operators.thread[row]:
        return 0.0
    return float(operators.end[before] - operators.start[before]) / 1e3
