"""In front of sums over the rows of each sample: a softmax over the rows of a whole batch, and rows
that get those of other samples.
"""

from collections.abc import Container, Iterator

import torch

from .bootstraps import FORMING
from .dependence import COMPARED, Dependence
from .function_tape import FunctionTape, TapedCall
from .second_gradient import Tail

ADDING = frozenset({"index_add", "index_add_", "scatter_add", "scatter_add_"})
WEIGHING = FORMING | {"mul", "dropout"}
SEARCHING = frozenset({"topk", "sort", "argsort", "argmin", "min"})
"""Functions that give places of the nearest rows."""


def normalized_together(tape: FunctionTape, tail: Tail) -> Iterator[Dependence]:
    """Shares that sum to 1 over all rows, and weigh what is added up per sample; ``of`` samples."""
    targets = (call.argument(1, "target") for call in tail.calls if call.name in COMPARED)
    sizes = {len(each) for each in targets if isinstance(each, torch.Tensor) and each.dim()}
    for call in tape.calls.values():
        whole = call.at is not None and (_is_softmax(call) or _is_share_of_all(tape, call))
        found = _segments(tape, call, len(call.result), WEIGHING) if whole else None
        if found is not None and found[1] in sizes:
            yield Dependence("readout", call, found[1] - 1, found[1])


def neighbors_of_others(tape: FunctionTape) -> Iterator[Dependence]:
    """The search for places of rows by which rows get those of other samples; ``n`` of ``of`` rows."""
    for call in tape.calls.values():
        if call.name not in ("getitem", "index_select") or not call.gives_gradient:
            continue
        index, rows = call.parents[-1][0], len(call.parents[0][0])
        wanted = index.dtype == torch.int64 and index.numel() >= rows and not index.numel() % rows
        search = tape.origin(call, index, FORMING)[1] if wanted else None
        if search is None or search.name not in SEARCHING or search.at is None:
            continue
        found = _segments(tape, call, rows, None)
        if found is not None and int(index.max()) < rows:
            own, others = found[0][:, None], found[0][index.reshape(rows, -1)]
            if n := int((own != others).any(1).sum()):
                yield Dependence("neighbors", search, n, rows)
                return


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


def _segments(
    tape: FunctionTape, call: TapedCall, rows: int, through: Container[str] | None
) -> tuple[torch.Tensor, int] | None:
    """To which sample each of the rows that a call made belongs, and how many samples there are, where
    rows are added up for each sample behind these functions, or behind any.
    """
    waiting, seen = [call], set[int]()
    while waiting:
        for user in tape.users(waiting.pop()):
            if not user.result.dim() or user.number in seen:
                continue
            seen.add(user.number)
            indexes = [each for each, _ in user.parents if each.dtype == torch.int64]
            if user.name in ADDING and len(indexes) == 1 and len(user.result) < rows:
                of = indexes[0].reshape(len(indexes[0]), -1)[:, 0]
                whole = len(of) == rows and of.unique().numel() > 1
                return (of, len(user.result)) if whole else None
            if (through is None or user.name in through) and len(user.result) == rows:
                waiting.append(user)
    return None
