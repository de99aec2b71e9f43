"""A softmax over the rows of a whole batch in front of sums over the rows of each sample."""

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
    targets = [call.argument(1, "target") for call in tail.calls if call.name in COMPARED]
    sizes = {len(each) for each in targets if isinstance(each, torch.Tensor) and each.dim()}
    for call in tape.calls.values():
        given, axis = call.argument(0, "input"), call.argument(1, "dim")
        if call.name != "softmax" or call.at is None or not isinstance(axis, int):
            continue
        if axis % given.dim() == 0 and (samples := _samples(tape, call)) in sizes and samples > 1:
            yield Dependence("readout", call, samples - 1, samples)


def _samples(tape: FunctionTape, call: TapedCall) -> int:
    """For how many samples the rows are added up that a call made shares for; 0 if they are not."""
    rows, waiting = len(call.result), [call]
    while waiting:
        for user in tape.users(waiting.pop()):
            if not user.result.dim():
                continue
            indexes = [each for each, _ in user.parents if each.dtype == torch.int64]
            if user.name in ADDING and len(indexes) == 1 and len(user.result) < rows:
                segments = indexes[0].unique().numel()
                return len(user.result) if segments > 1 else 0
            if user.name in WEIGHING and len(user.result) == rows:
                waiting.append(user)
    return 0
