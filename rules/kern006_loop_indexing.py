"""KERN006: a Python loop over the rows of a tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import IndexingLoops, Machine
from auditor.evidence.trace.patterns import Loop, Structure
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class LoopOverIndex(Rule):
    """
    A Python loop goes over a tensor piece by piece.

    ## What it finds
    In a run: a line whose operator is given ten or more pieces of one tensor, one after the other,
    in a loop of few operators that makes up a noticeable share of the step's. Silent where pieces
    differ in size or are large, where a turn needs the one before (a recurrence), where a backward
    runs in the loop, and in a loader. In a trace: the same short row of operators (at most eight)
    with an indexing one in it, ten times or more one after the other under one parent, launching
    kernels each time, for a noticeable share of the step on the host. Loops of the data loader's
    own are left out.

    ## Why it costs
    Each turn pays the host's price for each operator (5 to 100 us) to move a few values; one
    operator on the whole tensor pays it once.

    ## Example
    ```python
    import torch

    x = torch.randn(256, 1024)
    out = torch.empty_like(x)

    def step():
        for row in range(256):
            out[row] = x[row] * 2
    ```

    ## Use instead
    ```python
    import torch

    x = torch.randn(256, 1024)

    def step():
        out = x * 2
    ```
    Where rows differ, ``torch.where``, a mask, ``index_select``, ``scatter`` or ``torch.vmap`` do
    all of them at once.

    ## When to ignore
    Each turn needs the result of the one before.

    ## Sources
    ``torch.profiler._pattern_matcher`` takes 10 repeats of one index operator, and leaves the rule
    out of its report; asking for launches and a share of the step is ours.
    """

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
    body: int = knob(16, "In a run: operators in each turn, at most.")

    def detect(self, piecewise: IndexingLoops, machine: Machine) -> Iterator[Finding]:
        for loop in piecewise.short(self.body):
            if loop.share < self.operators:
                continue
            yield Finding(
                loop.site,
                f"a Python loop gives `{loop.op}` {amounts.digits(loop.turns)} pieces of a tensor "
                f"one by one: {amounts.digits(loop.operators)} operators per step, "
                f"{amounts.percent(loop.share)} of all outside the backward",
                steps=loop.steps,
                per_step=loop.turns,
                seen_on=machine.device,
                facts=(("elements of a piece", str(loop.elements)),),
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
        return Remedy(
            "Do it for the whole tensor at once: broadcasting, a mask, index_select, scatter or "
            "torch.vmap."
        )


def _said(loop: Loop) -> str:
    return ", ".join(f"`{name}`" for name in loop.cycle)
