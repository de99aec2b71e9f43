"""SYNC006: a tensor is copied to the device and {copies.host_waits} until it is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.copies import Copies
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source, Span
from auditor.evidence.source.host_made import Made, host_made
from auditor.evidence.trace.host_waits import TraceWaits, WaitPlace
from auditor.model import Finding, Remedy, Severity, Site

from ..copying import ON_DEVICE, CopyRule, Moves, made_on_device
from ..placing import places_of
from .waiting import waits_in_trace

Known = tuple[tuple[tuple[Site, str, Span | None], Made], ...]
"""Calls that move a tensor, each with who makes that on the host."""

DRAWN = (
    " Random numbers then come from the device's generator and differ: a run is then not the same as "
    "before."
)


@dataclass(frozen=True)
class Hints(Moves):
    """Whether what is copied indexes a tensor of the device; who makes it on the host."""

    indexes: bool = False
    made: Known = ()


def _made_at(made: Known) -> str:
    if not made:
        return ""
    lines = dict.fromkeys(f"`{site}`" for _, one in made for site in one.sites)
    return f"; it is made on the host by torch.{', torch.'.join(_names(made))} ({', '.join(lines)})"


def _names(made: Known) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for _, one in made for name in one.names))


@dataclass(frozen=True)
class BlockingCopyEveryStep(CopyRule):
    """A host tensor is copied to the device and the host waits for it."""

    code = "SYNC006"
    severity = Severity.WARNING
    since = "0.1"
    edits = (ON_DEVICE,)
    leads = 2

    def detect(self, copies: Copies, source: Source, configs: Configs) -> Iterator[Finding]:
        for place in self.usual(copies.sites("tensor", blocking=True)):
            what = (
                f"an index of the host's ({place.amount}) is"
                if place.indexes
                else f"{place.amount} are"
            )
            there = "it is there" if place.indexes else "they are there"
            moves = self.waiting_moves(place, source, configs)
            how = (
                ""
                if place.indexes
                else f" ({place.memory} memory, "
                f"{self.waits_because(moves) or 'no non_blocking=True'})"
            )
            made = [(move, host_made(source, move[0], move[2])) for move in place.moves]
            known = tuple((move, one) for move, one in made if one is not None)
            if len(known) < len(made) or place.waits_elsewhere:
                known = ()
            message = (
                f"{what} copied to the device on {place.pattern} and the host waits until "
                f"{there}{how}"
            )
            yield self.report(
                copies,
                place,
                place.site,
                message + _made_at(known),
                places=places_of(place.site, *(site for _, one in known for site in one.sites)),
                hints=Hints(moves, place.indexes, known),
            )

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(waits, waits.of("copy to device"), self._sentence)

    def _sentence(self, place: WaitPlace) -> str:
        what = f"`{place.operator}`" if place.operator else f"{place.api}"
        size = f" ({place.amount})" if place.amount else ""
        return f"{what} makes a blocking copy to the device{size}"

    def remedy(self, finding: Finding) -> Remedy | None:
        if finding.hints_as(Hints).indexes:
            return Remedy(
                "Make the index a tensor on the device before its first use "
                "(torch.as_tensor(index, device=...)): an array or a "
                "tensor of the host is copied anew at each line that indexes with it."
            )
        if made := finding.hints_as(Hints).made:
            where = ", ".join(f"torch.{name}" for name in _names(made))
            drawn = any(one.drawn for _, one in made)
            edits = [edit for move, one in made for edit in made_on_device([move], one.patched)]
            return Remedy(
                f"Make it on the device: pass device= to {where}." + (DRAWN if drawn else ""),
                tuple(edits),
            )
        advice, refused = self.decided_elsewhere(finding)
        return Remedy(
            "Keep the tensor on the device, or copy it from pinned memory with non_blocking=True "
            "(the source must then not "
            f"change before the copy is done).{advice}",
            refused=refused,
        )
