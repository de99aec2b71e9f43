"""Python loops: operators at one line, given one piece of a tensor after the other, one value to
compare with after the other, or one parameter after the other.
"""

from __future__ import annotations

import os
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import torch

from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.storages import Storages, storage_bytes, storage_key
from auditor.capture.probes.base import Context
from auditor.capture.probes.operator_stream import Call, Operator, OperatorProbe, Subscriber

from ..rows import PiecewiseRow
from .loop_turns import FOREACH, Made, ParametersNow, Turn, Turns, made_of

PIECES, MASKS, PARAMETERS, GROUPS = "pieces", "masks", "parameters", "groups"

TURNS = {PIECES: 10, MASKS: 8, PARAMETERS: 10, GROUPS: 10}
"""Pieces of one tensor from which it is a loop (``torch.profiler._pattern_matcher`` takes ten,
too), values that one is compared with, parameters, and groups of rows that are gathered.
"""

TAKES = frozenset({"index", "index_select"})
"""Operators that gather rows."""

REDUCES = frozenset({"sum", "mean", "amax", "amin", "prod"})
"""What index_add and scatter_reduce do for all groups at once."""

CUTS = frozenset({"select", "slice", "narrow", "unbind", "split", "split_with_sizes"})
"""Views that are pieces."""

WHOLE = ("sort", "topk", "median", "quantile", "unique", "linalg", "multinomial", "randperm", "svd")
"""Parts of the names of operators that no mask can make one of many: a loop over masks needs
them.
"""

PIECE = 1 << 16
"""Elements of a piece at most: a larger one keeps a processor busy longer than Python takes to hand
it over.
"""

BODY = 64
"""Operators after which a loop that has no further turn is over."""

HEAD = 16
"""Operators before the first turn that may belong to it."""

_LOADER = f"{os.sep}torch{os.sep}utils{os.sep}data{os.sep}"


class IndexingLoopsWatch(Subscriber):
    """Counts the operators of a step and follows those that are given pieces, values to compare
    with or parameters in turn, of tensors on devices of one ``kind`` if it is given.
    """

    def __init__(self, on_error: Callable[[Exception], None], *, kind: str = "") -> None:
        super().__init__(on_error)
        self._kind = kind
        self._turns: dict[tuple[int, str, str, int | None], Turns] = {}
        self._over: list[Turns] = []
        self._running: list[Turns] = []
        self._made: Storages[Made] = Storages()
        self._written: Storages[dict[tuple[int, torch.Size], Made]] = Storages()
        self._cut: Storages[dict[int, int]] = Storages()
        self._group: Storages[Turns] = Storages()
        self._parameters = ParametersNow()
        self._recent: deque[int | None] = deque(maxlen=HEAD)
        self._backward = 0
        self._whole = 0
        self._seen = 0

    def before(self, call: Call) -> Any:
        """What the results are made of; None of a view that cuts nothing. Of a backward it is only
        known that it ran.
        """
        if call.backward:
            self._backward = self._seen
            self._parameters.stale = True
            return None
        operator = call.operator
        if operator.view:
            return (None, call.own_site, None) if operator.name in CUTS else None
        self._seen += 1
        given = [plain(each) for each in call.given]
        at = call.site
        for each in self._running:
            if each.start <= each.last and at in each.heads:
                each.start, each.away = self._seen, each.heads[at]
        turn = self._turn_of(operator, call.args, given)
        turns = None
        if turn is not None and at is not None:
            turns = self._take(operator, turn, at)
        if operator.name in REDUCES and given:
            tensor = given[0]
            group = self._group.of(tensor)
            if group is not None:
                group.reduced += 1
                self._group.drop(tensor)
        self._recent.append(at)
        if operator.product or any(part in operator.name for part in WHOLE):
            self._whole = self._seen
        group = turns if turns is not None and turns.kind == GROUPS else None
        return self._made_of(operator, given), None, group

    def after(self, call: Call, noted: Any) -> None:
        """Lay that on."""
        made, cut, group = noted
        if made is None:
            for each in call.made if cut is not None else ():
                self._remember_cut(plain(each), cut)
            return
        for each in (*call.made, *call.written):
            self._lay(plain(each), made)
        if group is not None:
            self._group.lay(call.result, group)

    def _lay(self, tensor: torch.Tensor, made: Made) -> None:
        """A piece that is written leaves the others as they were."""
        if not _is_piece(tensor):
            self._made.lay(tensor, made)
            return
        known = self._written.of(tensor)
        if known is None:
            known = {}
            self._written.lay(tensor, known)
        known[int(tensor.storage_offset()), tensor.shape] = made

    def _how_made(self, tensor: torch.Tensor) -> Iterator[Made]:
        """What made the tensor, or the pieces of its storage that it may hold."""
        whole = self._made.of(tensor)
        if whole is not None:
            yield whole
        pieces = self._written.of(tensor) or {}
        own = pieces.get((int(tensor.storage_offset()), tensor.shape)) if pieces else None
        if own is not None:
            yield own
        elif any(shape != tensor.shape for _, shape in pieces):
            yield from pieces.values()

    def _remember_cut(self, piece: torch.Tensor, at: int) -> None:
        known = self._cut.of(piece)
        if known is None:
            known = {}
            self._cut.lay(piece, known)
        known[int(piece.storage_offset())] = at

    def _turn_of(
        self, operator: Operator, args: tuple[Any, ...], given: list[torch.Tensor]
    ) -> Turn | None:
        """What of the call differs from turn to turn, if it may be one of a loop's."""
        if operator.name in FOREACH and not operator.product:
            parameter = self._parameters.given_whole(given)
            if parameter is not None and self._concerns(given[0]):
                return Turn(PARAMETERS, 0, parameter)
        pieces = [each for each in given if self._concerns(each) and _is_piece(each)]
        if pieces:
            piece, offset = pieces[0], int(pieces[0].storage_offset())
            return Turn(
                PIECES,
                storage_key(piece),
                tuple(int(each.storage_offset()) for each in pieces),
                tuple(each.shape for each in given),
                piece.numel(),
                (self._cut.of(piece) or {}).get(offset),
            )
        if operator.name in TAKES:
            return self._group_of(given)
        if operator.name == "eq" and len(given) == 1 and self._concerns(given[0]):
            value = args[1] if len(args) > 1 else None
            if isinstance(value, (int, float)) and given[0].layout is torch.strided:
                return Turn(MASKS, storage_key(given[0]), value, (given[0].shape,))
        return None

    def _group_of(self, given: list[torch.Tensor]) -> Turn | None:
        """Rows of one tensor by one tensor of their numbers, which lies for itself."""
        if len(given) != 2 or not self._concerns(given[0]):
            return None
        if any(each.layout is not torch.strided or each.dim() == 0 for each in given):
            return None
        over, by = map(storage_key, given)
        elements = given[1].numel() * (given[0].numel() // max(1, given[0].shape[0]))
        return Turn(GROUPS, over, by, (given[0].shape,), elements)

    def _heads(self, at: int) -> dict[int, int]:
        """What ran before a first turn; nothing on a known line, which may be another loop's."""
        if at in self._recent:
            return {}
        before = reversed(self._recent)
        return {line: away for away, line in enumerate(before, 1) if line is not None}

    def _take(self, operator: Operator, turn: Turn, at: int) -> Turns:
        """The loop over that has another turn."""
        key = (at, operator.name, turn.kind, turn.over)
        turns = self._turns.get(key)
        if turns is not None and turns.n >= TURNS[turn.kind] and turn.value == turns.begins:
            self._over.append(turns)
            self._running = [each for each in self._running if each is not turns]
            turns = None
        if turns is None:
            turns = self._turns[key] = Turns(
                at,
                operator.name,
                turn.kind,
                turn.shapes,
                self._seen,
                self._seen,
                self._seen,
                self._heads(at),
                spoiled=_is_loader(),
                begins=turn.value,
            )
            self._running.append(turns)
        elif turns not in self._running:
            self._running.append(turns)
        if not (turns.start > turns.last and self._seen - turns.start == turns.away):
            turns.start = self._seen
        turns.spoiled |= (
            turns.chained
            or turns.shapes != turn.shapes
            or self._backward > turns.last
            or (turn.kind in (MASKS, GROUPS) and self._whole > turns.last)
        )
        turns.last = self._seen
        turns.seen.add(turn.value)
        turns.elements = max(turns.elements, turn.elements)
        turns.cut = turn.cut
        return turns

    def _concerns(self, tensor: torch.Tensor) -> bool:
        return self._kind in ("", tensor.device.type)

    def _made_of(self, operator: Operator, given: list[torch.Tensor]) -> Made:
        known = [made for each in given for made in self._how_made(each)]
        self._running = [turns for turns in self._running if self._seen - turns.last <= BODY]
        return made_of(operator.name, self._seen, known, self._running)

    def take(self) -> tuple[int, list[Turns]]:
        """How many operators the step ran, and its loops; begins anew."""
        seen, found = (
            self._seen,
            [turns for turns in (*self._over, *self._turns.values()) if not turns.spoiled],
        )
        self._seen, self._backward, self._whole, self._running = 0, 0, 0, []
        self._turns.clear()
        self._over.clear()
        self._recent.clear()
        self._made.clear()
        self._written.clear()
        self._cut.clear()
        self._group.clear()
        self._parameters.stale = True
        return seen, [
            turns
            for turns in found
            if turns.n >= TURNS[turns.kind]
            and turns.elements <= PIECE
            and (turns.kind != GROUPS or turns.reduced >= turns.n)
        ]

    def look_for_parameters(self) -> None:
        """Which parameters there are now."""
        self._parameters.look()


def _is_piece(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return False
    return tensor.nbytes < (storage_bytes(tensor) or 0)


def _is_loader() -> bool:
    """A data loader is fetching: it asks for samples one by one, whatever the dataset does."""
    frame = sys._getframe(1)
    while frame is not None:
        if _LOADER in frame.f_code.co_filename:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class IndexingLoopsProbe(OperatorProbe):
    """Writes ``piecewise``. Only a tensor's shape and its place in the storage are read."""

    name = "piecewise"
    parts = ("piecewise",)
    passes = frozenset({"numbers"})
    in_rehearsals = True
    unseen = "loops over tensors were not followed through some operators"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._watching: IndexingLoopsWatch | None = None

    def watch(self) -> None:
        """Follow what is given pieces."""
        self.context.writer.touch("piecewise")
        device = self.context.device  # a loop over the host's memory launches nothing there
        kind = device.kind if device.native else ""
        self._watching = IndexingLoopsWatch(self.fail, kind=kind)
        self.enter(self._watching)

    def step_begin(self) -> None:
        """What ran between the steps is not of this one."""
        if self._watching is not None:
            self._watching.take()
            self._watching.look_for_parameters()

    def step_end(self) -> None:
        """Write the step's loops: of the operators of one loop the first."""
        if self._watching is None:
            return
        seen, loops = self._watching.take()
        end = 0
        for turns in sorted(loops, key=lambda turns: (turns.first, -turns.last)):
            between = turns.last - turns.first + 1
            if turns.first > end and between <= BODY * turns.n:
                row = PiecewiseRow(
                    at=turns.at,
                    op=turns.op,
                    n=turns.n,
                    operators=between,
                    all=seen,
                    elements=turns.elements,
                    kind=turns.kind,
                    cut=turns.cut,
                )
                self.context.add(row)
                places = (turns.at, turns.cut)
                self.context.loops.add(tuple(each for each in places if each is not None))
                end = turns.last

    def stop(self) -> None:
        super().stop()
        self._watching = None
