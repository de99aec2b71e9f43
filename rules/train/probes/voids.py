"""Positions that one part of a loss ignores, and that another part trains as a class."""

from collections.abc import Iterator

import torch

from . import paddings
from .bootstraps import FORMING
from .dependence import Dependence
from .function_tape import FunctionTape, TapedCall
from .second_gradient import (
    Again,
    Change,
    NotRepeated,
    Tail,
    nothing_left_behind,
    recomputed,
    same_as,
)

FORMS_OF_TARGETS = frozenset({"one_hot", "clamp", "clip", "where", "masked_fill", "eq"})
"""Functions that make something to compare with of classes."""

SOME = 4096
"""Positions whose values are compared."""

READERS = 8
"""Calls that are asked, at most."""


def makes_targets(name: str, given: tuple[torch.Tensor, ...]) -> bool:
    """Whether a call makes something to compare with of classes."""
    return name in FORMS_OF_TARGETS and any(each.dtype == torch.int64 for each in given)


def trained_voids(tape: FunctionTape, tail: Tail) -> Iterator[Dependence]:
    """The call that made of a loss's targets what another part of the loss compares the same output
    with: there positions that the loss ignores look like others, and get a gradient as these do. ``n``
    is how many do, ``of`` how many are ignored.
    """
    for loss in tail.calls:
        given, target = loss.argument(0, "input"), loss.argument(1, "target")
        if loss.name not in paddings.NAMES or target.is_floating_point() or given.dim() < 2:
            continue
        made = tape.maker_before(loss, given)
        if made is not None and made.name == "log_softmax":
            given = made.parents[0][0]
        void = target == paddings.ignored_by(loss)
        if given.dim() != target.dim() + 1 or not bool(void.any()) or bool(void.all()):
            continue
        readers = list(_readers(tape, tail, loss, target))[:READERS]
        whole = _gradient(tail, given) if readers else None
        if whole is None or not bool((whole != 0).any(1)[void].any()):
            continue
        for reader, made in readers:
            without = _gradient(tail, given, reader)
            moved = None if without is None else (whole != without).any(1)
            if moved is None or moved.shape != void.shape:
                continue
            n, others = int(moved[void].sum()), int(moved[~void].sum())
            if n * 2 > int(void.sum()) and others * 2 > int((~void).sum()):
                yield Dependence("void", made, n, int(void.sum()))
                return


def _readers(
    tape: FunctionTape, tail: Tail, loss: TapedCall, target: torch.Tensor
) -> Iterator[tuple[TapedCall, TapedCall]]:
    """Calls that are given targets alike at what is ignored and elsewhere; and its first call."""
    void, root = target == paddings.ignored_by(loss), tape.origin(loss, target, FORMING)[0]
    first: dict[int, TapedCall] = {}
    for call in tape.calls.values():
        before = [first.get(number or 0) for each, number in call.parents]
        if not call.gives_gradient and (
            any(before) or any(each is root for each, _ in call.parents)
        ):
            known = (each for each in before if each and each.at is not None)
            first[call.number] = next((each for each in known if each.name not in FORMING), call)
    for call in tail.calls:
        for each, number in call.parents if call is not loss else ():
            made = first.get(number or 0)
            if made is None or made.at is None or each.requires_grad:
                continue
            values = _by_position(each, target)
            if values is not None and _looks_alike(values[void.flatten()], values[~void.flatten()]):
                yield call, made


def _by_position(made: torch.Tensor, target: torch.Tensor) -> torch.Tensor | None:
    """(positions, values of each) of what was made of the targets; None if they are not told apart."""
    if made.numel() == target.numel():
        return made.reshape(-1, 1)
    if made.shape[: target.dim()] == target.shape:
        return made.flatten(0, target.dim() - 1)
    if made.dim() == target.dim() + 1 and made.movedim(1, -1).shape[:-1] == target.shape:
        return made.movedim(1, -1).flatten(0, -2)
    if made.dim() == 2 and len(made) == target.numel():
        return made
    return None


def _looks_alike(void: torch.Tensor, others: torch.Tensor) -> bool:
    """Each value at what is ignored is one of the others."""
    known = others[:: max(1, len(others) // SOME)].unique(dim=0)
    asked = void[:: max(1, len(void) // SOME)].unique(dim=0)
    both = torch.cat([known, asked]).unique(dim=0)
    return len(both) == len(known)


def _cut(again: Again) -> torch.Tensor:
    made: torch.Tensor = again.function(*again.args, **again.kwargs)
    return made.detach()


def _gradient(tail: Tail, given: torch.Tensor, cut: TapedCall | None = None) -> torch.Tensor | None:
    """Of the loss at one of its tensors, without what goes through a call; None if it is not known."""
    changes: dict[int, Change] = {} if cut is None else {cut.number: _cut}
    try:
        with nothing_left_behind():
            held = recomputed(tail, changes)
            loss, at = held[id(tail.loss)], held[id(given)]
            if cut is None:
                same_as(tail, float(loss.detach()))
            if not loss.requires_grad:
                return torch.zeros_like(at)
            (gradient,) = torch.autograd.grad(loss, [at], allow_unused=True)
            return torch.zeros_like(at) if gradient is None else gradient
    except (NotRepeated, RuntimeError, ValueError, TypeError, IndexError, KeyError):
        return None
