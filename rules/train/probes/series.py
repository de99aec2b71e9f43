"""Series of numbers, or of classes as one-hot rows, whose model sees what it has to predict."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from functools import partial

import torch

from auditor.capture.instruments.plain_tensor import tensors

from . import paddings
from .dependence import (
    COMPARED,
    FORMS,
    OTHER_LENGTHS,
    Dependence,
    axis_of,
    leading_to,
    mask_of,
)
from .function_tape import FunctionTape, TapedCall, only_axis, version
from .padded_texts import reached_from
from .second_gradient import Tail, computed_again, nothing_left_behind, repeatable
from .summaries import Summaries

SHORTEST = 8
"""Positions of a series, at least."""

CHANNELS = 8
"""Of a series, at most, one of which may be what is predicted."""

COMPARING = COMPARED | {"sub"}


def future_values(tape: FunctionTape, tail: Tail) -> Dependence | None:
    """Where an output begins to depend on values behind its position, if a loss compares the outputs
    with the model's own input one position further. None if none does, or it is not known.
    """
    for call in tail.calls:
        for given, part, out, axis, along in (*_of_numbers(tape, call), *_of_classes(tape, call)):
            try:
                with nothing_left_behind():
                    return _first(tape, given, part, (out, along), axis)
            except (RuntimeError, ValueError, TypeError, IndexError, KeyError):
                return None  # what cannot be computed alone says nothing
    return None


Part = Callable[[torch.Tensor], torch.Tensor]

Asked = tuple[torch.Tensor, Part, torch.Tensor, int, int]
"""What a model was given, the part of it that is predicted (others may be known before), its outputs,
and the dimension of the positions in both.
"""


def _of_numbers(tape: FunctionTape, call: TapedCall) -> Iterator[Asked]:
    pair = [tensor for tensor, _ in call.parents[:2]]
    if call.name not in COMPARING or len(pair) != 2 or pair[0].shape != pair[1].shape:
        return
    target, out = sorted(pair, key=lambda each: each.requires_grad)
    if not target.requires_grad and out.requires_grad and target.is_floating_point():
        inputs = sorted(_inputs(tape, target, out), key=lambda each: each[0].shape != target.shape)
        yield from ((given, part, out, axis, axis) for given, part, axis in inputs)


def _of_classes(tape: FunctionTape, call: TapedCall) -> Iterator[Asked]:
    """The same of classes that the model is given as one-hot rows of numbers."""
    out, target = call.argument(0, "input"), call.argument(1, "target")
    if call.name not in paddings.NAMES or not out.requires_grad or target.is_floating_point():
        return
    form = tape.maker_before(call, out)
    if out.dim() == 2 and form is not None and form.name in (*FORMS, "flatten"):
        out = form.parents[0][0]
    for made in tape.calls.values():
        classes = made.argument(0, "input") if made.name == "one_hot" else target
        if classes is target or classes.numel() != target.numel():
            continue
        asked = target.reshape(classes.shape)
        for axis, size in enumerate(classes.shape):
            along = only_axis(out, size)
            if along is not None and _is_next(classes, asked, axis):
                rows = (each.result for each in tape.users(made))
                numbers = (each for each in rows if each.is_floating_point())
                yield from ((each, torch.Tensor.detach, out, axis, along) for each in numbers)


def _is_next(given: torch.Tensor, target: torch.Tensor, axis: int) -> bool:
    """The target is what was given, one position further; its last position may be left out."""
    size = given.shape[axis]
    if size < SHORTEST or target.shape[axis] not in (size, size - 1):
        return False
    now, later = (given.narrow(axis, first, size - 1) for first in (0, 1))
    here = target.narrow(axis, 0, size - 1)
    return bool(here.count_nonzero()) and torch.equal(later, here) and not torch.equal(now, here)


def _inputs(
    tape: FunctionTape, target: torch.Tensor, out: torch.Tensor
) -> Iterator[tuple[torch.Tensor, Part, int]]:
    """Data that lead to an output, the part of which the target is the next position, and the
    dimension of these.
    """
    seen = set[int]()
    for call in leading_to(tape, out):
        for (each, _), before in zip(call.parents, call.versions, strict=True):
            data = each.dtype == target.dtype and not each.requires_grad and version(each) == before
            if not data or id(each) in seen:
                continue
            seen.add(id(each))
            for part in _parts(each, target.dim()):
                axes = range(target.dim())
                yield from ((each, part, n) for n in axes if _is_next(part(each), target, n))


def _parts(given: torch.Tensor, dimensions: int) -> Iterator[Part]:
    """All of it, or one of its channels."""
    if given.dim() == dimensions:
        yield torch.Tensor.detach
    elif given.dim() == dimensions + 1 == 3:
        for axis in (1, 2):
            if given.shape[axis] <= CHANNELS:
                for n in range(given.shape[axis]):
                    yield partial(torch.select, dim=axis, index=n)


def _first(
    tape: FunctionTape, given: torch.Tensor, part: Part, asked: tuple[torch.Tensor, int], axis: int
) -> Dependence | None:
    """The first call by which the middle of what is asked, along its dimension, depends on values of
    a part of ``given`` behind it, along the dimension that they have there.
    """
    out = asked[0]
    readers = [each for each in tape.calls.values() if any(one is given for one, _ in each.parents)]
    reached = reached_from(tape, readers)
    calls = [each for each in leading_to(tape, out) if each.number in reached]
    summed = _summaries_of(tape, calls, given, out, part(given).shape[axis])
    if summed is None:
        return None
    leaf = given.detach().requires_grad_()
    held, size = {id(given): leaf}, part(given).shape[axis]
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
        moved = None if found is None else part(found).movedim(axis, 0)[middle + 1 :]
        return 0 if moved is None else int(moved.flatten(1).ne(0).any(1).sum())

    n = behind(held[id(out)], asked[1])
    for call in calls if n else ():
        result = held[id(call.result)]
        along = axis_of(tape, call, size)
        begins = along is not None and result.requires_grad and behind(result, along)
        if begins or call.number in summed:
            place = mask_of(tape, call)
            return Dependence("future", place, n, size - 1 - middle) if place.spot else None
    return None


def _summaries_of(
    tape: FunctionTape, calls: list[TapedCall], given: torch.Tensor, out: torch.Tensor, size: int
) -> Container[int] | None:
    """The statistics over positions among the calls; None if the series goes through something
    without positions, as the latent variable of an autoencoder: what comes of that may know all.
    """
    lengths, of_series = {size, *(size * each for each in given.shape)}, {id(given)}
    summaries = Summaries(tape, out, lengths)
    for call in calls:
        here = [each for each, _ in call.parents if id(each) in of_series]
        without = [each for each in here if lengths.isdisjoint(each.shape)]
        if not summaries.take(call, without, here):
            return None
        if call.name in OTHER_LENGTHS and not without:
            lengths |= set(call.result.shape[2:]).difference({1}, *(each.shape for each in here))
        of_series |= set(map(id, call.results))
    return summaries.numbers
