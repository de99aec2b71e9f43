"""Python loops: operators at one line, given one piece of a tensor after the other, one value to
compare with after the other, or one parameter after the other.
"""

import os
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from auditor.capture.instruments.live_objects import alive, live_instances, one_look
from auditor.capture.instruments.module_stack import live_modules
from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.storages import Storages, storage_bytes, storage_key
from auditor.capture.instruments.torch_private.training import own_parameters
from auditor.capture.instruments.user_frames import outwards
from auditor.capture.probes.base import Context
from auditor.capture.probes.operator_stream import Call, Operator, OperatorProbe, Subscriber
from auditor.capture.probes.optim.optimizer_hooks import live_optimizers, tensors_of

from ..rows import PiecewiseRow

GATHERS = frozenset({"copy", "cat", "stack", "clone", "detach", "to_copy", "fill", "index_put"})
"""Operators that lay what turns gave side by side."""

SUM, LARGEST, SMALLEST, ANY, ALL = "sum", "largest", "smallest", "any", "all"

FOLDS = {
    "add": SUM,
    "sub": SUM,
    "sum": SUM,
    "mean": SUM,
    "foreach_add": SUM,
    "maximum": LARGEST,
    "fmax": LARGEST,
    "minimum": SMALLEST,
    "fmin": SMALLEST,
    "logical_or": ANY,
    "bitwise_or": ANY,
    "logical_and": ALL,
    "bitwise_and": ALL,
}
"""Operators that fold what turns gave into one value, in any order. Two sorts of them after each
other are no fold: a running maximum to which each turn adds needs the turn before.
"""

READS = frozenset({"local_scalar_dense", "is_nonzero", "equal", "nonzero"})
"""Operators by which Python may decide about the next turn."""


@dataclass(eq=False)
class Turns:
    """One operator at one line in one step, and what it was given in turn."""

    at: int
    op: str
    kind: str
    shapes: tuple[Any, ...]
    first: int
    last: int
    """The first turn and the latest one: numbers of operators of the step."""
    spoiled: bool = False
    """Sizes differ by turn, a turn needs the one before or a backward, or a loader loops."""
    chained: bool = False
    """What an earlier turn gave was read, or computed with twice: a further turn needs it."""
    begins: Any = None
    """Inputs of the first turn: with them the loop starts again."""
    seen: set[Any] = field(default_factory=set)
    """Which pieces, values or parameters."""
    elements: int = 0
    cut: int | None = None
    """The user's own line that cut the latest piece."""

    @property
    def n(self) -> int:
        """Turns so far."""
        return len(self.seen)


@dataclass(frozen=True)
class Turn:
    """What an operator is given that differs from turn to turn."""

    kind: str
    over: int | None
    """What the loop goes over: the storage of a tensor; 0 for all parameters."""
    value: Any
    shapes: tuple[Any, ...] = ()
    elements: int = 0
    cut: int | None = None


@dataclass(frozen=True)
class Carried:
    """How earlier turns of a loop went into a tensor: by which folds, and which operator computed
    with what they had come to (the first one; None while they are only gathered).
    """

    folds: frozenset[str] = frozenset()
    used: int | None = None


@dataclass(frozen=True)
class Made:
    """Which operator of the step made a tensor, and loops whose earlier turns went into it."""

    number: int
    carried: Mapping[Turns, Carried] = field(default_factory=dict)


def made_of(name: str, number: int, given: Iterable[Made], running: Iterable[Turns]) -> Made:
    """What operator ``number`` of the step makes of what it is given.

    A turn needs the one before where something is computed with what earlier turns came to, and
    with that again in a later turn. Computed with once it may be what an outer loop, or the code
    behind the loop, wanted of it.
    """
    known, carried = list(given), {}
    for turns in running:
        before = [each for each in (_carried(made, turns) for made in known) if each is not None]
        if before:
            carried[turns] = _joined(name, number, before, turns)
    return Made(number, carried)


def _carried(made: Made, turns: Turns) -> Carried | None:
    if turns in made.carried:
        return made.carried[turns]
    return Carried() if turns.first <= made.number < turns.last else None


def _joined(name: str, number: int, before: list[Carried], turns: Turns) -> Carried:
    fold = FOLDS.get(name)
    folds = frozenset[str]().union(*(each.folds for each in before), [fold] if fold else [])
    used = min((each.used for each in before if each.used is not None), default=None)
    if name in GATHERS or (fold is not None and len(folds) == 1):
        return Carried(folds, used)
    if name in READS or (used is not None and used < turns.last):
        turns.chained = True
    return Carried(folds, number if used is None else used)


# -- loop parameters -------------------------------------------------------------------------------
# Which tensors that an operator is given are whole parameters or their gradients.


FOREACH = frozenset(
    """
    abs add addcdiv addcmul clamp clamp_max clamp_min copy div exp lerp linalg_vector_norm maximum
    minimum mul neg norm pow reciprocal sign sqrt sub zero
    """.split()
)
"""Operators that torch has for a list of tensors, too: ``torch._foreach_add_`` and its like."""


class ParametersNow:
    """Parameters of modules and optimizers, where there are none all leaves that want a gradient,
    held weakly, and the storages that they and their gradients have now.
    """

    def __init__(self) -> None:
        self.stale = True
        """A backward ran since: gradients may be others."""
        self.lasting = False
        """An optimizer holds them: they are those of all steps."""
        self._held: list[Any] = []
        self._where: dict[tuple[int, int], tuple[int, int]] = {}

    def look(self) -> None:
        """Ask for all parameters that there are. Slow: asks all live objects."""
        with one_look():
            optimizers = live_optimizers()
            found = [
                each
                for module in live_modules()
                for each in own_parameters(module).values()
                if isinstance(each, torch.Tensor)
            ]
            for optimizer in optimizers:
                found.extend(tensors_of(optimizer))
            if not optimizers:  # what is updated by hand need be in no module either
                found.extend(each for each in live_instances(torch.Tensor) if _trained(each))
        self.lasting = bool(optimizers)
        each_once = {id(each): each for each in found}.values()
        self._held = [weak for each in each_once if (weak := _weakly(each)) is not None]
        self.stale = True

    def given_whole(self, given: list[torch.Tensor]) -> tuple[int, int] | None:
        """Which parameter an operator works on, one element for one: all that it is given has the
        parameter's shape or one element. None if it works on none so.
        """
        if self.stale:
            self._locate()
        large = [each for each in given if each.numel() != 1]
        if any(each.shape != large[0].shape for each in large[1:]):
            return None
        for each in large or given:
            place = _place_of(each)
            known = None if place is None else self._where.get(place)
            if known is not None and known[1] == each.numel():
                return place
        return None

    def _locate(self) -> None:
        self.stale = False
        self._where.clear()
        for number, weak in enumerate(self._held):
            parameter = alive(weak)
            for each in () if parameter is None else (parameter, parameter.grad):
                place = None if each is None else _place_of(plain(each))
                if place is not None:
                    self._where[place] = number, each.numel()


def _trained(tensor: torch.Tensor) -> bool:
    return tensor.requires_grad and tensor.is_leaf and not hasattr(tensor, "fake_mode")


def _weakly(tensor: torch.Tensor) -> Any:
    try:
        return weakref.ref(tensor)
    except TypeError:
        return None


def _place_of(tensor: torch.Tensor) -> tuple[int, int] | None:
    key = storage_key(tensor)
    return None if key is None else (key, int(tensor.storage_offset()))


PIECES, MASKS, PARAMETERS = "pieces", "masks", "parameters"

TURNS = {PIECES: 10, MASKS: 8, PARAMETERS: 10}
"""Pieces that make a loop (``_pattern_matcher`` takes ten), compared values, and parameters."""

CUTS = frozenset({"select", "slice", "narrow", "unbind", "split", "split_with_sizes"})
"""Views that are pieces."""

WHOLE = ("sort", "topk", "median", "quantile", "unique", "linalg", "multinomial", "randperm", "svd")
"""Parts of names of operators that no mask makes one of many: a loop over masks needs them."""

PIECE = 1 << 16
"""Elements of a piece at most: a larger one takes longer than Python needs to hand it over."""

BODY = 64
"""Operators after which a loop that has no further turn is over."""

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
        self._parameters = ParametersNow()
        self._backward = 0
        self._whole = 0
        self._seen = 0

    def before(self, call: Call) -> Any:
        """What results are made of; None of a view that cuts nothing, or a backward."""
        if call.backward:
            self._backward = self._seen
            self._parameters.stale = True
            return None
        operator = call.operator
        if operator.view:
            return (None, call.own_site) if operator.name in CUTS else None
        self._seen += 1
        given = [plain(each) for each in call.given]
        at = call.site
        turn = self._turn_of(operator, call.args, given)
        if turn is not None and at is not None:
            self._take(operator, turn, at)
        if operator.product or any(part in operator.name for part in WHOLE):
            self._whole = self._seen
        return self._made_of(operator, given), None

    def after(self, call: Call, noted: Any) -> None:
        """Lay that on."""
        made, cut = noted
        if made is None:
            for each in call.made if cut is not None else ():
                self._remember_cut(plain(each), cut)
            return
        for each in (*call.made, *call.written):
            self._lay(plain(each), made)

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
        if operator.name == "eq" and len(given) == 1 and self._concerns(given[0]):
            value = args[1] if len(args) > 1 else None
            if isinstance(value, (int, float)) and given[0].layout is torch.strided:
                return Turn(MASKS, storage_key(given[0]), value, (given[0].shape,))
        return None

    def _take(self, operator: Operator, turn: Turn, at: int) -> None:
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
                spoiled=_is_loader(),
                begins=turn.value,
            )
            self._running.append(turns)
        elif turns not in self._running:
            self._running.append(turns)
        turns.spoiled |= (
            turns.chained
            or turns.shapes != turn.shapes
            or self._backward > turns.last
            or (turn.kind == MASKS and self._whole > turns.last)
        )
        turns.last = self._seen
        turns.seen.add(turn.value)
        turns.elements = max(turns.elements, turn.elements)
        turns.cut = turn.cut

    def _concerns(self, tensor: torch.Tensor) -> bool:
        return self._kind in ("", tensor.device.type)

    def _made_of(self, operator: Operator, given: list[torch.Tensor]) -> Made:
        known = [made for each in given for made in self._how_made(each)]
        self._running = [turns for turns in self._running if self._seen - turns.last <= BODY]
        return made_of(operator.name, self._seen, known, self._running)

    def take(self) -> tuple[int, list[Turns]]:
        """Return the number of operators of the step and its loops, and reset both."""
        seen, found = (
            self._seen,
            [turns for turns in (*self._over, *self._turns.values()) if not turns.spoiled],
        )
        self._seen, self._backward, self._whole, self._running = 0, 0, 0, []
        self._turns.clear()
        self._over.clear()
        self._made.clear()
        self._written.clear()
        self._cut.clear()
        self._parameters.stale = True
        return seen, [
            turns for turns in found if turns.n >= TURNS[turns.kind] and turns.elements <= PIECE
        ]

    def look_for_parameters(self) -> None:
        """Which parameters there are now."""
        if not self._parameters.lasting:
            self._parameters.look()


def _is_piece(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return False
    return tensor.nbytes < (storage_bytes(tensor) or 0)


def _is_loader() -> bool:
    """A data loader is fetching: it asks for samples one by one, whatever the dataset does."""
    return any(_LOADER in each.f_code.co_filename for each in outwards(sys._getframe(1)))


class IndexingLoopsProbe(OperatorProbe):
    """Writes ``piecewise``. Only a tensor's shape and its place in the storage are read."""

    name = "piecewise"
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
        self._watching = IndexingLoopsWatch(self.missed, kind=kind)
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
                end = turns.last

    def stop(self) -> None:
        super().stop()
        self._watching = None
