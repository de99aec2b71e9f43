"""KERN006: a Python loop over the rows of a tensor, over masks of it, or over parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.statements import shorten
from auditor.evidence.trace.patterns import Loop, Structure
from auditor.model import Finding, FoundAt, Remedy, Severity
from auditor.rule import Rule, knob

from .indexing_loops import IndexingLoop, IndexingLoops
from .looping import saved_us, timed

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
class Hints:
    """What the loop goes over: a key of ``REMEDIES``."""

    kind: str = "pieces"


@dataclass(frozen=True)
class LoopOverIndex(Rule):
    """A Python loop does one by one what one operator could do."""

    code = "KERN006"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

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

    def detect(self, piecewise: IndexingLoops, machine: Machine) -> Iterator[Finding]:
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
                seen_on=machine.device,
                severity=Severity.NOTE if noted else None,
                lost_us_per_step=saved_us(loop.us, loop.turns),
                basis="none" if loop.us is None else "estimated",
                facts=(
                    *(
                        (("elements of a piece", str(loop.elements)),)
                        if loop.kind == "pieces"
                        else ()
                    ),
                    *timed(loop.us),
                ),
                hints=Hints(loop.kind),
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

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(REMEDIES[finding.hints_as(Hints).kind])


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
