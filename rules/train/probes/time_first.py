"""Samples that mix where time comes first: a view takes positions for samples.

Where :func:`.dependence.mixed_samples` computes stretches of calls again whose tensors have the batch
in front, this asks the program's own graph.
"""

import torch

from auditor.capture.instruments.autograd_graph import Walk

from .dependence import (
    Dependence,
    asked_of,
    leading_to,
    loaded_sizes,
    on_purpose,
    others_reached,
    picks,
)
from .function_tape import FunctionTape, TapedCall, only_axis
from .second_gradient import Tail, nothing_left_behind, walkable


def mixed_behind_time(tape: FunctionTape, tail: Tail, walked: Walk | None) -> Dependence | None:
    """The first call by which a sample depends on others, of a model whose first layers have the
    samples in another dimension than the first; None if there is none.
    """
    given, batch = asked_of(tape, tail) or (None, 0)
    if given is None or walked is None or not walkable(walked):
        return None
    try:
        with nothing_left_behind():
            return _first(tape, given, batch)
    except RuntimeError:
        return None  # a graph that may be walked once


def _first(tape: FunctionTape, given: torch.Tensor, batch: int) -> Dependence | None:
    leading = list(leading_to(tape, given))
    calls = [each for each in leading if each.gives_gradient]
    data = {
        each.shape[:2]
        for call in leading
        for each, _ in call.parents
        if each.dim() > 1 and each.shape[1] == batch and not each.requires_grad
    }
    source = next(
        (each for each in calls if each.result.dim() > 2 and each.result.shape[:2] in data), None
    )
    if source is None or any(_mixes_on_purpose(each, batch) for each in calls):
        return None
    if batch not in loaded_sizes():  # asked last: it lists all live objects
        return None
    leaves = [source.result]
    n = others_reached(given, 0, leaves, along=1)
    for call in calls if n else ():
        axis = only_axis(call.result, batch)
        if axis is None or call.at is None or call.number <= source.number:
            continue
        if axis and call.result.shape[:2] not in data:
            continue  # another dimension is as large as there are samples
        if others_reached(call.result, axis, leaves, along=1):
            return Dependence("samples", call, n, batch)
    return None


def _mixes_on_purpose(call: TapedCall, batch: int) -> bool:
    """As statistics over samples, or another order of them; or no dimension is surely theirs."""
    shapes = [each.shape for each in (*call.results, *(each for each, _ in call.parents))]
    if picks(call) or any(shape.count(batch) > 1 for shape in shapes):
        return True
    return on_purpose(call, only_axis(call.parents[0][0], batch) if call.parents else None)
