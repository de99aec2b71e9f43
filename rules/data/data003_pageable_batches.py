"""DATA003: batches are copied to the device from pageable memory."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor.evidence.recorded.copies import Copies, Copy, CopyLine
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Function, Source, name_of, unparsed
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import knob
from auditor.syntax.index import nodes_in

from ..copying import CopyRule

PINNED = "page-locking the batch changes where it lies, not what it holds"


@dataclass(frozen=True)
class LoaderWithoutPinnedMemory(CopyRule):
    """Batches are copied to the device from unpinned memory."""

    code = "DATA003"
    severity = Severity.WARNING
    since = "0.1"

    small: int = knob(
        64_000,
        "Report a note for copies of up to this many bytes, which the driver stages without waiting.",
    )

    def detect(self, copies: Copies, source: Source, configs: Configs) -> Iterator[Finding]:
        lines: dict[int, list[CopyLine]] = {}
        for place in self.usual(copies.sites("batch", pinned=False)):
            for number in dict.fromkeys(map(_number, place.copies)):
                lines.setdefault(number, []).append(place)
        for number, places in lines.items():
            moved = (copy for place in places for copy in place.copies if _number(copy) == number)
            place = CopyLine.of(moved, copies.steps)
            loader = copies.loaders.get(number)
            made_at = loader.made_at if loader is not None else None
            if made_at is not None and not source.called(made_at, "DataLoader"):
                made_at = None  # made by a library, or by a subclass of the user's
            if made_at is None and place.library:
                continue
            own = unpinned_class(source, loader.collate) if loader and loader.pins else None
            if own is not None:
                yield self.report(
                    place,
                    f"pin_memory=True has no effect on the batches of this loader: {own.name} has no "
                    f"pin_memory(), so {place.amount} are copied{_lines(places)} from unpinned "
                    "memory",
                    site=own.site,
                    remedy=Remedy(
                        f"Give {own.name} a method pin_memory(self) that pins its tensors and "
                        "returns self; or collate into a named tuple or a dict, which torch pins "
                        "itself."
                    ),
                )
                continue
            pinned = given(source, configs, made_at, "DataLoader", "pin_memory", ran=False)
            decided = f": {pinned.said}" if pinned.written else ""
            yield self.report(
                place,
                f"{place.amount} of batches are copied to the "
                f"device{'' if made_at is None else _lines(places)} on {place.pattern} "
                f"from unpinned memory{decided}",
                site=made_at,
                severity=Severity.NOTE if all(map(self._is_small, places)) else None,
                remedy=self._remedy(places, made_at, pinned, source, configs),
            )

    def _remedy(
        self,
        places: Sequence[CopyLine],
        made_at: Site | None,
        pinned: CallArgument,
        source: Source,
        configs: Configs,
    ) -> Remedy:
        """All copies of the loader's batches stop to wait, or none is touched."""
        text = (
            "Pass pin_memory=True to the loader, and move its batches with .to(device, "
            "non_blocking=True)."
        )
        if places[0].library:
            text = f"Pass pin_memory=True to the loader; {places[0].library} moves its batches."
        if made_at is None:
            return Remedy(text)
        own = [each for each in places if not each.library]
        moves = {str(each.site): self.waiting_moves(each, source, configs) for each in own}
        waits = (
            str(each.site)
            for each in own
            if each.waits_elsewhere or any(move.refused for move in moves[str(each.site)])
        )
        if still := next(waits, ""):  # a line whose copy waits all the same, and cannot be edited
            text += f" Pinned memory alone gains little: the copy at {still} still waits."
            return Remedy(text + pinned.advice, refused=pinned.refused)
        edits = pinned.edits("True", safe=True, reason=PINNED)
        if edits:
            each_move = (move for each in moves.values() for move in each)
            unwaited = self.without_waiting(each_move, own)
            edits = tuple(dict.fromkeys((*edits, *unwaited)))
        return Remedy(text + pinned.advice, edits, refused=pinned.refused)

    def _is_small(self, place: CopyLine) -> bool:
        return place.bytes_per_step <= self.small * place.per_step


def _number(copy: Copy) -> int:
    return -1 if copy.row.loader is None else copy.row.loader


def _lines(places: Sequence[CopyLine]) -> str:
    more = len(places) - 1
    return f" at {places[0].site}" + (f" and {more} more line{'s' * (more > 1)}" if more else "")


# -- batch class -----------------------------------------------------------------------------------
# The user's own class of a loader's batches, where ``pin_memory=True`` passes over it.


PLAIN = frozenset({"object", "Generic", "ABC"})
"""Bases that bring no ``pin_memory`` and make the class no container."""


@dataclass(frozen=True)
class BatchClass:
    """A class whose objects torch does not pin: no tensor, container or named tuple, and without a
    ``pin_memory`` of its own.
    """

    name: str
    site: Site


def unpinned_class(source: Source, collate: str) -> BatchClass | None:
    """What the collate function of this qualified name returns, where that is one such class of the
    program's (or where the function is the class itself); else None.
    """
    name = collate.rpartition(".")[2]
    classes = {node.name: (file, node) for file, node in source.every(ast.ClassDef)}
    returned = {
        _made_by(each.value, node)
        for _, node in source.functions
        if node.name == name
        for each in nodes_in(node, ast.Return)
    }
    made = returned or {name}
    file, found = classes.get(made.pop(), ("", None)) if len(made) == 1 else ("", None)
    if found is None or not _is_passed_over(found):
        return None
    return BatchClass(found.name, source.site_of(file, found))


def _made_by(value: ast.expr | None, function: ast.AST) -> str:
    """The class that a returned value is an object of, as far as one line shows it."""
    if isinstance(value, ast.Name):
        given = [
            node.value
            for node in nodes_in(function, ast.Assign)
            if any(unparsed(each) == value.id for each in node.targets)
        ]
        value = given[0] if len(given) == 1 else None
    return name_of(value.func) if isinstance(value, ast.Call) else ""


def _is_passed_over(found: ast.ClassDef) -> bool:
    bases = {
        name_of(base.value if isinstance(base, ast.Subscript) else base) for base in found.bases
    }
    methods = {node.name for node in found.body if isinstance(node, Function)}
    return bases <= PLAIN and not methods & {"pin_memory", "__getattr__", "__getattribute__"}
