"""SYNC006, 7, 10 and 11: copies to the device that make the host wait."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from auditor.evidence.recorded.copies import Copies
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source, Span, name_of
from auditor.evidence.trace.host_waits import TraceWaits, WaitPlace
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import knob
from auditor.syntax.reaching import FACTORIES, made_for

from ..copying import CopyRule, made_on_device
from ..lines import places_of
from .waiting import waits_in_trace

DRAWS = ("rand", "normal")
"""How names of functions begin whose result is random."""


def host_made(source: Source, site: Site, span: Span | None) -> ast.Call | None:
    """The torch call that makes on the host what the call at ``span`` moves; None if unseen."""
    move = source.node_at(site.file, span) if span is not None else None
    if not isinstance(move, ast.Call) or not isinstance(move.func, ast.Attribute):
        return None
    made = made_for(move, source.index(site.file).parents)
    if made is None or name_of(made.func) not in FACTORIES:
        return None
    return None if any(each.arg == "device" for each in made.keywords) else made


# -- copies ----------------------------------------------------------------------------------------

Known = tuple[tuple[tuple[Site, str, Span | None], Site, str], ...]
"""Calls that move a tensor, each with the line that makes that on the host, and torch's name for it."""

DRAWN = " Random numbers then come from the device's generator, so a run differs from earlier ones."


def _made_at(made: Known) -> str:
    if not made:
        return ""
    lines = ", ".join(dict.fromkeys(f"`{at}`" for _, at, _ in made))
    return f"; it is made on the host by torch.{', torch.'.join(_names(made))} ({lines})"


def _names(made: Known) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for _, _, name in made))


class BlockingCopyEveryStep(CopyRule):
    """A host tensor is copied to the device and the host waits for it."""

    code = "SYNC006"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Make the tensor on the device; data that the host makes or reads (NumPy arrays, lengths) is "
        "copied from pinned memory with non_blocking=True and must not change before the copy is done."
    )
    leads = 2

    def detect(self, copies: Copies, source: Source, configs: Configs) -> Iterator[Finding]:
        for place in self.own(copies.sites("tensor", blocking=True)):
            what = (
                f"an index on the host ({place.amount}) is"
                if place.indexes
                else f"{place.amount} are"
            )
            there = "it is there" if place.indexes else "they are there"
            moves = self.waiting_moves(place, source, configs)
            written = (
                given(
                    source, configs, copy.site, "copy_", "non_blocking", ran=False, span=copy.span
                )
                for copy in place.copies
                if copy.call == "copy_"
            )
            how = (
                ""
                if place.indexes
                else f" ({place.memory} memory, "
                f"{self.waits_because((*moves, *written)) or 'no non_blocking=True'})"
            )
            made = [(move, host_made(source, move[0], move[2])) for move in place.moves]
            known = tuple(
                (move, source.site_of(move[0].file, one), name_of(one.func))
                for move, one in made
                if one is not None
            )
            if len(known) < len(made) or place.waits_elsewhere:
                known = ()
            message = (
                f"{what} copied to the device on {place.pattern}; on a GPU the host waits until "
                f"{there}{how}"
            )
            yield self.report(
                place,
                message + _made_at(known),
                places=places_of(place.site, *(at for _, at, _ in known)),
                remedy=self._remedy(moves, known, indexes=place.indexes),
            )

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(waits, waits.of("copy to device"), self._sentence)

    def _sentence(self, place: WaitPlace) -> str:
        what = f"`{place.operator}`" if place.operator else f"{place.api}"
        size = f" ({place.amount})" if place.amount else ""
        return f"{what} makes a blocking copy to the device{size}"

    def _remedy(self, moves: tuple[CallArgument, ...], made: Known, *, indexes: bool) -> Remedy:
        """By the function that creates it on the host, and whether it indexes a device's tensor."""
        if indexes:
            return Remedy(
                "Make the index a tensor on the device before its first use "
                "(torch.as_tensor(index, device=...)): an array or a "
                "host tensor is copied again at each line that indexes with it."
            )
        advice, refused = self.decided_elsewhere(moves)
        if made:
            where = ", ".join(f"torch.{name}" for name in _names(made))
            drawn_there = DRAWN if any(name.startswith(DRAWS) for name in _names(made)) else ""
            edits = [edit for move, _, name in made for edit in made_on_device([move], name)]
            return Remedy(
                f"Create it on the device: pass device= to {where}.{drawn_there}{advice}",
                tuple(edits),
            )
        return Remedy(self.advice + advice, refused=refused)


@dataclass(frozen=True)
class AsyncCopyFromPageableMemory(CopyRule):
    """non_blocking=True copies from memory that is not pinned."""

    code = "SYNC007"
    severity = Severity.WARNING
    since = "0.1"
    leads = 3
    advice = (
        "Copy from pinned memory: DataLoader(pin_memory=True), or one pinned buffer that is "
        "filled again only when its copy is done."
    )

    small: int = knob(64_000, "Report a note for up to this many bytes: the driver stages them.")

    def detect(self, copies: Copies) -> Iterator[Finding]:
        for place in self.own(
            copies.sites("tensor", "made on the host", blocking=False, pinned=False)
        ):
            message = (
                f"non_blocking=True copies {place.amount} from pageable memory on {place.pattern}: "
                "the host stages it first, so nothing overlaps"
            )
            small = place.bytes_per_step <= self.small * place.per_step
            yield self.report(place, message, severity=Severity.NOTE if small else None)

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        places = waits.of("copy to device", "copy to host", "copy", asynchronous=True)
        large = [place for place in places if not 0 <= place.copied <= self.small * place.n]
        yield from waits_in_trace(waits, large, self._sentence)
        for finding in waits_in_trace(
            waits, (place for place in places if place not in large), self._sentence
        ):
            yield replace(finding, severity=Severity.NOTE)

    def _sentence(self, place: WaitPlace) -> str:
        what = f"`{place.operator}`" if place.operator else f"{place.api}"
        size = f" ({place.amount})" if place.amount else ""
        side = "to" if place.cause == "copy to host" else "from"
        return (
            f"{what} makes an asynchronous copy {side} pageable memory{size}, which blocks anyway"
        )


class TensorMadeOnHostThenMoved(CopyRule):
    """A tensor is created on the host and moved to the device on every step."""

    code = "SYNC010"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Create it where it is used: pass device= to the function that creates it. Random numbers "
        "then come from the device's generator and differ."
    )
    leads = 4

    def detect(self, copies: Copies, source: Source) -> Iterator[Finding]:
        for place in self.own(copies.sites("made on the host", blocking=True)):
            message = (
                f"a tensor of {place.amount} is created on the host and moved to the device on "
                f"{place.pattern}: {copies.host_waits}"
            )
            edits = tuple(made_on_device(place.moves, source.makes_at(place.site)))
            yield self.report(place, message, remedy=Remedy(self.advice, edits))


ONCE = "Create the tensor once, before the loop"


class ConstantSentEveryStep(CopyRule):
    """Python numbers are sent to the device in the step."""

    code = "SYNC011"
    severity = Severity.WARNING
    since = "0.1"
    leads = 5

    def detect(self, copies: Copies) -> Iterator[Finding]:
        for place in self.own(copies.sites("constant", blocking=True)):
            what = (
                f"Python numbers ({place.amount})"
                if place.written
                else f"numbers ({place.amount}) made on the host"
            )
            message = f"{what} are sent to the device on {place.pattern}: {copies.host_waits} for the copy"
            remedy = (
                f"{ONCE}; for a scalar that changes, torch.full((), value, device=...) copies nothing."
                if place.written
                else f"{ONCE}, if its values stay the same. Values that are new on each step (an "
                "environment's observation) must be copied, but need no wait: send several together, from "
                "pinned memory with non_blocking=True."
            )
            yield self.report(place, message, remedy=Remedy(remedy))
