"""Copies from host to device in the step: what, from which memory, and whether the host waited."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from auditor import amounts
from auditor.evidence.recorded.batches import Batches, Loader
from auditor.evidence.recorded.lines import Line, Lines
from auditor.evidence.recorded.machine import Device, device_of
from auditor.evidence.source.files import Source, Span, name_of, span_at, span_of
from auditor.evidence.table import Evidence, Table, by_line
from auditor.model import Site
from auditor.model.devices import device_named
from auditor.recordings.schema.run import SiteRow
from auditor.recordings.schema.sync import CopyRow
from auditor.syntax.reaching import FACTORIES

What = Literal["constant", "made on the host", "batch", "tensor"]
"""A Python number or list; a factory function's result; a tensor of a batch; any other."""

MOVES = frozenset({"to", "cuda", "type"})
OF_ONE = frozenset({"abs", "cos", "diag", "exp", "flip", "log", "sin", "sqrt", "tril", "triu"})
"""Functions of torch that make a tensor out of one other."""

CONSTANTS = frozenset(
    {"tensor", "as_tensor", "scalar_tensor", "Tensor", "FloatTensor", "LongTensor"}
)
FEW = 64
"""Bytes up to which what else is given counts as numbers too: eight of them."""


@dataclass(frozen=True)
class Copy:
    """Copies of one kind by one expression in one step, and what the source tells of it."""

    row: CopyRow
    what: What
    via: str = ""
    written: bool = False
    """Numbers of Python's for sure; else ``what`` is ``constant`` because it is so small."""
    call: str = ""
    """Last name of the copying call: ``to``, ``cuda``, ``tensor``; empty if it is no call."""
    span: Span | None = None
    """Where that call stands; None if Python does not say (``-X no_debug_ranges``)."""

    @property
    def site(self) -> Site:
        """Its line."""
        return self.row.site


@dataclass(frozen=True)
class CopyLine(Line[CopyRow]):
    """A line that copies tensors of one kind to the device."""

    copies: tuple[Copy, ...] = ()

    @classmethod
    def of(cls, copies: Iterable[Copy], steps: int) -> CopyLine:
        """All of them at the place of the first."""
        here = tuple(copies)
        return cls(here[0].site, tuple(copy.row for copy in here), steps, copies=here)

    @property
    def bytes_per_step(self) -> float:
        """Bytes in each step, on average."""
        return self.pattern.mean((row.step, row.bytes) for row in self.rows)

    @property
    def amount(self) -> str:
        """The bytes of a step on which it copies, in words."""
        return amounts.size(sum(row.bytes for row in self.rows) / len(self.pattern.seen))

    @property
    def memory(self) -> str:
        """The host memory they come from."""
        return "pinned" if all(row.pinned for row in self.rows) else "pageable"

    @property
    def moves(self) -> tuple[tuple[Site, str, Span | None], ...]:
        """The ``.to(...)``, ``.cuda()``, ``.type(torch.cuda.FloatTensor)`` calls that block."""
        made = (
            (copy.site, copy.call, copy.span)
            for copy in self.copies
            if copy.row.blocking and copy.call in MOVES
        )
        return tuple(sorted(set(made), key=str))

    @property
    def waits_elsewhere(self) -> bool:
        """Some of it blocks in what is no such call: a copy into a slice, ``torch.tensor(...)``."""
        return any(copy.row.blocking and copy.call not in MOVES for copy in self.copies)

    @property
    def indexes(self) -> bool:
        """All that it copies are indices."""
        return all(row.index for row in self.rows)

    @property
    def written(self) -> bool:
        """All that it copies are numbers that stand in the source, as far as that shows."""
        return all(copy.written for copy in self.copies)

    @property
    def library(self) -> str:
        """The library function that copies on the line's behalf; empty if the line itself does."""
        names = {copy.via for copy in self.copies}
        return "" if "" in names else ", ".join(sorted(names))

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        number = amounts.digits(self.per_step)
        copies = "copy" if number == "1" else "copies"
        facts = [
            ("copied", f"{amounts.size(self.bytes_per_step)} per step in {number} {copies}"),
            ("from", f"{self.memory} memory"),
            ("seen on", str(self.pattern)),
        ]
        if self.library:
            facts.append(("copied inside", self.library))
        return tuple(facts)


@dataclass(frozen=True)
class Copies(Table):
    """All copies from host to device in the loud pass that the step made (not a loader)."""

    parts: ClassVar[tuple[str, ...]] = ("copies", "loaders", "batches", "steps")
    absent: ClassVar[Mapping[str, str]] = {
        "copies": "copies to a GPU: seen only in a rehearsal, or on CUDA from torch 2.9 on"
    }
    of_rehearsals: ClassVar[bool] = True

    device: Device = "cpu"
    steps: int = 0
    copies: tuple[Copy, ...] = ()
    loaders: Mapping[int, Loader] = field(default_factory=dict)

    @classmethod
    def build(cls, evidence: Evidence) -> Copies:
        """From the loud pass."""
        source, loaders = (
            evidence.get(Source),
            {each.number: each for each in evidence.get(Batches).loaders},
        )
        rows = evidence.get(Lines[CopyRow])
        copies = tuple(_copy(evidence, source, row) for row in rows if not row.lib)
        return cls(device_of(evidence), rows.steps, copies, loaders)

    @property
    def host_waits(self) -> str:
        """What a blocking copy means, said for the device that it was seen on."""
        return "the host waits" if device_named(self.device).timed else "on a GPU the host waits"

    def sites(
        self, *what: What, blocking: bool | None = None, pinned: bool | None = None
    ) -> Iterator[CopyLine]:
        """Lines that copy such tensors, by file and line."""
        wanted = (
            copy
            for copy in self.copies
            if copy.what in what
            and blocking in (None, copy.row.blocking)
            and pinned in (None, copy.row.pinned)
        )
        for here in by_line(wanted):
            yield CopyLine.of(here, self.steps)


def _copy(evidence: Evidence, source: Source, row: CopyRow) -> Copy:
    where, site = evidence.recording.site_row(row.at), row.site
    node = _node(source, site, where)
    made = _made_in_place(node)
    return Copy(
        row,
        _what(row, made),
        where.via or "",
        _is_written(row, made),
        name_of(node.func) if isinstance(node, ast.Call) else "",
        span_of(node) if node is not None and where.col is not None else None,
    )


def _what(row: CopyRow, made: ast.Call | None) -> What:
    if row.loader is not None:
        return "batch"
    if _is_written(row, made) or (_is_number_maker(made) and row.bytes <= FEW * row.n):
        return "constant"
    return "made on the host" if made is not None and name_of(made.func) in FACTORIES else "tensor"


def _is_written(row: CopyRow, made: ast.Call | None) -> bool:
    shown = (
        made is not None
        and _is_number_maker(made)
        and bool(made.args)
        and _is_numbers(made.args[0])
    )
    return row.constant or shown


def _is_numbers(node: ast.expr) -> bool:
    """Python numbers, by their look; other values, and what names compute, may be arrays."""
    if isinstance(node, ast.UnaryOp):
        return _is_numbers(node.operand)
    if isinstance(node, ast.BinOp):
        sides = (node.left, node.right)
        return any(isinstance(side, ast.List) for side in sides) or all(map(_is_numbers, sides))
    if isinstance(node, ast.IfExp):
        return _is_numbers(node.body) and _is_numbers(node.orelse)
    return isinstance(node, (ast.Constant, ast.List, ast.Tuple, ast.ListComp))


def _is_number_maker(made: ast.Call | None) -> bool:
    return made is not None and name_of(made.func) in CONSTANTS


def _made_in_place(node: ast.expr | None) -> ast.Call | None:
    """``torch.zeros(3)`` in ``torch.triu(torch.zeros(3)).to(device)``: it makes what it moves."""
    while (node := _before(node)) is not None:
        if name_of(node.func) in FACTORIES | CONSTANTS:
            return node
    return None


def _before(node: ast.expr | None) -> ast.Call | None:
    """The call whose result this one is a method of, or a function of that alone."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    inner = (
        node.args[0]
        if node.args and name_of(node.func) in OF_ONE and name_of(node.func.value) == "torch"
        else node.func.value
    )
    return inner if isinstance(inner, ast.Call) else None


def _node(source: Source, site: Site, where: SiteRow) -> ast.expr | None:
    span = span_at(where)
    if span is None:
        moving = (call for call in source.calls_at(site) if name_of(call.func) in ("to", "cuda"))
        return next(moving, None)  # type() may change nothing but the type
    return source.node_at(site.file, span)
