"""Targets of a causal language model that are its own inputs, or those two positions on.

Three things must hold to the bit. The predictions are rows of an output with one row for each
token; the targets are these tokens, at one distance only; and the gradient of an output in the
middle reaches the embeddings at and before it, and none behind it. So a model that sees the whole
row, one that shifts its inputs itself, and one that has no other position to learn from stay out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch

from auditor.capture.instruments.autograd_graph import Walk

from . import paddings
from .activations import behind
from .function_tape import FunctionTape, TapedCall, version
from .second_gradient import Again, Change, Tail, nothing_left_behind, walkable

DISTANCES = (0, 1, 2)
"""Positions from an input to its target; 1 is the next token."""

CUT = 3
"""Positions at most of which a row has no prediction: a shift or two."""

NUMBERS = 8
"""Numbers of an output by which it is known again among the predictions."""

LEAST = 8
"""Targets that must be compared, at least."""


@dataclass(frozen=True)
class Shifted:
    """A loss whose targets are the tokens of ``embedding`` at a ``distance``."""

    call: TapedCall
    embedding: TapedCall
    output: torch.Tensor
    axis: int
    """That of the positions, 0 or 1."""
    distance: int
    targets: int
    asked: torch.Tensor
    """Where the loss counts a target: (positions, rows)."""

    @property
    def asked_position(self) -> int | None:
        """The position nearest to the middle that is asked in each row and has one behind it; None
        if there is none: a prefix may be read whole.
        """
        asked = self.asked[:-1].all(1).nonzero().flatten()
        middle = len(self.asked) // 2
        return int(asked[(asked - middle).abs().argmin()]) if len(asked) else None

    @property
    def change(self) -> Change:
        """The loss with the next tokens as targets."""
        by, edge = (-1, -1) if self.distance == 0 else (1, 0)
        others = self.output.shape[1 - self.axis]
        grid = (others, -1) if self.axis else (-1, others)
        ignored = paddings.ignored_by(self.call)

        def moved(target: torch.Tensor) -> torch.Tensor:
            new = target.reshape(grid).roll(by, self.axis)
            new.select(self.axis, edge).fill_(ignored)
            return new.reshape(target.shape)

        def change(again: Again) -> torch.Tensor:
            result: torch.Tensor = again.with_argument(1, "target", moved)
            return result

        return change

    def reached(
        self, result: torch.Tensor, axis: int, position: int, row: int | None = None
    ) -> torch.Tensor | None:
        """(positions,): the tokens that ``result`` depends on at a position of its ``axis``, of one
        row or of any; None if its gradient is not there or not finite.
        """
        with nothing_left_behind():
            chosen = result.select(axis, position)
            chosen = chosen if row is None else chosen.select(0, row)
            weights = torch.linspace(-1, 1, chosen.shape[-1]).to(chosen)
            (gradient,) = torch.autograd.grad(
                chosen,
                self.embedding.result,
                weights.expand_as(chosen),
                retain_graph=True,
                allow_unused=True,
            )
        if gradient is None or not bool(gradient.isfinite().all()):
            return None
        gradient = gradient.movedim(self.axis, 0)
        of_row = gradient if row is None else gradient[:, row]
        return of_row.flatten(1).ne(0).any(1)

    def is_causal(self) -> bool:
        """An output in the middle depends on its own token, on one before, and on none behind."""
        middle = self.output.shape[self.axis] // 2
        reached = self.reached(self.output, self.axis, middle)
        if reached is None:
            return False
        return bool(reached[middle] & reached[:middle].any() & ~reached[middle + 1 :].any())


class Shifts:
    """Finds them; asks the gradient once for each line."""

    def __init__(self) -> None:
        self._causal: dict[tuple[int | None, int, int], bool] = {}
        self.next_token: tuple[Shifted, ...] = ()
        """Losses of the tail that was looked at last whose targets are the next tokens."""

    def of(self, tape: FunctionTape, tail: Tail, walked: Walk | None) -> Iterator[Shifted]:
        """The losses of a tail that are shifted wrongly; none where one of them is right. Those of
        the next token stay in :attr:`next_token`.

        ``walked`` is None if a second backward may run code of the program's.
        """
        self.next_token = ()
        if walked is None or not walkable(walked):
            return
        found = [
            (each, (call.at, each.axis, number))
            for call in tail.calls
            for number, embedding in enumerate(tape.embeddings)
            for each in _matches(tape, call, embedding)
        ]
        self.next_token = tuple(each for each, _ in found if each.distance == 1)
        if len(self.next_token) == len(found):
            return
        for each, key in found:
            if key not in self._causal:
                try:
                    self._causal[key] = each.is_causal()
                except RuntimeError:  # a graph that may be walked once
                    return
        causal = [each for each, key in found if self._causal[key]]
        if len({each.distance for each in causal}) != 1 or causal[0].distance == 1:
            return
        yield from {each.call.number: each for each in reversed(causal)}.values()


def _matches(tape: FunctionTape, call: TapedCall, embedding: TapedCall) -> Iterator[Shifted]:
    given, target = call.argument(0, "input"), call.argument(1, "target")
    tokens = embedding.argument(0, "input")
    if call.name not in paddings.NAMES or call.at is None or not embedding.gives_gradient:
        return
    if tokens.dim() != 2 or version(tokens) != embedding.versions[0]:
        return
    if given.dim() < 2 or target.is_floating_point() or not target.numel():
        return
    scores = tape.maker(given)
    if scores is not None and scores.name == "log_softmax" and given.dim() == 2:
        given = scores.argument(0, "input")
    rows = given.detach().movedim(1, -1).flatten(0, -2)
    for output, axis in product(_outputs(tape, call, given, tokens), (1, 0)):
        distance, asked = _distance(
            tokens.movedim(axis, 0),
            output.detach().movedim(axis, 0),
            rows,
            target.flatten(),
            paddings.ignored_by(call),
            of_columns=axis == 1,
        )
        if distance is not None:
            yield Shifted(call, embedding, output, axis, distance, int(asked.sum()), asked)


def _outputs(
    tape: FunctionTape, call: TapedCall, given: torch.Tensor, tokens: torch.Tensor
) -> Iterator[torch.Tensor]:
    """What the predictions may have been taken from: a row of numbers for each token. Rows before
    those (of an image, of a learned prompt) are left out.
    """
    path, _ = behind(tape, call, given)
    classes_last = (given.movedim(1, -1),) if given.dim() == 3 else ()
    forms = (given, *classes_last, *(made.argument(0, "input") for made in reversed(path)))
    for each in forms:
        more = [size - kept for size, kept in zip(each.shape, tokens.shape, strict=False)]
        if each.dim() == 3 and each.requires_grad and min(more) == 0:
            axis = more.index(max(more))
            yield each.narrow(axis, more[axis], tokens.shape[axis])
            if not more[axis]:
                return  # the form of the tokens: what it came from has the same numbers


def _distance(
    tokens: torch.Tensor,
    output: torch.Tensor,
    rows: torch.Tensor,
    target: torch.Tensor,
    ignored: int,
    *,
    of_columns: bool,
) -> tuple[int | None, torch.Tensor]:
    """How many positions the targets are on from the inputs, the only number that fits; and which
    targets were compared. Tokens are (positions, rows), predictions as the loss has them.
    """
    none = torch.zeros_like(tokens, dtype=torch.bool)
    positions, others = tokens.shape
    long, rest = divmod(len(target), others)
    if rest or not max(2, positions - CUT) <= long <= positions:
        return None, none
    form = (others, long) if of_columns else (long, others)

    def arranged(flat: torch.Tensor) -> torch.Tensor:
        grid = flat.reshape(*form, *flat.shape[1:])
        return grid.transpose(0, 1) if of_columns else grid

    some, whole = arranged(rows[:, :NUMBERS]).float(), output[..., :NUMBERS].float()
    starts = [
        start
        for start in range(positions - long + 1)
        if torch.equal(some, whole[start : start + long])
    ]
    if len(starts) != 1:
        return None, none
    wanted = arranged(target)
    fits: list[tuple[int, torch.Tensor]] = []
    for distance in DISTANCES:
        there = tokens[starts[0] + distance :][:long]
        asked = wanted[: len(there)]
        kept = asked != ignored
        if int(kept.sum()) >= LEAST and bool((asked == there)[kept].all()):
            there = none.clone()
            there[starts[0] :][: len(kept)] = kept
            fits.append((distance, there))
    return fits[0] if len(fits) == 1 else (None, none)
