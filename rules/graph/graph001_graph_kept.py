"""GRAPH001: losses or outputs kept with their autograd graph from step to step."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.retained_graphs import RetainedGraphs, Root, each_line_once
from auditor.evidence.source.files import Source, name_of, shorten, the_only
from auditor.evidence.source.stored_reads import gradient_read
from auditor.model import Edit, Finding, FoundAt, Remedy, Severity, Site
from auditor.rule import Rule, knob
from auditor.syntax.index import ADDS_ITEM, REACHES_ITEM

from .kept import Backward


@dataclass(frozen=True)
class GraphKeptAcrossSteps(Rule):
    """The autograd graph of earlier steps is kept."""

    code = "GRAPH001"
    severity = Severity.ERROR
    since = "0.1"

    share: float = knob(0.6, "Report only if there are more tensors after this share of the steps.")
    steady: float = knob(
        0.9,
        "If the number of tensors does not grow, report only if the graph is longer or heavier after "
        "this share of the steps.",
    )
    stretch: int = knob(
        12,
        "Warn about a holder that was emptied once only if it grew on this many steps (it may be an "
        "epoch's).",
    )
    age: int = knob(2, "In a bounded holder, a tensor is old from this age in steps on.")

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
                f"{root.name} retains the graph of every step: {root.tensors[0]} tensors at first, "
                f"{root.tensors[-1]} in the end"
            )
        return f"{root.name} links each step's graph to the one before: {root.length}"

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
    """Why the kept graph may be needed; empty where it was seen that it is not."""
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
    return f"; that is what line {kept.line}, `{shorten(kept.text)}`, keeps its graph for"


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
