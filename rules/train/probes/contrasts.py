"""Contrastive losses over two views in which a row is among its own candidates."""

from collections.abc import Iterator

import torch

from .bootstraps import FORMING
from .dependence import Dependence
from .function_tape import FunctionTape, TapedCall
from .second_gradient import Tail

PRODUCTS = frozenset({"matmul", "mm", "einsum", "cosine_similarity"})
TURNED = FORMING | {"t", "permute", "adjoint", "contiguous"}

FEWEST = 4
"""Rows of two views, at least: with two of them the positive is the other one in any order."""


def own_candidates(tape: FunctionTape, tail: Tail) -> Iterator[Dependence]:
    """Of a cross entropy over the similarities of all rows of two views with one another: a row is
    among its own candidates, and never its target. ``of`` is the number of rows.
    """
    for call in tail.calls:
        scores, target = call.argument(0, "input"), call.argument(1, "target")
        if call.name != "cross_entropy" or scores.dim() != 2 or target.shape != scores.shape[:1]:
            continue
        rows = len(scores)
        if rows % 2 or rows < FEWEST or scores.shape[1] != rows or target.is_floating_point():
            continue
        places = torch.arange(rows, device=target.device)
        beside, away = places ^ 1, (places + rows // 2) % rows
        if torch.equal(target, beside) or torch.equal(target, away):
            product = _product(tape, call, scores)
            if product is not None and product.at is not None:
                yield Dependence("self", product, rows, rows)


def _product(tape: FunctionTape, user: TapedCall, scores: torch.Tensor) -> TapedCall | None:
    """The call that multiplies a tensor with itself, where its result was only scaled since."""
    given = scores
    while True:
        made = tape.maker_before(user, given)
        versions = zip(user.parents, user.versions, strict=True)
        written = next(version for (each, _), version in versions if each is given)
        if made is None or not made.parents or written:
            return None
        if made.name in PRODUCTS:
            roots = [tape.origin(made, each, TURNED)[0] for each, _ in made.parents]
            alike = len(roots) == 2 and roots[0] is roots[1] and len(roots[0]) == len(scores)
            return made if alike else None
        learned = [each for each, _ in made.parents if each.requires_grad]
        one = all(each.numel() == 1 for each, _ in made.parents if not each.requires_grad)
        if made.name not in ("div", "mul") or len(learned) != 1 or not one:
            return None
        user, given = made, learned[0]
