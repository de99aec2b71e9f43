"""Ratios of a policy's probabilities whose numerator and denominator are of different actions, or
both follow the policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import torch

from auditor.capture.instruments.autograd_graph import Walk, node_of, walk

from .bootstraps import FORMING, formed
from .dependence import Dependence, leading_to
from .function_tape import FunctionTape, TapedCall, version
from .second_gradient import Tail, nothing_left_behind, trained

PICKED = frozenset({"getitem", "index_select", "narrow"})

ROUNDED = 1e-5
"""How far a log-probability that is computed again lies from the first one, relative to 1."""

CONTROLS = (-31.0, -17.0, 13.0, 29.0)
"""Distances, in units of :data:`ROUNDED`, at which a store with few values has none."""

FEWEST = 8
"""Log-probabilities of a ratio that are looked at, at least."""

MOST_DIMS = 3
"""Dimensions of a store of log-probabilities: steps, environments, parts of an action."""


def may_be_old(name: str, given: tuple[torch.Tensor, ...]) -> bool:
    """Whether a call picks numbers of data."""
    picks = name in PICKED and bool(given) and given[0].dim() <= MOST_DIMS
    return picks and given[0].is_floating_point() and not given[0].requires_grad


def of_other_actions(tape: FunctionTape, tail: Tail) -> Iterator[Dependence]:
    """``exp(new - old)`` where ``old`` was picked from a store, and the store holds all of ``new``,
    most of them at other places. Once the policy has moved, it holds none of them. ``n`` is how many
    lie elsewhere, ``of`` how many there are.
    """
    for call in tail.calls:
        made = formed(tape, call, call.parents[0][0]) if call.name == "exp" else None
        pair = [tensor for tensor, _ in made.parents] if made is not None else []
        if made is None or made.name != "sub" or len(pair) != 2 or pair[0].shape != pair[1].shape:
            continue
        old, new = sorted(pair, key=lambda each: each.requires_grad)
        picked = _picked(tape, made, old)
        if old.requires_grad or not new.requires_grad or picked is None or picked.at is None:
            continue
        store = picked.parents[0][0]
        if new.dtype not in (torch.float32, torch.float64) or version(store) != picked.versions[0]:
            continue
        fresh = tape.maker_before(made, new)  # what is made of the new ones holds them anyhow
        if new.numel() < FEWEST or fresh is None or fresh in [*leading_to(tape, store)]:
            continue
        elsewhere = _elsewhere(new.detach().flatten(), old.flatten(), store.detach().flatten())
        if elsewhere * 2 > new.numel():
            yield Dependence("ratio", picked, elsewhere, new.numel())


def cancelled(tape: FunctionTape, tail: Tail, walked: Walk | None) -> Iterator[Dependence]:
    """Differences or ratios of two equal tensors that train nothing: each alone has a gradient, and
    both have the same one at all parameters. The call is what made the earlier tensor; if one line
    made both, it is the one that compares them.
    """
    nodes = set(walked.nodes) if walked is not None and trained(walked) else set[Any]()
    for call in tail.calls:
        pair = [tensor for tensor, _ in call.parents if tensor.requires_grad]
        if call.name not in ("sub", "div") or len(pair) != 2 or node_of(call.result) not in nodes:
            continue
        one, two = pair
        made = [each for tensor in pair if (each := tape.maker_before(call, tensor)) is not None]
        several = one is not two and one.numel() > 1 and one.dtype == two.dtype
        if len(made) == 2 and several and torch.equal(one, two) and _move_alike(pair):
            apart = len({each.spot for each in made}) == 2  # else one function made both
            at = min(made, key=attrgetter("number")) if apart else call
            yield Dependence("cancelled", at, 0, one.numel())


def _move_alike(pair: list[torch.Tensor]) -> bool:
    """The same weighted sum of both has the same gradient, which is not zero."""
    leaves = trained(walk(map(node_of, pair)))
    weights = torch.arange(1.0, pair[0].numel() + 1, device=pair[0].device).sin()
    weights = weights.view_as(pair[0]).to(pair[0].dtype)
    with nothing_left_behind():
        one, two = (
            torch.autograd.grad(
                each, leaves, weights, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            for each in pair
        )
    return any(map(torch.count_nonzero, one)) and all(map(torch.equal, one, two))


def _picked(tape: FunctionTape, user: TapedCall, tensor: torch.Tensor) -> TapedCall | None:
    """The call that picked a tensor from a larger one, whatever its form."""
    made = tape.maker_before(user, tensor)
    while made is not None and made.parents:
        given = made.parents[0][0]
        if made.name in PICKED and given.numel() > tensor.numel():
            return made
        if made.name not in FORMING:
            return None
        made = tape.maker_before(made, given)
    return None


def _elsewhere(new: torch.Tensor, old: torch.Tensor, store: torch.Tensor) -> int:
    """How many of ``new`` are not their ``old``; 0 unless the store has all, few of them beside."""
    new, old, values = new.double(), old.double(), store.double().sort().values
    near = ROUNDED * (1.0 + new.abs())

    def held(asked: torch.Tensor) -> torch.Tensor:
        above = torch.searchsorted(values, asked).clamp(1, len(values) - 1)
        apart = torch.minimum((values[above] - asked).abs(), (values[above - 1] - asked).abs())
        return apart <= near

    if not bool(held(new).all()):
        return 0
    by_chance = sum(int(held(new + shift * near).sum()) for shift in CONTROLS)
    rare = by_chance * 4 <= new.numel() * len(CONTROLS)
    return int(((new - old).abs() > near).sum()) if rare else 0
