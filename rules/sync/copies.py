"""SYNC006, 7, 10 and 11: copies to the device that make the host wait."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from auditor.evidence.recorded.copies import Copies
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Source, Span, name_of, unparsed
from auditor.evidence.trace.host_waits import TraceWaits, WaitPlace
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import knob
from auditor.syntax.index import Index, nodes_in
from auditor.syntax.reaching import FACTORIES, KEEPING, given_for, made_for

from ..copying import CopyRule, made_on_device
from ..lines import places_of
from .waiting import waits_in_trace

# -- host made -------------------------------------------------------------------------------------
# Where the host makes what a line moves to the device: out of sizes, numbers and chance alone, so
# that the device could make it.

DRAWS = frozenset(each for each in FACTORIES if each.startswith(("rand", "normal")))
SHAPED = KEEPING | {"repeat", "permute", "expand_as", "to", "type", "contiguous", "chunk", "split"}
"""Methods whose arguments are no part of the values."""
DEEPEST = 8
"""Names, functions and operators that are followed, one inside the other."""


class Made(NamedTuple):
    """The lines that make it, and names of the functions of torch that do. ``patched``: of the one
    that ``make_on_device`` can give the device to; empty if there is none.
    """

    sites: tuple[Site, ...]
    names: tuple[str, ...]
    patched: str = ""

    @property
    def drawn(self) -> bool:
        """Whether some of it is random."""
        return not DRAWS.isdisjoint(self.names)


def host_made(source: Source, site: Site, span: Span | None) -> Made | None:
    """What makes the tensor that the call at ``span`` on the site's line moves (``x.to(device)``); None
    if it holds more than that.
    """
    move = source.node_at(site.file, span) if span is not None else None
    if not isinstance(move, ast.Call) or not isinstance(move.func, ast.Attribute):
        return None
    index = source.index(site.file)
    found = _makers(index, move.func.value, DEEPEST)
    if not found:
        return None
    lines = {call.lineno: source.site_of(site.file, call) for call in found}
    whole = made_for(move, index.parents)
    patched = name_of(whole.func) if whole in found and len(found) == 1 else ""
    return Made(
        tuple(lines.values()), tuple(dict.fromkeys(name_of(call.func) for call in found)), patched
    )


def _makers(index: Index, value: ast.expr | None, depth: int) -> list[ast.Call] | None:
    """The factories' calls in an expression of nothing but these and numbers; None of any other."""
    if depth <= 0 or value is None:
        return None
    if isinstance(value, ast.Constant):
        return []
    if isinstance(value, ast.Name):
        given = given_for(value, index.parents)
        return None if given is None else _makers(index, given.value, depth - 1)
    if isinstance(value, ast.Subscript):
        return _makers(index, value.value, depth - 1)
    if isinstance(value, ast.BinOp | ast.Compare | ast.UnaryOp | ast.List | ast.Tuple):
        parts = (each for each in ast.iter_child_nodes(value) if isinstance(each, ast.expr))
        return _all(index, parts, depth)
    return _called(index, value, depth) if isinstance(value, ast.Call) else None


def _all(index: Index, values: Iterable[ast.expr], depth: int) -> list[ast.Call] | None:
    found: list[ast.Call] = []
    for each in values:
        inside = _makers(index, each, depth - 1)
        if inside is None:
            return None
        found += inside
    return found


def _called(index: Index, call: ast.Call, depth: int) -> list[ast.Call] | None:
    function, name = call.func, name_of(call.func)
    if isinstance(function, ast.Attribute) and name_of(function.value) == "torch":
        if name in FACTORIES:
            if any(each.arg == "device" for each in call.keywords):
                return None
            of_tensors = name == "normal" and len(call.args) < 3
            return [call] if not of_tensors or _all(index, call.args, depth) is not None else None
        return _all(index, call.args, depth)
    own = index.functions_named.get(name, ())
    if len(own) == 1 and unparsed(function) in (name, f"self.{name}"):
        returned = list(nodes_in(own[0], ast.Return))
        return _makers(index, returned[0].value, depth - 1) if len(returned) == 1 else None
    if not isinstance(function, ast.Attribute):
        return None
    given = () if name in SHAPED else call.args
    return _all(index, (function.value, *given), depth)


# -- copies ----------------------------------------------------------------------------------------

Known = tuple[tuple[tuple[Site, str, Span | None], Made], ...]
"""Calls that move a tensor, each with the function that creates it on the host."""

DRAWN = " Random numbers then come from the device's generator, so a run differs from earlier ones."


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
    advice = (
        "Keep the tensor on the device, or copy it from pinned memory with non_blocking=True (the "
        "source must not change before the copy is done)."
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
            known = tuple((move, one) for move, one in made if one is not None)
            if len(known) < len(made) or place.waits_elsewhere:
                known = ()
            message = (
                f"{what} copied to the device on {place.pattern} and the host waits until "
                f"{there}{how}"
            )
            yield self.report(
                place,
                message + _made_at(known),
                places=places_of(place.site, *(site for _, one in known for site in one.sites)),
                remedy=self._remedy(moves, known, indexes=place.indexes),
            )

    def in_trace(self, waits: TraceWaits) -> Iterator[Finding]:
        return waits_in_trace(waits, waits.of("copy to device"), self._sentence)

    def _sentence(self, place: WaitPlace) -> str:
        what = f"`{place.operator}`" if place.operator else f"{place.api}"
        size = f" ({place.amount})" if place.amount else ""
        return f"{what} makes a blocking copy to the device{size}"

    def _remedy(self, moves: tuple[CallArgument, ...], made: Known, *, indexes: bool) -> Remedy:
        """By the function that creates it on the host, and whether it indexes a tensor of the
        device.
        """
        if indexes:
            return Remedy(
                "Make the index a tensor on the device before its first use "
                "(torch.as_tensor(index, device=...)): an array or a "
                "host tensor is copied again at each line that indexes with it."
            )
        advice, refused = self.decided_elsewhere(moves)
        if made:
            where = ", ".join(f"torch.{name}" for name in _names(made))
            drawn = any(one.drawn for _, one in made)
            edits = [edit for move, one in made for edit in made_on_device([move], one.patched)]
            drawn_there = DRAWN if drawn else ""
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
        "filled each step."
    )

    small: int = knob(
        64_000,
        "Report a note for copies of up to this many bytes, which the driver stages without waiting.",
    )

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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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
