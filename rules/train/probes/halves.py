"""Symmetric losses of which one half detaches its target and the other does not."""

import math
from collections.abc import Iterator
from itertools import permutations

import torch

from .dependence import COMPARED, Dependence, leading_to
from .function_tape import FunctionTape, TapedCall
from .second_gradient import Tail, nothing_left_behind

COMPARING = COMPARED | {"cosine_similarity", "mul", "sub", "kl_div"}

LONGEST = 8
"""Calls between an output and a target that is made of it alone."""


def halves_apart(tape: FunctionTape, tail: Tail) -> Iterator[Dependence]:
    """The ``detach()`` in ``compare(f(a), b.detach()) + compare(f(b), a)``, where both weigh the
    same: whatever ``a`` and ``b`` are, their roles are exchanged.
    """
    calls = [call for call in tail.calls if call.name in COMPARING and len(call.parents) == 2]
    for one, two in permutations(calls, 2):
        if one.name == two.name and one.result.shape == two.result.shape:
            for side in (0, 1):
                cut = _exchanged(tape, one, two, side)
                if cut is not None and cut.at is not None and _weigh_the_same(tail, one, two):
                    yield Dependence("half", cut, 0, 0)
                    return


def _exchanged(tape: FunctionTape, one: TapedCall, two: TapedCall, side: int) -> TapedCall | None:
    """The call that detaches the target of one, on this side, if the other has the first one's
    origin as a target with its gradient.
    """
    targets, made = ([call.parents[at][0] for call in (one, two)] for at in (side, 1 - side))
    if targets[0].requires_grad or not all(each.requires_grad for each in (targets[1], *made)):
        return None
    read = [
        {id(each) for call in leading_to(tape, output) for each, _ in call.parents}
        for output in made
    ]
    origins = list(_origins(tape, two, targets[1]))
    for origin, names, cut in _origins(tape, one, targets[0]):
        for other, others, _ in origins if cut is not None else ():
            crossed = id(origin) in read[1] - read[0] and id(other) in read[0] - read[1]
            if crossed and names == others and origin.requires_grad:
                return cut
    return None


def _origins(
    tape: FunctionTape, user: TapedCall, tensor: torch.Tensor
) -> Iterator[tuple[torch.Tensor, list[str], TapedCall | None]]:
    """What a target was made of alone, step by step, by which functions; and what detached it."""
    names: list[str] = []
    cut = None
    for _ in range(LONGEST):
        yield tensor, [*names], cut
        made = tape.maker_before(user, tensor)
        if made is None or len(made.parents) != 1:
            return
        if made.name == "detach":
            cut = made
        else:
            names.append(made.name)
        user, tensor = made, made.parents[0][0]


def _weigh_the_same(tail: Tail, one: TapedCall, two: TapedCall) -> bool:
    with nothing_left_behind():
        given = torch.autograd.grad(
            tail.loss, (one.result, two.result), retain_graph=True, allow_unused=True
        )
    weights = [
        math.nan if each is None else _weight(call, each.double())
        for call, each in zip((one, two), given, strict=True)
    ]
    return math.isclose(*weights, rel_tol=1e-3)


def _weight(call: TapedCall, gradient: torch.Tensor) -> float:
    """By which the loss counts what a call compares: a difference is squared behind it."""
    if call.name != "sub":
        return float(gradient.sum())
    error = call.result.detach().double()
    return float((gradient * error).sum() / (error * error).sum())
