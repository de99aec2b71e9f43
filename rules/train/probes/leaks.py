"""Input channels that are filters over time and reach beyond the end of their window, into what the
model has to predict: a centered moving average, a shift of the wrong sign. And inputs scaled by
statistics of a window of which the targets are a part.

A channel is fitted by the values of another one around each position. It is told of where only
values behind the position make that exact, and where the targets, put in place of those that the
window lacks, give its last values: other samples' targets do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import torch

from .dependence import COMPARED, OVER_DIMENSIONS, Dependence, leading_to, on_purpose
from .function_tape import FunctionTape, TapedCall, version
from .second_gradient import Tail

SHORTEST, MOST_CHANNELS = 16, 8
WIDEST, MOST_ROWS = 32, 2048
"""Positions on each side of one that a filter may take; positions by which it is fitted."""

EXACT, APART = 1e-4, 20.0
"""Of the standard deviation: what single precision leaves of an exact fit. How many times worse one
must be that is not.
"""


def compares_values(name: str, given: tuple[torch.Tensor, ...]) -> bool:
    """Whether a call is a loss of one value for each sample."""
    return name in COMPARED and len(given) > 1 and given[0].dim() == given[1].dim() == 1


def channel_ahead(tape: FunctionTape, tail: Tail) -> Dependence | None:
    """The loss whose model is given such a channel, how many steps that reaches ahead (``n``) and its
    number (``of``). None if there is none.
    """
    for call in tail.calls:
        pair = [tensor for tensor, _ in call.parents[:2]]
        if call.name not in COMPARED or len(pair) != 2 or call.at is None:
            continue
        target, out = sorted(pair, key=lambda each: each.requires_grad)
        series = out.requires_grad and not target.requires_grad and target.dim() in (1, 2, 3)
        if target.dim() == 1:
            target = target[:, None]
        for window in _windows(tape, len(target)) if series and target.is_floating_point() else ():
            found = _reaches(window, target.cpu().double())
            if found is not None:
                return Dependence("feature", call, *found)
    return None


CUTS = frozenset("getitem narrow chunk split tensor_split".split())


def scaled_by_targets(tape: FunctionTape, tail: Tail) -> Dependence | None:
    """The first statistic over a window, one part of which the model is given while another one is its
    target; ``n`` positions are targets, of ``of``.
    """
    for call in tail.calls:
        pair = [tensor for tensor, _ in call.parents[:2]]
        if call.name not in COMPARED or len(pair) != 2:
            continue
        target, out = sorted(pair, key=lambda each: each.requires_grad)
        cuts = [each for each in leading_to(tape, target) if each.name in CUTS]
        given = list(leading_to(tape, out)) if cuts and not target.requires_grad else []
        for cut in cuts:
            whole, part = cut.parents[0][0], cut.result
            axis = _cut_axis(whole, part)
            if axis is None:
                continue
            parts = (each.result for each in given if each.name in CUTS)
            known = [each.shape[axis] for each in parts if _cut_axis(whole, each) == axis]
            n, of = part.shape[axis], whole.shape[axis]
            if known and max(known) + n <= of:  # no position is in both
                scaled = _scaled(tape, cut)
                for each in given:
                    over = each.name in OVER_DIMENSIONS and on_purpose(each, axis)
                    if over and any(each.parents[0][0] is one for one in scaled):
                        return Dependence("horizon", each, n, of)
    return None


def _scaled(tape: FunctionTape, cut: TapedCall) -> list[torch.Tensor]:
    """What a call cuts, and what that was before it was scaled."""
    found, waiting = [cut.parents[0][0]], [tape.maker_before(cut, cut.parents[0][0])]
    for made in waiting:  # grows as it is read
        if made is not None and made.name in ("add", "sub", "mul", "div"):
            alike = [each for each, _ in made.parents if each.shape == made.result.shape]
            found += alike
            waiting += [tape.maker_before(made, each) for each in alike]
    return found


def _cut_axis(whole: torch.Tensor, part: torch.Tensor) -> int | None:
    """The only dimension of which it has a part: the first one holds a batch, if there are others."""
    if whole.dim() != part.dim():
        return None
    pairs = enumerate(zip(whole.shape, part.shape, strict=True))
    apart = [axis for axis, (one, other) in pairs if one != other]
    one = len(apart) == 1 and part.shape[apart[0]] > 1 and (apart[0] > 0 or part.dim() == 1)
    return apart[0] if one else None


def _windows(tape: FunctionTape, batch: int) -> Iterator[torch.Tensor]:
    """Data of the form (batch, channels, positions)."""
    seen = set[int]()
    for call in tape.calls.values():
        for (each, _), before in zip(call.parents, call.versions, strict=True):
            data = each.is_floating_point() and not each.requires_grad and version(each) == before
            if not data or each.dim() != 3 or len(each) != batch or id(each) in seen:
                continue
            seen.add(id(each))
            for form in (each.transpose(1, 2), each):
                channels, positions = form.shape[1:]
                if 1 < channels <= MOST_CHANNELS and positions >= max(SHORTEST, 2 * channels):
                    yield form.detach().cpu().double()


def _reaches(window: torch.Tensor, target: torch.Tensor) -> tuple[int, int] | None:
    for one, other in permutations(range(window.shape[1]), 2):
        future = target
        if target.dim() == 3:
            future = target[..., min(other, target.shape[2] - 1)]
        ahead = _ahead(window[:, one], window[:, other], future)
        if ahead:
            return ahead, one
    return None


def _ahead(one: torch.Tensor, other: torch.Tensor, future: torch.Tensor) -> int:
    """How many steps the filter that makes ``one`` of ``other`` reaches ahead; 0 if it is none, or
    looks back, or ``future`` is not what follows.
    """
    positions, around = one.shape[1], min(one.shape[1] // 4, WIDEST)
    values = one[:, 2 * around : positions - around].flatten()
    spread = float(values.std())
    if values.numel() < 4 * around + 4 or spread == 0.0:
        return 0
    near = other.unfold(1, 2 * around + 1, 1)
    centered, error = _fit(near[:, around : positions - 2 * around], values)
    if error > EXACT * spread:
        return 0
    _, error_back = _fit(near[:, : positions - 3 * around], values)
    if error_back < APART * EXACT * spread:
        return 0
    weights = centered[:-1]
    reach = int((weights.abs() > 1e-3 * weights.abs().max()).nonzero().max())
    ahead = reach - around
    at = min(positions - 1, positions - 1 + future.shape[1] - ahead)
    if ahead <= 0 or at < around:
        return 0

    def missed(then: torch.Tensor) -> float:
        known = torch.cat([other, then], 1)[:, at - around : at + ahead + 1]
        made = known @ weights[: reach + 1] + centered[-1]
        return float((made - one[:, at]).abs().median())

    right, wrong = missed(future), missed(future.roll(1, 0))
    return ahead if right <= 10 * EXACT * spread and wrong >= APART * max(right, 1e-12) else 0


def _fit(near: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Weights with a constant behind them, and the median error."""
    every = -(-len(values) // MOST_ROWS)
    rows, values = near.flatten(0, 1)[::every], values[::every]
    rows = torch.cat([rows, rows.new_ones(len(rows), 1)], 1)
    # by singular values: of a wave the columns depend on one another, and other drivers then err
    weights = torch.linalg.lstsq(rows, values[:, None], driver="gelsd").solution[:, 0]
    return weights, float((rows @ weights - values).abs().median())
