"""Python loops that go over a tensor piece by piece: operators at one line, given one piece after
the other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from auditor.capture.instruments.dispatch_modes import OperatorMode
from auditor.capture.instruments.torch_private.autograd import current_node
from auditor.capture.instruments.torch_private.tensors import key_of
from auditor.capture.probes.base import Context
from auditor.capture.probes.numerics.op_ranges_log import Trails
from auditor.capture.probes.numerics.op_ranges_mode import Operator, plain
from auditor.capture.probes.operator_probe import OperatorProbe
from auditor.capture.probes.sync.origin_modes import tensors
from auditor.recordings.schema import PiecewiseRow

TURNS = 10
"""Pieces of one tensor from which it is a loop (``torch.profiler._pattern_matcher`` takes ten,
too).
"""

PIECE = 1 << 16
"""Elements of a piece at most: a larger one keeps a processor busy longer than Python takes to hand
it over.
"""

BODY = 64
"""Operators after which a loop that has no further turn is over."""

COLLECTING = frozenset(
    {
        "add",
        "sub",
        "copy",
        "cat",
        "stack",
        "sum",
        "clone",
        "detach",
        "to_copy",
        "fill",
        "index_put",
        "foreach_add",
        "mean",
    }
)
"""Operators that gather what turns gave, without a turn needing the one before: sums and lists."""

_LOADER = f"{os.sep}torch{os.sep}utils{os.sep}data{os.sep}"


@dataclass(eq=False)
class Turns:
    """One operator at one line in one step, and the pieces of one tensor that it was given."""

    at: int
    op: str
    shapes: tuple[Any, ...]
    first: int
    last: int
    """The first turn and the latest one: numbers of operators of the step."""
    spoiled: bool = False
    """Sizes differ from turn to turn, a turn needs the one before, a backward runs in it, or it is
    a loader that loops.
    """
    chained: bool = False
    """Something was computed from an earlier turn: if another turn follows, it may be needed
    there.
    """
    offsets: set[int] = field(default_factory=set)
    elements: int = 0

    @property
    def n(self) -> int:
        """Turns so far."""
        return len(self.offsets)


@dataclass(frozen=True)
class Made:
    """Which operator of the step made a tensor, and the loops of which an earlier turn went into
    it.
    """

    number: int
    carried: tuple[Turns, ...] = ()


class IndexingLoopsMode(OperatorMode):
    """Counts the operators of a step and follows those that are given pieces, of tensors on devices
    of one ``kind`` if it is given.
    """

    def __init__(
        self,
        here: Callable[[], int | None],
        on_error: Callable[[Exception], None],
        *,
        kind: str = "",
    ) -> None:
        super().__init__(on_error)
        self._here = here
        self._kind = kind
        self._operators: dict[Any, Operator] = {}
        self._turns: dict[tuple[int, str, int], Turns] = {}
        self._running: list[Turns] = []
        self._made: Trails[Made] = Trails()
        self._backward = 0
        self._seen = 0

    def watches(self, func: Any) -> bool:
        """Not in a backward, of which it is only known that it ran."""
        if not super().watches(func):
            return False
        if current_node() is not None:
            self._backward = self._seen
            return False
        return True

    def before(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What the results are made of; None of a view."""
        operator = self._operators.get(func)
        if operator is None:
            operator = self._operators[func] = Operator(func)
        if operator.view:
            return None
        self._seen += 1
        given = [plain(each) for each in tensors((*args, *kwargs.values()))]
        self._take_turn(operator, given)
        return list(operator.written(args)), self._made_of(operator, given)

    def after(self, call: Any, args: tuple[Any, ...], result: Any) -> None:
        """Lay that on."""
        written, made = call
        for each in (*tensors((result,)), *written):
            self._made.lay(plain(each), made)

    def _take_turn(self, operator: Operator, given: list[torch.Tensor]) -> None:
        """If an input is a piece of something, the loop over that has another turn."""
        piece = next((each for each in given if self._concerns(each) and _is_piece(each)), None)
        at = self._here() if piece is not None else None
        if piece is None or at is None:
            return
        key, shapes = (
            (at, operator.name, int(key_of(piece.untyped_storage()))),
            tuple(each.shape for each in given),
        )
        turns = self._turns.get(key)
        if turns is None:
            turns = self._turns[key] = Turns(
                at, operator.name, shapes, self._seen, self._seen, spoiled=_is_loader()
            )
        elif turns.n == 1 and turns not in self._running:
            self._running.append(turns)
        turns.spoiled |= turns.chained or turns.shapes != shapes or self._backward > turns.last
        turns.last = self._seen
        turns.offsets.add(int(piece.storage_offset()))
        turns.elements = max(turns.elements, piece.numel())

    def _concerns(self, tensor: torch.Tensor) -> bool:
        return self._kind in ("", tensor.device.type)

    def _made_of(self, operator: Operator, given: list[torch.Tensor]) -> Made:
        known = [made for each in given if (made := self._made.of(each)) is not None]
        self._running = [turns for turns in self._running if self._seen - turns.last <= BODY]
        carried = tuple(
            turns for turns in self._running if any(_before(made, turns) for made in known)
        )
        for turns in carried:
            turns.chained |= operator.name not in COLLECTING
        return Made(self._seen, carried)

    def take(self) -> tuple[int, list[Turns]]:
        """How many operators the step ran, and its loops; begins anew."""
        seen, found = (
            self._seen,
            [turns for turns in self._turns.values() if turns.n >= TURNS and not turns.spoiled],
        )
        self._seen, self._backward, self._running = 0, 0, []
        self._turns.clear()
        self._made.clear()
        return seen, [turns for turns in found if turns.elements <= PIECE]


def _before(made: Made, turns: Turns) -> bool:
    """Something of an earlier turn went into it."""
    return turns in made.carried or turns.first <= made.number < turns.last


def _is_piece(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return False
    try:
        return bool(tensor.numel() * tensor.element_size() < tensor.untyped_storage().nbytes())
    except (NotImplementedError, RuntimeError):  # wrapped tensors own no plain storage
        return False


def _is_loader() -> bool:
    """A data loader is fetching: its samples are asked for one by one, whatever the dataset
    does.
    """
    frame = sys._getframe(1)
    while frame is not None:
        if _LOADER in frame.f_code.co_filename:
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


class IndexingLoopsProbe(OperatorProbe):
    """Writes ``piecewise``. Nothing of a tensor is read but its shape and where it lies in its
    storage.
    """

    name = "piecewise"
    parts = ("piecewise",)
    passes = frozenset({"numbers"})
    after = ("numerics",)  # which computes ranges: what is entered after it does not see that
    in_rehearsals = True
    unseen = "loops over tensors were not followed through some operators"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._watching: IndexingLoopsMode | None = None

    def watch(self) -> None:
        """Follow what is given pieces."""
        self.context.writer.touch("piecewise")
        device = self.context.device  # a loop over the host's memory launches nothing there
        kind = device.kind if device.native else ""
        self._watching = IndexingLoopsMode(self.here, self.fail, kind=kind)
        self.enter(self._watching)

    def step_begin(self) -> None:
        """What ran between the steps is not of this one."""
        if self._watching is not None:
            self._watching.take()

    def step_end(self) -> None:
        """Write the step's loops: of the operators of one loop the first."""
        if self._watching is None:
            return
        seen, loops = self._watching.take()
        end = 0
        for turns in sorted(loops, key=lambda turns: (turns.first, -turns.last)):
            if turns.first > end:
                between = turns.last - turns.first + 1
                row = PiecewiseRow(
                    at=turns.at,
                    op=turns.op,
                    n=turns.n,
                    operators=between,
                    all=seen,
                    elements=turns.elements,
                )
                self.context.add(row)
                end = turns.last

    def stop(self) -> None:
        """Leave the mode."""
        self._patches.undo()
        self._watching = None
