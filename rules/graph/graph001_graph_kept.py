"""GRAPH001: losses or outputs kept with their autograd graph from step to step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.retained_graphs import RetainedGraphs, Root, each_line_once
from auditor.evidence.source.files import Source, the_only
from auditor.evidence.source.statements import shorten
from auditor.model import Edit, Finding, FoundAt, Remedy, Severity, Site
from auditor.permit import Permit
from auditor.rule import Rule, knob

from .backward import Backward
from .container_depth import stores_at_depth


@dataclass(frozen=True)
class Hints:
    """Whether a backward walked the kept graph, and whether the line stores the tensor itself."""

    walked: bool = False
    itself: bool = False


@dataclass(frozen=True)
class GraphKeptAcrossSteps(Rule):
    """The autograd graph of earlier steps is kept."""

    code = "GRAPH001"
    severity = Severity.ERROR
    since = "0.1"
    edits = (Permit("detach", safe=True),)

    share: float = knob(0.6, "Share of the diagnosed steps after which there must be more tensors.")
    steady: float = knob(
        0.9,
        "Share of them after which the graph must be longer or heavier, where the tensors do not "
        "multiply.",
    )
    stretch: int = knob(
        12,
        "Steps on which a holder must have grown that was emptied once: more than a note, for it "
        "may be an epoch's.",
    )
    age: int = knob(2, "Age in steps from which a tensor in a bounded holder is old.")

    def detect(
        self, held: RetainedGraphs, backward: Backward, machine: Machine, source: Source
    ) -> Iterator[Finding]:
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
                seen_on=machine.device,
                severity=self._weight(root, bounded=root not in growing),
                facts=root.facts,
                places=_places(root, kept),
                hints=Hints(
                    walked=root.walked,
                    itself=root.site is not None and stores_at_depth(source, root.site, root.depth),
                ),
            )

    def _message(self, root: Root, *, bounded: bool) -> str:
        if bounded:
            epoch = self._of_an_epoch(root)
            more = " or more, until it is emptied" if epoch else ""
            return f"{root.name} keeps graphs of up to {root.oldest} steps ago{more}"
        if root.tensors_grow(self.share):
            return (
                f"{root.name} keeps the graph of every step: {root.tensors[0]} tensors, then "
                f"{root.tensors[-1]}"
            )
        return f"{root.name} links each step's graph to the one before: {root.length}"

    def _weight(self, root: Root, *, bounded: bool) -> Severity | None:
        if bounded:
            return Severity.WARNING if self._of_an_epoch(root) else Severity.NOTE
        return None if root.tensors_grow(self.share) or root.bytes_per_step() else Severity.WARNING

    def _of_an_epoch(self, root: Root) -> bool:
        return root.grew_until_emptied(self.stretch, self.steady)

    def remedy(self, finding: Finding) -> Remedy | None:
        text = (
            "Store the value without its graph: append .detach() where it is stored or accumulated."
        )
        if finding.site is None:
            return Remedy(text)
        hints = finding.hints_as(Hints)
        if not hints.itself:
            return Remedy(
                "What is stored holds tensors: store only those that are needed, each without its "
                "graph (.detach())."
            )
        reason = (
            "a later backward walks the kept graph: gradients change"
            if hints.walked
            else "no backward walks the kept graph"
        )
        return Remedy(text, (Edit(finding.site, "detach", safe=not hints.walked, reason=reason),))


def _kept_for(root: Root, backward: Backward) -> Site | None:
    """The one line whose retain_graph lets a later backward walk what the variable holds."""
    if not root.walked or root.site is None:
        return None
    line = the_only(backward.walked_again())
    return line if line != root.site else None


def _retains(kept: Site | None) -> str:
    """In words."""
    if kept is None:
        return ""
    return f"; that is what line {kept.line}, `{shorten(kept.text)}`, keeps its graph for"


def _places(root: Root, kept: Site | None) -> tuple[FoundAt, ...]:
    if kept is None or root.site is None:
        return ()
    both = (FoundAt(site, shorten(site.text), 1.0) for site in (root.site, kept))
    return tuple(sorted(both, key=lambda place: place.site.line))
