"""GRAPH002: ``retain_graph=True`` or ``create_graph=True`` whose graph no backward walks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.permit import ANY, Permit
from auditor.rule import Rule, knob

from .backward import Backward


@dataclass(frozen=True)
class Hints:
    """The call that is given ``retain_graph``, and as what; ``created``: it is ``create_graph`` that
    nobody needs.
    """

    call: str
    asked: CallArgument | None = None
    created: bool = False


@dataclass(frozen=True)
class RetainedGraphNeverNeeded(Rule):
    """A backward keeps its graph although nothing walks it again."""

    code = "GRAPH002"
    severity = Severity.WARNING
    since = "0.1"
    edits = (
        Permit("drop_keyword", (ANY,), "retain_graph", safe=True),
        Permit("drop_keyword", (ANY,), "create_graph"),
        Permit("set_keyword", (ANY, ".backward"), "retain_graph", "False", elsewhere=True),
    )

    times: int = knob(
        3, "Kept graphs of one line, none of them walked again, before it is reported."
    )

    def detect(
        self, backward: Backward, machine: Machine, source: Source, configs: Configs
    ) -> Iterator[Finding]:
        for kept in backward.never_reused():
            if kept.times < self.times:
                continue
            held = kept.held_bytes
            call = source.call_with_keyword(kept.site, "retain_graph")
            asked = given(source, configs, kept.site, call or "backward", "retain_graph", ran=True)
            yield Finding(
                kept.site,
                f"retain_graph kept the graph of {kept.times} backward calls; none was walked again"
                + (f": {asked.said}" if asked.written else ""),
                steps=len(kept.pattern.seen),
                per_step=kept.times / kept.steps,
                lost_bytes=held,
                basis="none" if held is None else "estimated",
                seen_on=machine.device,
                facts=kept.facts,
                hints=Hints(call, asked),
            )

        for made in backward.never_differentiated():
            if made.times < self.times:
                continue
            yield Finding(
                made.site,
                f"create_graph recorded a graph of the gradients of {made.times} calls; nothing "
                "differentiated it",
                steps=len(made.pattern.seen),
                per_step=made.times / made.steps,
                seen_on=machine.device,
                facts=(("graphs of gradients", str(made.times)),),
                hints=Hints(source.call_with_keyword(made.site, "retain_graph"), created=True),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        if finding.hints_as(Hints).created:
            return _without_create(finding)
        text = (
            "Drop retain_graph: each forward builds its own graph, and one backward walks it once."
        )
        hints = finding.hints_as(Hints)
        call, asked = hints.call, hints.asked
        if asked is not None and asked.written:
            reason = "an expression decides: a step not audited may need it"
            return Remedy(
                text + asked.advice, asked.edits("False", reason=reason), refused=asked.refused
            )
        if finding.site is None or not call:
            return Remedy(text)
        reason = "no backward walked a kept graph in any audited step"
        return Remedy(
            text,
            (Edit(finding.site, "drop_keyword", call, "retain_graph", safe=True, reason=reason),),
        )


def _without_create(finding: Finding) -> Remedy:
    """An edit only where the call says itself whether it keeps the graph that it walks: else
    create_graph did.
    """
    text = (
        "Drop create_graph: it is for gradients that are differentiated themselves. Where the same "
        "graph is walked again, say retain_graph=True instead; all rows of a Jacobian at once come "
        "from is_grads_batched=True or torch.func.jacrev."
    )
    call = finding.hints_as(Hints).call
    if finding.site is None or not call:
        return Remedy(text)
    reason = "some gradients are computed by other kernels when their graph is recorded"
    return Remedy(
        text,
        (Edit(finding.site, "drop_keyword", call, "create_graph", reason=reason),),
    )
