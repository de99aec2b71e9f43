"""Contrastive losses over two views: positives of other samples, rows that choose themselves."""

from collections.abc import Iterator

import torch

from .bootstraps import FORMING
from .dependence import Dependence, leading_to, picks
from .function_tape import FunctionTape, TapedCall
from .second_gradient import Tail

PRODUCTS = frozenset({"matmul", "mm", "einsum", "cosine_similarity"})
SCALING = frozenset({"div", "mul"})
MASKING = frozenset({"fill_diagonal_", "masked_fill", "masked_fill_", "where", "sub", "add"})
TURNED = FORMING | {"t", "permute", "adjoint", "contiguous"}

MOVING = frozenset(
    """
    index_select gather flip roll sort argsort topk scatter index_add chunk split unbind tensor_split
    transpose permute T t mT swapaxes movedim
    """.split()
)
"""Functions that may put rows in another order."""

FEWEST = 4
"""Rows of two views, at least: with two of them the positive is the other one in any order."""


def puts_together(name: str, given: tuple[torch.Tensor, ...]) -> bool:
    """Whether a call puts two views together."""
    return name in ("cat", "stack") and len(given) == 2 and given[0].shape == given[1].shape


def wrong_pairs(tape: FunctionTape, tail: Tail) -> Iterator[Dependence]:
    """Of a cross entropy over the similarities of all rows of two views with one another. ``self``: a
    row is among its own candidates, and never its target. ``pairs``: the views alternate and the
    target is half a batch away, or the other way around. ``of`` is the number of rows.
    """
    for call in tail.calls:
        scores, target = call.argument(0, "input"), call.argument(1, "target")
        if call.name != "cross_entropy" or scores.dim() != 2 or target.shape != scores.shape[:1]:
            continue
        rows = len(scores)
        if rows % 2 or rows < FEWEST or scores.shape[1] != rows or target.is_floating_point():
            continue
        alternate = _wanted(target)
        found = None if alternate is None else _product(tape, call, scores)
        if found is None:
            continue
        product, of, whole = found
        if whole and product.at is not None:
            yield Dependence("self", product, rows, rows)
        placed = _placed(tape, of, rows)
        if placed is not None and placed[1] != alternate and placed[0].at is not None:
            yield Dependence("pairs", placed[0], rows, rows)


def _wanted(target: torch.Tensor) -> bool | None:
    """Whether the targets are those of views that alternate; None of any others."""
    rows = torch.arange(len(target), device=target.device)
    if torch.equal(target, rows ^ 1):
        return True
    half = len(target) // 2
    return False if torch.equal(target, (rows + half) % len(target)) else None


def _product(
    tape: FunctionTape, user: TapedCall, scores: torch.Tensor
) -> tuple[TapedCall, torch.Tensor, bool] | None:
    """The call that multiplies a tensor with itself, that tensor, and whether it is only scaled."""
    whole, given = True, scores
    while True:
        made = tape.maker_before(user, given)
        version = next(
            n for (each, _), n in zip(user.parents, user.versions, strict=True) if each is given
        )
        if made is None or not made.parents:
            return None
        learned = [each for each, _ in made.parents if each.requires_grad]
        if made.name in PRODUCTS:
            roots = [tape.origin(made, each, TURNED)[0] for each, _ in made.parents]
            alike = len(roots) == 2 and roots[0] is roots[1] and len(roots[0]) == len(scores)
            return (made, roots[0], whole and not version) if alike else None
        others = [each for each, _ in made.parents if not each.requires_grad]
        scales = made.name in SCALING and all(each.numel() == 1 for each in others)
        if len(learned) != 1 or not (scales or made.name in MASKING):
            return None
        whole = whole and scales and not version
        user, given = made, learned[0]


def _placed(tape: FunctionTape, made: torch.Tensor, rows: int) -> tuple[TapedCall, bool] | None:
    """The only call that put both views together, and whether they alternate then; None if it is not
    known, or something behind it may have moved rows.
    """
    calls = list(leading_to(tape, made))
    found = [(call, kind) for call in calls if (kind := _alternate(tape, call, rows)) is not None]
    if len(found) != 1:
        return None
    behind = (each for each in calls if each.number > found[0][0].number)
    moved = any(each.name in MOVING or picks(each) or _cuts(each) for each in behind)
    return None if moved else found[0]


def _cuts(call: TapedCall) -> bool:
    given = call.parents[0][0] if call.name in ("getitem", "narrow") else call.result
    return given.shape[:1] != call.result.shape[:1]


def _alternate(tape: FunctionTape, call: TapedCall, rows: int) -> bool | None:
    """Whether a call that puts two views together has them alternate; None of another call. Two parts
    of one batch may have both views in each: they must come of the same data.
    """
    parts = tuple(each for each, _ in call.parents)
    if not puts_together(call.name, parts):
        return None
    axis = call.argument(1, "dim", 0)
    if call.name == "stack" and axis == 1 and call.result.shape[:2] == (rows // 2, 2):
        return True
    if call.name == "cat" and axis == 0 and len(call.result) == rows:
        one, two = (set(map(id, _data(tape, each))) for each in parts)
        return False if one & two else None
    return None


def _data(tape: FunctionTape, tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """What was loaded, and a tensor was computed from."""
    for call in leading_to(tape, tensor):
        loaded = (each for each, made in call.parents if made is None and each.dim() > 1)
        yield from (each for each in loaded if not isinstance(each, torch.nn.Parameter))
        if not call.parents:
            yield call.result
