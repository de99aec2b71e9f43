"""KERN007: a Python loop calls a module with one tensor piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.statements import shorten
from auditor.model import Finding, FoundAt, Remedy, Severity
from auditor.rule import Rule, knob

from .looping import saved_us, timed
from .module_loops import ModuleLoop, ModuleLoops

SEQUENCES = {"GRUCell": "nn.GRU", "LSTMCell": "nn.LSTM", "RNNCell": "nn.RNN"}


@dataclass(frozen=True)
class Hints:
    """The cell that is called; empty: another module."""

    cell: str


@dataclass(frozen=True)
class ModulePieceByPiece(Rule):
    """A loop calls a module once for each piece of a tensor."""

    code = "KERN007"
    severity = Severity.WARNING
    since = "0.1"

    turns: int = knob(8, "Calls in each watched step from which a loop is reported.")
    share: float = knob(
        0.05,
        "Share of the precision pass's time outside backward, inside the calls, from which it is "
        "reported.",
    )
    elements: int = knob(
        8192, "Numbers in a piece above which a loop may be there to save memory (not of cells)."
    )

    def detect(self, loops: ModuleLoops, machine: Machine) -> Iterator[Finding]:
        for each in loops.worth(self.turns, self.share, self.elements):
            yield Finding(
                each.site,
                _said(each),
                steps=each.steps,
                per_step=float(each.turns),
                seen_on=machine.device,
                places=_places(each),
                lost_us_per_step=saved_us(each.us, each.turns),
                basis="none" if each.us is None else "estimated",
                facts=(("numbers in a piece", f"{each.elements:,}"), *timed(each.us)),
                hints=Hints(each.module if each.recurrent else ""),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        cell = finding.hints_as(Hints).cell
        if cell:
            return Remedy(
                f"Give the whole sequence to {SEQUENCES[cell]} of the same sizes, which keeps the "
                "state itself; torch.nn.utils.rnn.pack_padded_sequence takes lengths that differ."
            )
        return Remedy(
            "Call the module once with the whole tensor (its first dimensions joined, if need be), "
            "and cut the result; torch.vmap helps where it takes one sample only."
        )


def _said(each: ModuleLoop) -> str:
    loop = f"the loop at {each.head}"
    if each.recurrent:
        did = f"{each.module} goes through a sequence of {each.turns} pieces or more in {loop}"
        return f"{did}, one call for each, with nothing but its own state between them"
    return (
        f"{each.module} is called {each.turns} times a step in {loop}, each time with another "
        f"piece of one tensor: {amounts.percent(each.share)} of the watched forward is inside"
    )


def _places(each: ModuleLoop) -> tuple[FoundAt, ...]:
    if each.head == each.site or each.head.line == each.site.line:
        return ()
    own = FoundAt(each.site, shorten(each.site.text), float(each.turns))
    return (FoundAt(each.head, shorten(each.head.text)), own)
