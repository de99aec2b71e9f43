"""Rows of a batch that are sorted, as by length, and compared with targets in the old order."""

from collections.abc import Iterator

import torch

from .bootstraps import FORMING
from .dependence import COMPARED, Dependence
from .function_tape import FunctionTape, TapedCall
from .second_gradient import Tail

SORTS = frozenset({"sort", "argsort"})
PICKS = frozenset("getitem index_select gather take_along_dim index_copy index_put scatter".split())


def left_sorted(tape: FunctionTape, tail: Tail) -> Iterator[Dependence]:
    """A loss is given outputs of rows that were picked in sorted order, and that nothing picked a
    second time, and targets that nothing picked. ``n`` is the number of rows, ``of`` how many of
    them lie elsewhere.
    """
    for loss in tail.calls:
        given, target = loss.argument(0, "input"), loss.argument(1, "target")
        compares = loss.name in COMPARED and isinstance(target, torch.Tensor)
        if not compares or not target.dim() or target.requires_grad:
            continue
        rows = target.shape[0]
        if given.shape[:1] != target.shape[:1] or [*_picks(tape, loss, target, rows)]:
            continue
        sorts = list(_picks(tape, loss, given, rows))
        if sorts and all(each is not None and each is sorts[0] for each in sorts):
            index = sorts[0].results[-1]  # type: ignore[union-attr]
            moved = int((index != torch.arange(rows, device=index.device)).sum())
            if moved:
                yield Dependence("sorted", sorts[0], rows, moved)  # type: ignore[arg-type]


def _picks(
    tape: FunctionTape, user: TapedCall, tensor: torch.Tensor, rows: int
) -> Iterator[TapedCall | None]:
    """The sort that gave each picking tensor behind a call its order; None if it is not known."""
    waiting, seen = [tape.maker_before(user, tensor)], set[int]()
    while waiting:
        call = waiting.pop()
        if call is None or call.number in seen:
            continue
        seen.add(call.number)
        if not call.name.endswith("_like"):  # what is written into it later has no call
            waiting += [tape.maker_before(call, parent) for parent, _ in call.parents]
        written = zip(call.parents, call.versions, strict=True)
        if any(version and not parent.is_leaf for (parent, _), version in written):
            yield None  # maybe row by row, in the order before
        for parent, _ in call.parents[1:] if call.name in PICKS else ():
            if parent.dtype == torch.int64 and parent.shape == (rows,):
                made = tape.maker_before(call, parent)
                while made is not None and made.name in FORMING and made.parents:
                    made = tape.maker_before(made, made.parents[0][0])
                yield made if made is not None and made.name in SORTS else None
