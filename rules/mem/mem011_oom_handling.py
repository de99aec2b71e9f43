"""MEM011: an out-of-memory error is caught, and what follows cannot work or trains on wrong
gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from auditor import amounts
from auditor.evidence.recorded.device_calls import DeviceCalls
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from ..placing import places_of
from ..pricing import between
from .oom_handlers import OomHandlers, Reason

WHY = {
    "swallows": "every other error of the step ends in this except as well (a wrong shape, a failed "
    "assertion on the device), and the training goes on as if memory had run out",
    "hides": "every error of the backward, of whatever kind, ends in this except, and the training "
    "goes on",
    "died": "the second try ran out of memory as well, which ended this run",
    "same_graph": "backward runs again on the graph of the try that failed, "
    "whose buffers may be freed already (a second error), "
    "and adds what had come through before the error twice",
    "not_cleared": "the gradients that the failed backward left are not cleared before the retry",
    "unchanged": "this loop tries the same batch again at the same size, for ever where "
    "the memory does not suffice",
    "in_vain": "each attempt takes the same batch at the same size, so that the later ones run out "
    "of memory as the first did",
    "inside": "the retry runs inside except, where the exception still "
    "holds the frames of the failed try with their tensors",
    "kept": "the exception is stored, and its traceback keeps the tensors of the failed try alive",
    "forgotten": "the error skips zero_grad, so the gradients of half a "
    "backward go into the next step",
    "stepped": "the optimizer steps with the gradients of half a backward",
}


@dataclass(frozen=True)
class Hints:
    """What is wrong on the line."""

    reasons: tuple[Reason | Literal["periodic"], ...]


@dataclass(frozen=True)
class OutOfMemoryHandledWrongly(Rule):
    """A handler of out-of-memory errors cannot work."""

    code = "MEM011"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    often: int = knob(
        3, "Calls of empty_cache() at one constant distance before they are called periodic."
    )
    share: float = knob(0.5, "Share of the steps from which they are SYNC009's.")

    def detect(self, handlers: OomHandlers, machine: Machine) -> Iterator[Finding]:
        yield from self._flawed(handlers, machine)
        if machine.gpu_path and handlers.calls is not None:  # without a device it does nothing
            yield from self._periodic(handlers.calls, machine)

    def _flawed(self, handlers: OomHandlers, machine: Machine) -> Iterator[Finding]:
        times = amounts.count(handlers.errors, "time")
        ran = f"; memory ran out {times} in this audit" if handlers.errors else ""
        for flaw in handlers.flaws:
            hides = flaw.reasons == ("hides",)
            yield Finding(
                flaw.site,
                ("" if hides else "after an out-of-memory error ")
                + "; and ".join(WHY[reason] for reason in flaw.reasons)
                + ran,
                seen_on=machine.device if handlers.errors else "source",
                facts=(
                    ("handler", str(flaw.handler)),
                    ("out of memory in this audit", str(handlers.errors)),
                ),
                severity=Severity.NOTE if hides else None,
                places=places_of(flaw.site, *flaw.others),
                hints=Hints(flaw.reasons),
            )

    def _periodic(self, calls: DeviceCalls, machine: Machine) -> Iterator[Finding]:
        for site in calls.sites(("empty_cache",)):
            seen = site.pattern
            if len(seen.seen) < self.often or seen.interval is None or seen.usual(self.share):
                continue
            price = (
                f"{amounts.duration(site.us_per_step)} per step inside the call"
                if machine.cuda
                else "rehearsed, so not priced"
            )
            found = Finding(
                site.site,
                f"empty_cache() every {seen.interval} steps prevents no out-of-memory error: "
                "before torch raises one it gives its "
                f"cache back by itself ({price})",
                steps=len(seen.seen),
                per_step=site.per_step,
                lost_us_per_step=site.us_per_step if machine.cuda else None,
                basis="measured" if machine.cuda else "none",
                seen_on=machine.device,
                severity=Severity.NOTE,
                facts=site.facts,
                hints=Hints(("periodic",)),
            )
            yield between(found, site.price) if machine.cuda else found

    def remedy(self, finding: Finding) -> Remedy | None:
        reasons = finding.hints_as(Hints).reasons
        if reasons == ("periodic",):
            return Remedy(
                "Drop it, or keep it where other programs share the device and need the memory in "
                "between."
            )
        if reasons == ("kept",):
            return Remedy("Store str(error), not the error.")
        if reasons == ("hides",):
            return Remedy(
                "Catch the errors that you expect (torch.OutOfMemoryError, FloatingPointError), and "
                "let all others end the run."
            )
        if reasons == ("swallows",):
            return Remedy(
                "Catch torch.OutOfMemoryError alone (a RuntimeError itself, so it goes first), or "
                'raise again what has no "out of memory" in its text.'
            )
        narrow = "Catch torch.OutOfMemoryError alone. " if "swallows" in reasons else ""
        return Remedy(
            narrow
            + "In except only set a flag. After the block: zero_grad(), then a fresh forward and "
            "backward, with a smaller batch in "
            "several parts; on the second failure save a checkpoint and stop."
        )
