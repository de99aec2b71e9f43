"""A softmax over the rows of a whole batch, in front of sums over the rows of each of its samples."""

from collections.abc import Iterator

import torch

from .bootstraps import FORMING
from .dependence import COMPARED, Dependence
from .function_tape import FunctionTape, TapedCall
from .second_gradient import Tail

ADDING = frozenset({"index_add", "index_add_", "scatter_add", "scatter_add_"})
WEIGHING = FORMING | {"mul", "dropout"}


def normalized_together(tape: FunctionTape, tail: Tail) -> Iterator[Dependence]:
    """Shares that sum to 1 over all rows, and weigh what is added up per sample; ``of`` samples."""
    targets = (call.argument(1, "target") for call in tail.calls if call.name in COMPARED)
    sizes = {len(each) for each in targets if isinstance(each, torch.Tensor) and each.dim()}
    for call in tape.calls.values():
        whole = call.at is not None and (_is_softmax(call) or _is_share_of_all(tape, call))
        if whole and (samples := _samples(tape, call)) in sizes and samples > 1:
            yield Dependence("readout", call, samples - 1, samples)


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


def _samples(tape: FunctionTape, call: TapedCall) -> int:
    """For how many samples the rows that a call made are weighed and added up; 0 if they are not."""
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
            if user.name in WEIGHING and len(user.result) == rows:
                waiting.append(user)
    return 0
