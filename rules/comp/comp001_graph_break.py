"""COMP001: a line that breaks the graph of torch.compile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.compiles import Compiles
from auditor.evidence.recorded.machine import Machine
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.permit import Permit
from auditor.rule import Rule

from .graph_entries import Entered, GraphEntries

MEANT = ("graph_break()", "disable", "backward")
"""In reasons for breaks that the program asks for, or that no other line would avoid: a call of
``torch._dynamo.graph_break``, what is kept out of the graph, and a backward inside a region."""

KINDS: dict[str, tuple[str, str, str]] = {
    "item": (
        "Tensor.item()",
        "a value of a tensor is read on the host here",
        "Keep it a tensor (drop .item()), or set torch._dynamo.config.capture_scalar_outputs = True.",
    ),
    "list": (
        "Tensor.tolist()",
        "values of a tensor are read on the host here",
        "Keep them a tensor, or read them outside of the compiled function.",
    ),
    "branch": (
        "Data-dependent",
        "Python branches here on the value of a tensor",
        "Write it without a branch: torch.where(condition, a, b), torch.clamp, or torch.cond.",
    ),
    "autocast": (
        "autocast",
        "autocast is entered here in a way that the compiler cannot trace",
        "Enter it by `with torch.autocast(...):` itself, inside or around: neither breaks the graph.",
    ),
    "print": (
        "`print`",
        "it prints here",
        "Move it out of the compiled function, or guard it: if not torch.compiler.is_compiling().",
    ),
}
"""Kind -> what the compiler's reason has in it, the reason in plain words, and what to do."""

OTHER = (
    "Move the call out of the compiled function, or make it one that the compiler can trace "
    "(TORCH_LOGS=graph_breaks prints all of its reasons)."
)


@dataclass(frozen=True)
class Hints:
    """Which kind: a key of ``KINDS``, or empty."""

    kind: str


@dataclass(frozen=True)
class GraphBreak(Rule):
    """A line breaks the graph that torch.compile makes"""

    code = "COMP001"
    severity = Severity.WARNING
    since = "0.1"
    cause = "read"  # of a line that reads a value, the rules of SYNC say what the wait costs
    leads = 5
    edits = (Permit("skip_compiled", safe=True),)

    def detect(
        self, compiles: Compiles, entries: GraphEntries, machine: Machine
    ) -> Iterator[Finding]:
        for each in compiles.breaks:
            if not (each.own or each.lost) or any(word in each.reason for word in MEANT):
                continue
            kind = next((kind for kind, (word, *_) in KINDS.items() if word in each.reason), "")
            why = KINDS[kind][1] if kind else each.reason.partition(". ")[0].rstrip(".")
            of = f" of `{each.function}`" if each.function else ""
            what = f"breaks the graph{of} that torch.compile makes"
            if each.lost:
                what = f"leaves the whole of `{each.function}` without the compiler"
            yield Finding(
                each.site,
                f"this line {what}: {why}",
                seen_on=machine.device,
                facts=(
                    ("the compiler says", each.reason),
                    ("its code", each.gb or "none"),
                    *_after(entries.of(each.after)),
                ),
                hints=Hints(kind),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        kind = finding.hints_as(Hints).kind
        if kind != "print" or finding.site is None:
            return Remedy(KINDS[kind][2] if kind else OTHER)
        reason = "the line only prints, and is left out where it is compiled"
        edit = Edit(finding.site, "skip_compiled", safe=True, reason=reason)
        return Remedy(KINDS[kind][2], (edit,))


def _after(entered: Entered) -> tuple[tuple[str, str], ...]:
    """What the trace shows of what goes on after the break."""
    if not entered.n:
        return ()
    took = f", {amounts.duration(entered.lookup_us)} of lookup" if entered.lookup_us else ""
    return (("entered again after it", f"{amounts.digits(entered.n)} a step{took}"),)
