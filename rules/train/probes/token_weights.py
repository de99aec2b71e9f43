"""Means over different numbers of tokens that count the same: of micro-batches whose gradients are
added up, or of the pieces of one loss.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from weakref import ref

import torch

from auditor.capture.instruments.live_objects import alive

from .function_tape import FunctionTape, TapedCall
from .paddings import ignored_by
from .pieces import Piece, is_cut, nested, one_model_each, parameters_of, pieces_in
from .second_gradient import NUMBERS, Again, Change, NotRepeated, angle_and_ratio

MEANS = frozenset({"cross_entropy", "nll_loss"})
ONE_BY_ONE = frozenset(
    """
    mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits
    poisson_nll_loss
    """.split()
)
"""Losses of which each number has a target."""

TOGETHER = frozenset({"stack", "cat"})
FORMS = frozenset("view reshape flatten squeeze float to double contiguous clone".split())
PICKS = frozenset({"getitem", "masked_select"})
DEEP = 16
"""Calls between a loss and the backward that are followed."""

MANY = 400
"""Calls that are followed where a loss is a sum."""


@dataclass(frozen=True)
class Mean:
    """A loss that is a mean over tokens, times a factor."""

    at: int
    function: str
    tokens: int
    factor: float
    call: int = 0
    """The number of the call that made it."""
    ragged: bool = False
    """Some of the targets were left out: their number is not that of the batch."""
    long: int = 1
    """Positions of a row; 1 where targets have none."""
    pieces: tuple[Piece, ...] = ()
    """Where its targets lie, if they are views of something."""


def mean_of(tape: FunctionTape, loss: torch.Tensor) -> Mean | None:
    """Over how many tokens a loss is the mean, and where it is divided by a number after that, as
    by the number of micro-batches; None if it is no such mean, or that was not seen.
    """
    factor, tensor, call, divided = 1.0, loss, tape.maker(loss), None
    for _ in range(DEEP):
        if call is None:
            return None
        found = _mean(tape, call, factor)
        if found is not None:
            return found if divided is None else replace(found, at=divided)
        following = _scaled(call, tensor)
        if following is None:
            return None
        tensor, scale = following
        factor *= scale
        divided = call.at if call.name == "div" and divided is None else divided
        call = tape.maker_before(call, tensor)
    return None


def sum_of(tape: FunctionTape, loss: torch.Tensor) -> list[Mean]:
    """Means that a loss is the sum of, in their order, if they are of one line and weigh the same,
    each of another piece of one tensor, and the pieces are not equally long.
    """
    means: dict[int, list[Mean]] = {}
    for mean in _means_in(tape, loss):
        means.setdefault(mean.at, []).append(mean)
    for each in means.values():
        each.sort(key=lambda mean: mean.call)
        made = [tape.calls[mean.call].result for mean in each]
        if weigh_the_same(each) and is_cut([mean.pieces for mean in each]) and one_model_each(made):
            return each
    return []


def weights_of(means: list[Mean]) -> dict[int, Change]:
    """What gives each of these means the weight of its tokens."""
    share = len(means) / sum(mean.tokens for mean in means)
    return {mean.call: partial(_again, weight=mean.tokens * share) for mean in means}


def _again(again: Again, weight: float) -> torch.Tensor:
    made: torch.Tensor = again.function(*again.args, **again.kwargs)
    return made * weight


def weigh_the_same(means: list[Mean]) -> bool:
    """They are multiplied by the same number."""
    factors = [mean.factor for mean in means]
    return max(factors) - min(factors) <= 1e-6 * abs(max(factors))


def _means_in(tape: FunctionTape, loss: torch.Tensor) -> Iterator[Mean]:
    """Means over tokens among the summands of a loss."""
    waiting = [(loss, tape.maker(loss), 1.0, 0)]
    for _ in range(MANY):
        if not waiting:
            return
        tensor, call, factor, divided = waiting.pop()
        if call is None:
            continue
        summands = _summands(tape, call)
        mean = None if summands else _mean(tape, call, factor)
        if mean is not None:
            yield replace(mean, at=divided or mean.at)
            continue
        following = None if summands else _scaled(call, tensor)
        if following is not None:
            scale = following[1]
            divided = divided or (call.at or 0 if call.name == "div" else 0)
            waiting.append(
                (following[0], tape.maker_before(call, following[0]), factor * scale, divided)
            )
        for user, each, scale in summands:
            waiting.append((each, tape.maker_before(user, each), factor * scale, 0))


def _summands(tape: FunctionTape, call: TapedCall) -> list[tuple[TapedCall, torch.Tensor, float]]:
    """What a call adds up, of which call's arguments, and by what each is multiplied."""
    if call.name == "add":
        return [(call, each, 1.0) for each in call.args[:2] if _has_gradient(each)]
    if call.name not in ("mean", "sum") or len(call.args) != 1:
        return []
    together = tape.maker_before(call, call.args[0])
    if together is None or together.name not in TOGETHER or call.kwargs:
        return []
    parts = [each for each, _ in together.parents]
    scale = 1.0 / len(parts) if call.name == "mean" else 1.0
    return [(together, each, scale) for each in parts if each.numel() == 1]


def _scaled(call: TapedCall, made: torch.Tensor) -> tuple[torch.Tensor, float] | None:
    """What a call only scales, and by how much."""
    source = call.argument(0, "input")
    if call.name in FORMS and isinstance(source, torch.Tensor):
        return source, 1.0
    if call.name not in ("mul", "div") or len(call.args) < 2:
        return None
    one, two = call.args[:2]
    if call.name == "mul" and not _has_gradient(one):
        one, two = two, one
    by = _number(two)
    if not _has_gradient(one) or by is None or by == 0.0:
        return None
    return one, by if call.name == "mul" else 1.0 / by


def _mean(tape: FunctionTape, call: TapedCall, factor: float) -> Mean | None:
    if call.at is None:
        return None
    mean = partial(Mean, call.at, call.name, factor=factor, call=call.number)
    if call.name in MEANS and _reduction(call) == "mean":
        target = call.argument(1, "target")
        if call.argument(2, "weight") is not None or target.is_floating_point():
            return None
        kept, scores = int((target != ignored_by(call)).sum()), call.argument(0, "input")
        if kept < target.numel() or _is_picked(tape, scores):
            return mean(kept, ragged=True, long=_positions(tape, target))
        return mean(
            kept, long=_positions(tape, target), pieces=pieces_in(tape, call, target.numel())
        )
    if call.name in ONE_BY_ONE and len(call.args) == 2 and _reduction(call) == "mean":
        numbers = call.args[0].numel()
        plain = call.kwargs.get("weight") is None and call.args[1].numel() == numbers
        return mean(numbers, pieces=pieces_in(tape, call, numbers)) if plain else None
    if call.name == "mean" and len(call.args) == 1 and not call.kwargs:
        numbers, source = int(call.args[0].numel()), tape.maker_before(call, call.args[0])
        if source is not None and source.name in PICKS:
            whole = source.args[0]
            kept = isinstance(whole, torch.Tensor)
            return mean(numbers, ragged=numbers < whole.numel()) if kept else None
        return mean(numbers, pieces=pieces_in(tape, call, numbers))
    if call.name == "div" and len(call.args) > 1 and _has_gradient(call.args[0]):
        return _own_mean(tape, call, factor)
    return None


def _positions(tape: FunctionTape, target: torch.Tensor) -> int:
    made = tape.maker(target)
    if target.dim() == 1 and made is not None and made.name in FORMS:
        target = made.args[0]
    return target.shape[1] if target.dim() == 2 else 1


def _is_picked(tape: FunctionTape, scores: torch.Tensor) -> bool:
    """They are those of the tokens that a mask names."""
    call = tape.maker(scores)
    return (
        call is not None
        and call.name in PICKS
        and any(each.dtype is torch.bool for each, _ in call.parents)
    )


def _own_mean(tape: FunctionTape, call: TapedCall, factor: float) -> Mean | None:
    """``(losses * mask).sum() / mask.sum()``."""
    numerator, by = tape.maker(call.args[0]), call.args[1]
    number = _number(by)
    if numerator is None or number is None or number < 1.0 or not isinstance(by, torch.Tensor):
        return None
    is_sum = numerator.name == "sum" and len(numerator.args) == 1 and not numerator.kwargs
    if is_sum:
        whole = numerator.args[0].numel()
    elif numerator.name in MEANS and _reduction(numerator) == "sum":
        whole = numerator.argument(1, "target").numel()
    else:
        return None
    if call.at is None or number != int(number):
        return None
    tokens = int(number)
    return Mean(call.at, call.name, tokens, factor, call.number, ragged=tokens < whole)


def _reduction(call: TapedCall) -> str:
    return str(call.kwargs.get("reduction", call.args[6] if len(call.args) > 6 else "mean"))


def _has_gradient(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _number(value: object) -> float | None:
    if isinstance(value, (int, float)):
        return float(value)
    if isinstance(value, torch.Tensor) and value.numel() == 1 and not value.requires_grad:
        return float(value)
    return None


@dataclass
class Sums:
    """What micro-batches since the last step added to the gradients: as is, and times tokens."""

    leaves: list[ref[torch.Tensor]] = field(default_factory=list)
    before: list[torch.Tensor | None] = field(default_factory=list)
    plain: list[torch.Tensor | None] = field(default_factory=list)
    weighted: list[torch.Tensor | None] = field(default_factory=list)
    means: list[Mean] = field(default_factory=list)
    parameters: frozenset[int] = frozenset()
    broken: bool = False

    def clear(self) -> None:
        """An optimizer stepped, or gradients were cleared."""
        self.__dict__.update(Sums().__dict__)

    def begins(self, mean: Mean | None, leaves: list[torch.Tensor], *, kept: bool = False) -> None:
        """A backward of this loss is about to add to the gradients of these leaves, and ``kept``: to
        keep its graph.
        """
        if self.means and not any(_grad(alive(each)) is not None for each in self.leaves):
            self.clear()
        numbers = sum(leaf.numel() for leaf in leaves)
        apart = mean is None or any(each.at != mean.at for each in self.means[:1])
        if mean is None or apart or not 0 < numbers <= NUMBERS:
            self.broken = True
            return
        parameters = parameters_of(leaves)
        if kept or not nested(parameters, self.parameters or parameters):
            mean = replace(mean, pieces=())  # of one result, or of another head
        if not self.means:
            self.parameters = parameters
            self.leaves = [ref(leaf) for leaf in leaves]
            self.broken |= any(leaf.grad is not None and bool(leaf.grad.any()) for leaf in leaves)
        elif not self.broken:
            self.before = [_copied(alive(each)) for each in self.leaves]
        if len(self.means) == 1:  # what the first one added is all that there is
            self.plain = [_times(each, 1) for each in self.before]
            self.weighted = [_times(each, self.means[0].tokens) for each in self.before]
        self.means.append(mean)

    def ends(self) -> None:
        """It has."""
        before, self.before = self.before, []
        for index, old in enumerate(before):
            now = _copied(alive(self.leaves[index]))
            if now is None:
                continue
            added = now if old is None else now - old
            self.plain[index] = _sum(self.plain[index], added)
            self.weighted[index] = _sum(self.weighted[index], added * self.means[-1].tokens)

    @property
    def unequal(self) -> bool:
        """All losses are of one line and weigh the same, and their tokens are not as many."""
        means = self.means
        if self.broken or len(means) < 2 or len({mean.at for mean in means}) > 1:
            return False
        counts = {mean.tokens for mean in means}
        if not weigh_the_same(means) or len(counts) == 1 or 0 in counts:
            return False
        # a smaller batch at the end of an epoch has fewer rows, which are as long as the others
        ragged = any(mean.ragged for mean in means) or len({mean.long for mean in means}) > 1
        return ragged or self.cut

    @property
    def cut(self) -> bool:
        """Their targets are pieces of one tensor."""
        return is_cut([mean.pieces for mean in self.means])

    def compared(self) -> tuple[float, float]:
        """Angle and ratio of the norms. Raises NotRepeated where there is none."""
        share = len(self.means) / sum(mean.tokens for mean in self.means)
        pairs = [
            (plain, weighted * share)
            for plain, weighted in zip(self.plain, self.weighted, strict=True)
            if plain is not None and weighted is not None
        ]
        if not pairs:
            raise NotRepeated("no gradient")
        return angle_and_ratio(pairs)


def _sum(one: torch.Tensor | None, two: torch.Tensor) -> torch.Tensor:
    return two if one is None else one + two


def _times(one: torch.Tensor | None, factor: float) -> torch.Tensor | None:
    return None if one is None else one * factor


def _grad(leaf: torch.Tensor | None) -> torch.Tensor | None:
    return None if leaf is None else leaf.grad


def _copied(leaf: torch.Tensor | None) -> torch.Tensor | None:
    grad = _grad(leaf)
    if grad is None or grad.is_sparse:
        return None
    wide = torch.promote_types(grad.dtype, torch.float32)
    return grad.detach().to(wide, copy=True)
