"""GRAPH002 and 4: graphs kept on purpose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from auditor import amounts
from auditor.evidence.recorded.lines import Line, Lines
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source, lines_of, name_of
from auditor.evidence.table import Evidence, Rows, Table
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.recordings.schema.graph import BackwardRow, ReusedRow
from auditor.rule import knob
from auditor.syntax.index import owner_of

from ..lines import LineReport
from .rows import CycleRow


@dataclass(frozen=True)
class Backward(Table):
    """Backward calls of the loud pass; ``reused`` are the lines whose kept graph was walked again
    (file, line), ``differentiated`` those with ``create_graph`` whose gradients were differentiated
    or are kept.
    """

    parts: ClassVar[tuple[str, ...]] = ("backward", "reused", "steps")

    calls: Lines[BackwardRow] = field(default_factory=Lines[BackwardRow])
    reused: frozenset[tuple[str, int]] = frozenset()
    differentiated: frozenset[tuple[str, int]] = frozenset()

    @classmethod
    def build(cls, evidence: Evidence) -> Backward:
        """From the loud pass."""
        walked = list(evidence.get(Rows[ReusedRow]))
        return cls(
            evidence.get(Lines[BackwardRow]),
            frozenset(row.site.place for row in walked if not row.gradients),
            frozenset(row.site.place for row in walked if row.gradients),
        )

    def never_differentiated(self) -> Iterator[Line[BackwardRow]]:
        """Lines that made a graph of their gradients which no later backward walked and nothing
        keeps.
        """
        for line in self.calls.lines(lambda call: call.create):
            known = all(call.followed for call in line.rows)
            if known and line.site.place not in self.differentiated:
                yield line

    def walked_again(self) -> Iterator[Site]:
        """Lines that kept graphs with ``retain_graph`` which a later backward walked."""
        kept = self.calls.lines(lambda call: call.retain)
        return (line.site for line in kept if line.site.place in self.reused)

    def never_reused(self) -> Iterator[Line[BackwardRow]]:
        """Lines that kept graphs which no later backward walked.

        A line that also builds a graph of the backward itself (``create_graph``) is left out: that
        graph refers to the kept one without walking it through the engine's front door.
        """
        made = {call.site.place for call in self.calls if call.create}
        for line in self.calls.lines(lambda call: call.retain):
            if line.site.place not in self.reused | made:
                yield line


@dataclass(frozen=True)
class RetainedGraphNeverNeeded(LineReport):
    """A backward keeps its graph although nothing walks it again."""

    code = "GRAPH002"
    severity = Severity.WARNING
    since = "0.1"

    times: int = knob(
        3, "Report a line only if it kept this many graphs and none was walked again."
    )

    def detect(self, backward: Backward, source: Source, configs: Configs) -> Iterator[Finding]:
        for line in backward.never_reused():
            if line.n < self.times:
                continue
            sizes = [call.held_bytes for call in line.rows if call.held_bytes is not None]
            held = max(sizes, default=None)
            call = source.call_with_keyword(line.site, "retain_graph")
            asked = given(source, configs, line.site, call or "backward", "retain_graph", ran=True)
            told = "not measured" if held is None else amounts.size(held)
            yield self.report(
                line,
                f"retain_graph kept the graph of {line.n} backward calls; none was walked again"
                + (f": {asked.said}" if asked.written else ""),
                lost_bytes=held,
                basis="none" if held is None else "estimated",
                lost_us_per_step=None,
                facts=(("kept graphs", str(line.n)), ("held by one", told)),
                remedy=_without_retain(line.site, call, asked, _not_run(backward, source)),
            )

        for line in backward.never_differentiated():
            if line.n < self.times:
                continue
            yield self.report(
                line,
                f"create_graph recorded the graph of the gradients in {line.n} calls, but nothing "
                "differentiated it",
                facts=(("graphs of gradients", str(line.n)),),
                remedy=_without_create(
                    line.site, source.call_with_keyword(line.site, "retain_graph")
                ),
            )


def _without_retain(site: Site, call: str, asked: CallArgument, unseen: Site | None) -> Remedy:
    """``call`` is given ``retain_graph`` as ``asked``; ``unseen`` is a backward that did not run."""
    text = "Drop retain_graph: each forward builds its own graph, and one backward walks it once."
    if asked.written:
        reason = "an expression decides: a step not audited may need it"
        return asked.remedy(text, "False", reason=reason)
    if not call:
        return Remedy(text)
    reason = (
        "no backward walked a kept graph in any audited step, and each backward in the source ran"
    )
    if unseen is not None:
        reason = f"the backward of line {unseen.line} did not run, and may need the kept graph"
    safe = unseen is None
    return Remedy(
        text, (Edit(site, "drop_keyword", call, "retain_graph", safe=safe, reason=reason),)
    )


def _not_run(backward: Backward, source: Source) -> Site | None:
    """A backward in the recorded files that no watched step ran."""
    ran = {call.site.place for call in backward.calls}
    return next(
        (
            source.site_of(file, call)
            for file, call in source.calls_of("backward", "grad")
            if (name_of(call.func) == "backward" or owner_of(call).endswith("autograd"))
            and not any((file, line) in ran for line in lines_of(call))
        ),
        None,
    )


def _without_create(site: Site, call: str) -> Remedy:
    """An edit only if the ``call`` says itself if it keeps its graph: else create_graph did."""
    text = (
        "Drop create_graph: it is for gradients that are differentiated again. If the same graph "
        "is walked again, use retain_graph=True instead; is_grads_batched=True or "
        "torch.func.jacrev compute all rows of a Jacobian at once."
    )
    if not call:
        return Remedy(text)
    reason = "some gradients use other kernels when their graph is recorded"
    return Remedy(text, (Edit(site, "drop_keyword", call, "create_graph", reason=reason),))


@dataclass(frozen=True)
class GradientsKeepTheirGraph(LineReport):
    """Gradients keep the graph of earlier backward passes alive."""

    code = "GRAPH004"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Use torch.autograd.grad(..., create_graph=True), which stores nothing in .grad, or set "
        "the gradients to None (zero_grad()) after the second backward."
    )

    share: float = knob(
        0.5,
        "Report only if gradients of an earlier step still have their graph after this share of "
        "the diagnosed steps.",
    )

    def detect(self, cycles: Lines[CycleRow]) -> Iterator[Finding]:
        for line in cycles.lines():
            if line.pattern.share < self.share:
                continue
            seen = sorted(line.rows, key=lambda row: row.step)
            first, last = seen[0], seen[-1]
            held = [row.held_bytes for row in seen if row.held_bytes is not None]
            known = held if len(held) == len(seen) else []
            grown = _growth(known)
            more = (
                f", and {amounts.size(grown)} more are held after each" if grown is not None else ""
            )
            yield self.report(
                line,
                f"{last.leaves} gradients of backward(create_graph=True) kept their graph into a "
                f"later step on {line.pattern}{more}",
                per_step=1.0,
                lost_us_per_step=None,
                lost_bytes=grown,
                grows=True,
                basis="none" if grown is None else "measured",
                facts=(
                    ("gradients with a graph", f"{first.leaves}, then {last.leaves}"),
                    *_held(known),
                ),
            )


def _growth(held: Sequence[int]) -> int | None:
    """Bytes that come to them in a step; None where that is unknown, or they do not grow."""
    if len(held) < 2:
        return None
    growth = (held[-1] - held[0]) // (len(held) - 1)
    return growth if growth > 0 else None


def _held(held: Sequence[int]) -> Iterator[tuple[str, str]]:
    if held:
        yield "saved tensors held", f"{amounts.size(held[0])}, then {amounts.size(held[-1])}"
