"""GRAPH003: a graph is recorded for nothing: in evaluation, of a teacher, for samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.source.files import Source
from auditor.evidence.source.loops import evaluating
from auditor.evidence.table import Rows
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.rule import Rule, knob

from ..lines import places_of
from .left_out import for_nobody
from .rows import EvalRow, StrayRow

NO_GRAD = "torch.no_grad()"


@dataclass(frozen=True)
class GraphRecordedInEvaluation(Rule):
    """A model records a graph that is never used."""

    code = "GRAPH003"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Put the call under torch.no_grad(), or torch.inference_mode() if nothing of it enters a "
        "loss."
    )

    calls: int = knob(
        3,
        "Report a line only after this many calls in the diagnostic pass whose graph was never "
        "walked.",
    )

    def detect(
        self, evaluations: Rows[EvalRow], strays: Rows[StrayRow], source: Source
    ) -> Iterator[Finding]:
        for place in for_nobody(evaluations, strays, self.calls):
            yield Finding(
                place.site,
                f"{_said(place)} with gradients on {place.n} times, and backward computed "
                "gradients of its parameters that are never used",
                steps=place.steps,
                per_step=place.n / place.steps,
                lost_bytes=place.saved_bytes,
                basis="none" if place.saved_bytes is None else "measured",
                facts=(("calls", str(place.n)), ("graphs walked", str(place.walked))),
            )
        for place in evaluations:
            if place.n < self.calls or place.walked or place.held:
                continue
            saved = place.saved_bytes
            cost = (
                f"; {amounts.size(saved)} were saved for it in one call"
                if saved is not None
                else ""
            )
            yield Finding(
                place.site,
                f"{_said(place)} with gradients on {place.n} times, and no backward walked the "
                f"graph{cost}",
                steps=place.steps,
                per_step=place.n / place.steps,
                lost_bytes=saved,
                basis="none" if saved is None else "measured",
                severity=Severity.NOTE if _is_cut(place) else None,
                facts=(("calls", str(place.n)), ("graphs walked", "0")),
                places=places_of(place.site, place.site_of(place.outer)),
                remedy=Remedy(self.advice, tuple(_decorated(source, place))),
            )


def _decorated(source: Source, place: EvalRow) -> Iterator[Edit]:
    """The function around the line, where it does nothing but evaluate."""
    function = evaluating(source, place.site) if place.mode == "eval" else None
    if function is not None:
        reason = "the function's result then has no graph"
        yield Edit(function, "decorate", value=NO_GRAD, reason=reason)


def _is_cut(place: EvalRow) -> bool:
    """The line itself lets go of the graph: what it saved is freed at once."""
    return place.mode == "trained" and ".detach()" in place.site.text


def _said(place: EvalRow) -> str:
    if place.mode == "trained":
        return f"{place.module} ran"
    return (
        f"{place.module} ran in eval mode"
        if place.mode == "eval"
        else f"{place.module}, which no optimizer trains, ran"
    )
