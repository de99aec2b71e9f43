"""Series of numbers whose model sees the values that it has to predict."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from auditor.capture.instruments.plain_tensor import tensors

from .dependence import (
    ATTENDING,
    COMPARED,
    OTHER_LENGTHS,
    Dependence,
    crops_convolution,
    leading_to,
    mask_of,
)
from .function_tape import FunctionTape, TapedCall, only_axis, version
from .padded_texts import reached_from
from .second_gradient import Tail, computed_again, nothing_left_behind, repeatable

SHORTEST = 8
"""Positions of a series, at least."""

COMPARING = COMPARED | {"sub"}


def future_values(tape: FunctionTape, tail: Tail) -> Dependence | None:
    """Where an output begins to depend on values behind its position, if a loss compares the outputs
    with the model's own input one position further. None if none does, or it is not known.
    """
    for call in tail.calls:
        pair = [tensor for tensor, _ in call.parents[:2]]
        if call.name not in COMPARING or len(pair) != 2 or pair[0].shape != pair[1].shape:
            continue
        target, out = sorted(pair, key=lambda each: each.requires_grad)
        if target.requires_grad or not out.requires_grad or not target.is_floating_point():
            continue
        for given, axis in _inputs(tape, target):
            try:
                with nothing_left_behind():
                    return _first(tape, given, out, axis)
            except (RuntimeError, ValueError, TypeError, IndexError, KeyError):
                return None  # what cannot be computed alone says nothing
    return None


def _inputs(tape: FunctionTape, target: torch.Tensor) -> Iterator[tuple[torch.Tensor, int]]:
    """Data of which the target is the next position, and the dimension of the positions."""
    seen = set[int]()
    for call in tape.calls.values():
        for (each, _), before in zip(call.parents, call.versions, strict=True):
            data = each.dtype == target.dtype and not each.requires_grad and version(each) == before
            if (
                not (data and call.gives_gradient and each.shape == target.shape)
                or id(each) in seen
            ):
                continue
            seen.add(id(each))
            for axis, size in enumerate(target.shape):
                if size >= SHORTEST and not torch.equal(each, target):
                    later, here = each.narrow(axis, 1, size - 1), target.narrow(axis, 0, size - 1)
                    if torch.equal(later, here) and target.count_nonzero():
                        yield each, axis


def _first(
    tape: FunctionTape, given: torch.Tensor, out: torch.Tensor, axis: int
) -> Dependence | None:
    """The first call by which the middle of ``out`` depends on values of ``given`` behind it."""
    readers = [each for each in tape.calls.values() if any(one is given for one, _ in each.parents)]
    reached = reached_from(tape, readers)
    calls = [each for each in leading_to(tape, out) if each.number in reached]
    if _loses_positions(calls, given, axis):
        return None
    leaf = given.detach().requires_grad_()
    held, size = {id(given): leaf}, given.shape[axis]
    for call in calls:
        if "dropout" in call.name:
            source = call.parents[0][0]
            held[id(call.result)] = held.get(id(source), source)
            continue
        if not repeatable(call, whole=True):
            return None
        made = computed_again(call, None, lambda each: held.get(id(each), each))
        for old, new in zip(call.results, tensors((made,)), strict=False):
            held[id(old)] = new
    middle = size // 2

    def behind(result: torch.Tensor, along: int) -> int:
        chosen = result.select(along, middle)
        weights = torch.linspace(0.5, 1, chosen.numel()).to(chosen).view_as(chosen)
        (found,) = torch.autograd.grad(chosen, leaf, weights, retain_graph=True, allow_unused=True)
        moved = None if found is None else found.movedim(axis, 0)[middle + 1 :]
        return 0 if moved is None else int(moved.flatten(1).ne(0).any(1).sum())

    n = behind(held[id(out)], axis)
    for call in calls if n else ():
        result = held[id(call.result)]
        along = only_axis(result, size)
        if along is not None and result.requires_grad and behind(result, along):
            given_here = [each for each, _ in call.parents]
            named = call.name in ATTENDING or crops_convolution(tape, call.name, given_here)
            place = mask_of(tape, call)
            known = named and place.at is not None
            return Dependence("future", place, n, size - 1 - middle) if known else None
    return None


def _loses_positions(calls: list[TapedCall], given: torch.Tensor, axis: int) -> bool:
    """The series goes through something without positions, as the latent variable of an autoencoder:
    what comes of that may know all of it.
    """
    size = given.shape[axis]
    lengths, of_series = {size, *(size * each for each in given.shape)}, {id(given)}
    for call in calls:
        here = [each for each, _ in call.parents if id(each) in of_series]
        if any(lengths.isdisjoint(each.shape) for each in here):
            return True
        if call.name in OTHER_LENGTHS:
            lengths |= set(call.result.shape[2:]).difference(*(each.shape for each in here))
        of_series |= set(map(id, call.results))
    return False
