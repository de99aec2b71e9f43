"""COMP007: CUDA graphs that were asked for and are not used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.compiles import Compiles
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule

MEANT = ("annotation", "bisector")
"""In reasons for graphs that somebody switched off on purpose."""

KINDS: dict[str, tuple[str, str, str]] = {
    "mutated": (
        "mutated inputs",
        "an input of the compiled function is written to in place",
        "Make a new tensor of it (x = x + 1 for x.add_(1)), or keep it as a buffer of the module.",
    ),
    "cpu": (
        "cpu device",
        "a tensor of the CPU takes part",
        "Move it to the device before the call, or make it there.",
    ),
    "devices": (
        "multiple devices",
        "tensors of several devices take part",
        "Compile what runs on each device for itself.",
    ),
    "operator": (
        "incompatible op",
        "an operator takes part that CUDA graphs cannot hold",
        "Move it out of the compiled function.",
    ),
    "lengths": (
        "symbolic shapes",
        "lengths vary",
        "Pad to a few fixed lengths, or compile without CUDA graphs where lengths vary.",
    ),
    "recorded": (
        "re-recording limit",
        "it was recorded again too often",
        "Hand in the same tensors on each step: copy new values into them (x.copy_(new)).",
    ),
}
"""Kind -> what the compiler's reason has in it, the reason in plain words, and what to do."""

OTHER = (
    "Take what the reason names out of the compiled function, or compile without CUDA graphs: the "
    "default mode, or 'max-autotune-no-cudagraphs'."
)


@dataclass(frozen=True)
class GraphsSkipped(Rule):
    """CUDA graphs are asked for and not used"""

    code = "COMP007"
    severity = Severity.WARNING
    since = "0.1"

    def detect(self, compiles: Compiles, machine: Machine) -> Iterator[Finding]:
        machine.nothing_seen_without_cuda("CUDA graphs need one")
        if not compiles.graphs and not compiles.skips:
            raise NotLooked("nothing that is compiled asks for CUDA graphs")
        for each in compiles.skips:
            if any(word in each.reason for word in MEANT):
                continue
            kind = next((kind for kind, (word, *_) in KINDS.items() if word in each.reason), "")
            why = KINDS[kind][1] if kind else each.reason
            where = "here" if each.own else "in what runs here"
            yield Finding(
                each.site,
                f"CUDA graphs are asked for and not used: {why} {where}",
                facts=(("the compiler says", each.reason), ("times", str(each.n))),
                remedy=Remedy(KINDS[kind][2] if kind else OTHER),
            )
