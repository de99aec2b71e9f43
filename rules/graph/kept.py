"""GRAPH001, 2 and 4: graphs kept from step to step, or on purpose."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from auditor import amounts
from auditor.evidence.recorded.lines import Line, Lines
from auditor.evidence.recorded.retained_graphs import RetainedGraphs, Root, each_line_once
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source, lines_of, name_of, shorten, the_only
from auditor.evidence.source.stored_reads import gradient_read
from auditor.evidence.table import Evidence, Rows, Table
from auditor.model import Edit, Finding, FoundAt, Remedy, Severity, Site
from auditor.recordings.schema.graph import BackwardRow, ReusedRow
from auditor.rule import Rule, knob
from auditor.syntax.index import ADDS_ITEM, REACHES_ITEM, owner_of

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
        walked = list(evidence.get(Rows[ReusedRow]))
        return cls(
            evidence.get(Lines[BackwardRow]),
            frozenset(row.site.place for row in walked if not row.gradients),
            frozenset(row.site.place for row in walked if row.gradients),
        )

    def never_differentiated(self) -> Iterator[Line[BackwardRow]]:
        """Lines that made a graph of their gradients which nothing walked or keeps."""
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

    times: int = knob(3, "Report a line that kept at least this many graphs, none walked again.")

    def detect(self, backward: Backward, source: Source, configs: Configs) -> Iterator[Finding]:
        for line in backward.never_reused():
            if line.n < self.times:
                continue
            sizes = [call.held_bytes for call in line.rows if call.held_bytes is not None]
            held = max(sizes, default=None)
            call = source.call_with_keyword(line.site, "retain_graph")
            asked = given(source, configs, line.site, call or "backward", "retain_graph", ran=True)
            yield self.report(
                line,
                f"retain_graph kept the graph of {line.n} backward calls, and no second backward "
                "used it" + (f": {asked.said}" if asked.written else ""),
                lost_bytes=held,
                basis="none" if held is None else "estimated",
                lost_us_per_step=None,
                facts=(),
                remedy=_without_retain(line.site, call, asked, _not_run(backward, source)),
            )

        for line in backward.never_differentiated():
            if line.n < self.times:
                continue
            yield self.report(
                line,
                f"create_graph recorded the graph of the gradients in {line.n} calls, but nothing "
                "differentiated it",
                facts=(),
                remedy=_without_create(
                    line.site, source.call_with_keyword(line.site, "retain_graph")
                ),
            )


def _without_retain(site: Site, call: str, asked: CallArgument, unseen: Site | None) -> Remedy:
    """``call`` is given ``retain_graph`` as ``asked``; ``unseen`` is a backward that did not run."""
    text = "Drop retain_graph: each forward builds its own graph, and one backward walks it once."
    if asked.written:
        reason = "its value is an expression: a step that was not audited may need the graph"
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

    share: float = knob(0.5, "Report if gradients keep a graph over at least this share of steps.")

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
                    (
                        "gradients with a graph",
                        amounts.from_to(str(first.leaves), str(last.leaves)),
                    ),
                    *_held(known),
                ),
            )


def _growth(held: Sequence[int]) -> int | None:
    """Bytes that come to them in a step; None if that is unknown, or they do not grow."""
    if len(held) < 2:
        return None
    growth = (held[-1] - held[0]) // (len(held) - 1)
    return growth if growth > 0 else None


def _held(held: Sequence[int]) -> Iterator[tuple[str, str]]:
    if held:
        yield "saved for backward", amounts.from_to(amounts.size(held[0]), amounts.size(held[-1]))


@dataclass(frozen=True)
class GraphKeptAcrossSteps(Rule):
    """The autograd graph of earlier steps is kept."""

    code = "GRAPH001"
    severity = Severity.ERROR
    since = "0.1"
    follows_at_line = "MEM020"  # hooks that pile up keep what they store

    share: float = knob(0.6, "Report only if at least this share of the steps has more tensors.")
    steady: float = knob(
        0.9, "Without more tensors, report if at least this share of the steps grows the graph."
    )
    stretch: int = knob(
        12, "If a holder was emptied once, warn only if it grew on at least this many steps."
    )
    age: int = knob(2, "Count tensors of a bounded holder as old from this many steps on.")

    def detect(self, held: RetainedGraphs, backward: Backward, source: Source) -> Iterator[Finding]:
        growing = list(held.growing(share=self.share, steady=self.steady))
        bounded = (root for root in held.roots if root.keeps_old(self.age))
        for root in each_line_once([*growing, *bounded]):
            grown = root.bytes_per_step()
            kept = _kept_for(root, backward) if root in growing else None
            yield Finding(
                root.site,
                self._message(root, bounded=root not in growing) + _retains(kept),
                steps=len(root.holdings),
                per_step=1.0,
                lost_bytes=grown,
                grows=True,
                basis="none" if grown is None else "measured",
                severity=self._weight(root, bounded=root not in growing),
                facts=root.facts,
                places=_places(root, kept),
                remedy=_remedy(root, source),
            )

    def _message(self, root: Root, *, bounded: bool) -> str:
        if bounded:
            epoch = self._of_an_epoch(root)
            steps = f"{root.oldest} or more" if epoch else f"up to {root.oldest}"
            until = ", until it is emptied" if epoch else ""
            return f"{root.name} retains the graphs of {steps} earlier steps{until}"
        if root.tensors_grow(self.share):
            return (
                f"{root.name} retains the graph of every step: from {root.tensors[0]} to "
                f"{root.tensors[-1]} tensors over {len(root.tensors)} steps"
            )
        return f"{root.name} chains the graphs of all steps: {root.length}"

    def _weight(self, root: Root, *, bounded: bool) -> Severity | None:
        if bounded:
            return Severity.WARNING if self._of_an_epoch(root) else Severity.NOTE
        held = root.held_bytes
        if held and held[-1] <= held[0]:  # nodes alone: no memory of tensors is lost
            return Severity.WARNING
        return None if root.tensors_grow(self.share) or root.bytes_per_step() else Severity.WARNING

    def _of_an_epoch(self, root: Root) -> bool:
        return root.grew_until_emptied(self.stretch, self.steady)


def _remedy(root: Root, source: Source) -> Remedy:
    text = "Store the value without its graph: append .detach() where it is stored or added up."
    if root.site is None:
        return Remedy(text)
    if not stores_at_depth(source, root.site, root.depth):
        return Remedy(
            "The stored object holds tensors: store only the ones you need, each without its graph "
            "(.detach())."
        )
    cut = _needed(root, root.site, source)
    reason = cut or "no backward walks the kept graph, and nothing reads it with its gradient"
    return Remedy(text, (Edit(root.site, "detach", safe=not cut, reason=reason),))


def _needed(root: Root, site: Site, source: Source) -> str:
    """Why the kept graph may be needed; empty if it was seen that it is not."""
    if root.walked:
        return "a later backward walks the kept graph: gradients change"
    read = gradient_read(source, site, watched=not root.read_back)
    if read is None:
        return ""
    where = "this line" if read.line == site.line else f"line {read.line}, `{shorten(read.text)}`,"
    return f"{where} may read what is stored with its gradient: gradients change"


def _kept_for(root: Root, backward: Backward) -> Site | None:
    """The one line whose retain_graph lets a later backward walk what the variable holds."""
    if not root.walked or root.site is None:
        return None
    line = the_only(backward.walked_again())
    return line if line != root.site else None


def _retains(kept: Site | None) -> str:
    if kept is None:
        return ""
    return f"; line {kept.line}, `{shorten(kept.text)}`, keeps its graph for that"


def _places(root: Root, kept: Site | None) -> tuple[FoundAt, ...]:
    if kept is None or root.site is None:
        return ()
    both = (FoundAt(site, shorten(site.text), 1.0) for site in (root.site, kept))
    return tuple(sorted(both, key=lambda place: place.site.line))


# -- container depth -------------------------------------------------------------------------------
# Is what a line stores the tensor itself, or a container in which it lies?


def stores_at_depth(source: Source, site: Site, depth: int) -> bool:
    """True if a value that the line stores lies ``depth`` items below the variable, so that it is
    no container.

    ``kept.append(loss)`` stores at depth 1; if tensors are found at depth 2 there, what it appends
    is a list or a dict of them.
    """
    here = source.index(site.file).on(site.line, ast.stmt)
    return any(depth == found for statement in here for found in _depths(statement))


def _depths(statement: ast.stmt) -> Iterator[int]:
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        call = statement.value
        if (
            isinstance(call.func, ast.Attribute)
            and call.func.attr in ADDS_ITEM
            and len(call.args) == 1
        ):
            yield 1 + _levels(call.func.value) + _literals(call.args[0])
    elif isinstance(statement, ast.Assign):
        # Of an unpacked result it is not known which part the variable got.
        targets = [
            target for target in statement.targets if not isinstance(target, (ast.Tuple, ast.List))
        ]
        yield from (_levels(target) + _literals(statement.value) for target in targets)
    elif isinstance(statement, (ast.AugAssign, ast.AnnAssign)) and statement.value is not None:
        yield _levels(statement.target) + _literals(statement.value)


def _levels(target: ast.expr) -> int:
    """Items between variable and store: 1 for ``hist[k]`` and ``hist.setdefault(k, [])``."""
    if isinstance(target, ast.Subscript):
        return 1 + _levels(target.value)
    if (
        isinstance(target, ast.Call)
        and isinstance(target.func, ast.Attribute)
        and name_of(target.func) in REACHES_ITEM
    ):
        return 1 + _levels(target.func.value)
    return 0


def _literals(value: ast.expr) -> int:
    inside = value.values if isinstance(value, ast.Dict) else getattr(value, "elts", None)
    return 0 if not inside else 1 + _literals(inside[0])
