"""Copies from host to device, as torch's code makes them: line, bytes, and whether the host waits."""

from __future__ import annotations

import ast
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FrameType
from typing import Any

import torch

from auditor.capture.instruments.storages import storages
from auditor.capture.instruments.torch_private.dispatch import destroy
from auditor.capture.instruments.torch_private.tensors import base_of, version_of
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.sync.reads_log import Position, ReadFrames, ReadLog, nodes_of, position
from auditor.capture.probes.tally import Counted
from auditor.recordings.schema.sync import CopyRow

PART = "copies"
LOADER_MARK = "_auditor_loader"
"""Attribute of a storage: the number of the loader whose batch it belongs to."""


class CopyLog:
    """Counts copies that the user's step makes."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._copies = Counted(context, CopyRow)
        self._batches: list[tuple[CopyRow, torch.Tensor, int]] = []
        """Those of loaders, each with its version when it was copied; held until the step ends."""

    def note(
        self, place: ReadFrames, nbytes: int, *, subject: torch.Tensor | None, **facts: bool
    ) -> None:
        """Count a copy at ``place``; ``facts``: pinned, blocking, constant and index."""
        at = self._context.frames.number(place.frame, place.via)
        lib = "loader" if place.loader else ""
        storage = None if subject is None else next(iter(storages(subject)), None)
        loader = getattr(storage, LOADER_MARK, None)
        row = self._copies.of(at=at, lib=lib, loader=loader, rewritten=False, bytes=0, **facts)
        row.n += 1
        row.bytes += nbytes
        if subject is not None and loader is not None:
            self._batches.append((row, subject, version_of(subject)))

    def write(self) -> None:
        """Write what the step copied, and begin again."""
        for row, batch, version in self._batches:
            row.rewritten = row.rewritten or version_of(batch) != version
        self._batches.clear()
        self._copies.write()


def mark_batch(tensor: torch.Tensor, loader: int) -> None:
    """Say which loader a tensor is from; views of the batch share its storage, and so the mark."""
    for storage in storages(tensor):
        setattr(storage, LOADER_MARK, loader)


INDICES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool)
"""What a tensor that indexes another holds."""


class _Inside(threading.local):
    """True while a copy that counts runs in this thread: one that converts copies again inside."""

    copying = False


class DeviceCopiesProbe(Probe):
    """Writes ``copies`` of a run on CUDA; those of a rehearsal are the shadow's.

    ``aten::copy_`` is overridden at the dispatch key of CUDA: whatever Python calls (``to``,
    ``cuda``, ``torch.tensor``, an index of the host's) comes by there. It needs
    ``torch.library.get_kernel`` (torch 2.9); without it no row is written and the part is missing.
    Bytes are those that cross: a conversion runs on the host first where the host waits, else on
    the device (aten/src/ATen/native/cuda/Copy.cu).
    """

    name = "copies"
    parts = (PART,)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._inside = _Inside()
        self._log: CopyLog | None = None
        self._places: ReadLog | None = None

    def start(self) -> None:
        self.stop()
        device = self.context.device
        get_kernel = getattr(torch.library, "get_kernel", None)
        if get_kernel is None or not (device.native and device.kind == "cuda"):
            return
        self._log, self._places = CopyLog(self.context), ReadLog(self.context)
        try:
            self._override(get_kernel("aten::copy_", "CUDA").call_boxed)
        except BaseException:
            self.stop()
            raise
        super().start()

    def _override(self, kernel: Callable[..., Any]) -> None:
        inside, context = self._inside, self.context

        def copy_(
            keyset: Any, target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False
        ) -> Any:
            if inside.copying or not context.in_step or not source.is_cpu or not target.is_cuda:
                return kernel(keyset, target, source, non_blocking)
            inside.copying = True
            try:
                self._note(target, source, non_blocking)
                return kernel(keyset, target, source, non_blocking)
            finally:
                inside.copying = False

        library = torch.library.Library("aten", "IMPL")
        self._patches.on_undo(lambda: destroy(library))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns that a kernel is overridden: so it is
            library.impl("copy_", copy_, "CUDA", with_keyset=True, allow_override=True)

    def _note(self, target: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> None:
        try:
            self._count(target, source, non_blocking)
        except Exception as error:  # the user's step continues despite our error
            self.missed(error)

    def _count(self, target: torch.Tensor, source: torch.Tensor, non_blocking: bool) -> None:
        log, places = self._log, self._places
        place = None if log is None or places is None else places.place(sys._getframe(2))
        if log is None or place is None or source.numel() == 0:
            return
        made = expression(place.frame)
        index = _indexes(made, target, source)
        # else a library copies, and what its caller says is of other things
        own = place.via is None
        kept = source if non_blocking else target
        log.note(
            place,
            target.numel() * kept.element_size(),
            pinned=source.is_pinned(),
            blocking=not non_blocking,
            constant=own and made is not None and of_numbers(made, place.frame, index=index),
            index=index,
            subject=source,
        )

    def step_begin(self) -> None:
        if self._places is not None:
            self._places.begin()

    def step_end(self) -> None:
        if self._log is not None:
            self._log.write()

    def stop(self) -> None:
        """Put the kernel back; rows of a step that did not end are written. May be called twice."""
        try:
            super().stop()
        finally:
            log, self._log, self._places = self._log, None, None
            if log is not None:
                log.write()


def _indexes(made: Expression | None, target: torch.Tensor, source: torch.Tensor) -> bool:
    """True if what is copied is in brackets: then it goes to memory of its own."""
    return (
        made is not None
        and made.indexes
        and source.dim() > 0
        and source.dtype in INDICES
        and base_of(target) is None
    )


# -- copies source ---------------------------------------------------------------------------------
# What does the source say where a copy to the device is made: numbers written in Python, or an
# index?


MAKERS = frozenset({"tensor", "as_tensor", "asarray", "new_tensor", "scalar_tensor"})
"""Functions and methods of torch that make a tensor of what they are given, on any device."""

_COMPUTED = (ast.BinOp, ast.UnaryOp)
_NUMBERS = (int, float, complex)


@dataclass(frozen=True)
class Expression:
    """The call or the subscript that copies, and what is assigned to the subscript."""

    node: ast.Call | ast.Subscript
    assigned: ast.expr | None = None

    @property
    def indexes(self) -> bool:
        """Tensors may stand in its brackets."""
        return isinstance(self.node, ast.Subscript) and not (
            isinstance(self.node.slice, ast.Constant) and self.node.slice.value is Ellipsis
        )


def expression(frame: FrameType) -> Expression | None:
    """What a frame is at, if that is a call or a subscript."""
    return _expression(frame.f_code, frame.f_lasti, frame.f_lineno)


def of_numbers(found: Expression, frame: FrameType, *, index: bool) -> bool:
    """True if numbers of Python's are copied there: ``torch.tensor([1.0, 2.0], device=device)``,
    ``x[0] = 1.0``, and as an ``index`` ``x[[0, 2]]``; also where a variable of the frame holds
    them.
    """
    if isinstance(found.node, ast.Call):
        data = _data_of(found.node)
        return data is not None and _is(data, frame, (*_NUMBERS, list, tuple))
    if not index:
        return found.assigned is not None and _is(found.assigned, frame, _NUMBERS)
    parts = found.node.slice
    listed = parts.elts if isinstance(parts, ast.Tuple) else [parts]
    return any(_is(part, frame, (list, range)) for part in listed)


def _data_of(call: ast.Call) -> ast.expr | None:
    function = call.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in MAKERS:
        return None
    named = (word.value for word in call.keywords if word.arg in ("data", "obj"))
    return call.args[0] if call.args else next(named, None)


def _is(node: ast.expr, frame: FrameType, kinds: tuple[type, ...]) -> bool:
    """Whether an expression is of one of these kinds: as written, or as its variable says now."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, kinds)
    if isinstance(node, (ast.List, ast.ListComp)):
        return list in kinds
    if isinstance(node, ast.Tuple):
        return tuple in kinds
    if isinstance(node, ast.IfExp):
        return _is(node.body, frame, kinds) and _is(node.orelse, frame, kinds)
    if isinstance(node, _COMPUTED):
        parts = [node.operand] if isinstance(node, ast.UnaryOp) else [node.left, node.right]
        return all(_is(part, frame, kinds) for part in parts)
    if not isinstance(node, ast.Name):
        return False
    return isinstance(frame.f_locals.get(node.id, frame.f_globals.get(node.id)), kinds)


@lru_cache(maxsize=4096)
def _expression(code: CodeType, lasti: int, line: int) -> Expression | None:
    known = _expressions(code.co_filename)
    at = position(code, lasti)
    if at is not None:
        return known.get(at)
    here = [each for (first, last, _, _), each in known.items() if first <= line <= last]
    return next(filter(_plain, here), None)


def _plain(found: Expression) -> bool:
    return isinstance(found.node, ast.Subscript) or _data_of(found.node) is not None


@lru_cache(maxsize=256)
def _expressions(file: str) -> dict[Position, Expression]:
    found: dict[Position, Expression] = {}
    for node in nodes_of(file):
        if isinstance(node, (ast.Call, ast.Subscript)):
            found.setdefault(_place(node), Expression(node))
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript):
                    found[_place(target)] = Expression(target, node.value)
    return found


def _place(node: ast.expr) -> Position:
    return (
        node.lineno,
        node.end_lineno or node.lineno,
        node.col_offset,
        node.end_col_offset or node.col_offset,
    )
