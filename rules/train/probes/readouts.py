"""Numbers of the rows of a whole batch that each of its samples gets: a softmax in front of sums over
the rows of each sample, or a statistic that learned layers give back to all rows.
"""

from collections.abc import Iterator

import torch

from .bootstraps import FORMING
from .dependence import COMPARED, STATISTICS, WEIGHTED, Dependence, asked_of, loaded_sizes
from .function_tape import FunctionTape, TapedCall
from .second_gradient import Tail

ADDING = frozenset({"index_add", "index_add_", "scatter_add", "scatter_add_"})
WEIGHING = FORMING | {"mul", "dropout"}


def normalized_together(tape: FunctionTape, tail: Tail) -> Iterator[Dependence]:
    """Shares that sum to 1 over all rows, and weigh what is added up per sample; ``of`` samples."""
    sizes = _targets(tail)
    for call in tape.calls.values():
        whole = call.at is not None and (_is_softmax(call) or _is_share_of_all(tape, call))
        if whole and (samples := _samples(tape, call)) in sizes and samples > 1:
            yield Dependence("readout", call, samples - 1, samples)


def shared_contexts(tape: FunctionTape, tail: Tail) -> Iterator[Dependence]:
    """The first statistic over all rows of the batch that learned layers read, and whose result is
    combined with each row: of samples that a loader gave, or rows that are added up per sample.
    """
    sizes = _targets(tail)
    for call in tape.calls.values():
        rows = _rows_of_statistic(call)
        back = _given_back(tape, call, rows) if rows > 1 else None
        if back is None:
            continue
        samples = _samples(tape, back, learned=True)
        if samples not in sizes:
            _, batch = asked_of(tape, tail) or (None, 0)
            samples = rows if batch == rows and rows in loaded_sizes() else 0
        if samples > 1:
            yield Dependence("context", call, samples - 1, samples)
            return


def _targets(tail: Tail) -> set[int]:
    """How many targets the losses have."""
    targets = (call.argument(1, "target") for call in tail.calls if call.name in COMPARED)
    return {len(each) for each in targets if isinstance(each, torch.Tensor) and each.dim()}


def _rows_of_statistic(call: TapedCall) -> int:
    """Over how many rows it runs, of which it makes one; 0 of any other call."""
    if call.name not in STATISTICS or call.at is None or not call.parents:
        return 0
    value, dims = call.parents[0][0], call.argument(1, "dim")
    dims = dims if isinstance(dims, (tuple, list)) else (dims,)
    over = all(isinstance(each, int) for each in dims) and value.requires_grad
    first = over and value.dim() > 1 and {each % value.dim() for each in dims} == {0}
    return len(value) if first and value.is_floating_point() else 0


def _given_back(tape: FunctionTape, call: TapedCall, rows: int) -> TapedCall | None:
    """The call that combines what learned layers make of a statistic with each of the rows."""
    learned, waiting = {call.number: False}, [call]
    while waiting:
        made = waiting.pop(0)
        for user in tape.users(made):
            whole = user.result.dim() > 1 and len(user.result) == rows
            if whole and learned[made.number] and user.name in COMBINING:
                return user
            if user.number not in learned and user.result.dim() and not whole:
                learned[user.number] = learned[made.number] or user.name in WEIGHTED
                waiting.append(user)
    return None


COMBINING = frozenset({"add", "add_", "mul", "mul_", "cat", "sub"})


def _is_softmax(call: TapedCall) -> bool:
    axis = call.argument(1, "dim") if call.name == "softmax" else None
    return isinstance(axis, int) and axis % call.result.dim() == 0


def _is_share_of_all(tape: FunctionTape, call: TapedCall) -> bool:
    """``scores.exp() / scores.exp().sum()``, by hand."""
    if call.name != "div" or len(call.parents) != 2:
        return False
    (one, _), (whole, _) = call.parents
    by, made = tape.maker_before(call, whole), tape.maker_before(call, one)
    summed = by is not None and by.name == "sum" and by.parents[0][0] is one
    single = summed and call.result.dim() > 0 and whole.numel() * len(one) == one.numel()
    return single and made is not None and made.name == "exp"


def _samples(tape: FunctionTape, call: TapedCall, *, learned: bool = False) -> int:
    """For how many samples the rows that a call made are added up; 0 if they are not. ``learned``:
    whatever is made of them before; else only what weighs them.
    """
    rows, waiting, seen = len(call.result), [call], set[int]()
    while waiting:
        for user in tape.users(waiting.pop()):
            if not user.result.dim() or user.number in seen:
                continue
            seen.add(user.number)
            indexes = [each for each, _ in user.parents if each.dtype == torch.int64]
            if user.name in ADDING and len(indexes) == 1 and len(user.result) < rows:
                segments = indexes[0].unique().numel()
                return len(user.result) if segments > 1 else 0
            if (learned or user.name in WEIGHING) and len(user.result) == rows:
                waiting.append(user)
    return 0
