"""Ends of texts that are never targets, as they are padding; prompts of padded rows that are."""

from collections.abc import Iterator

import torch

from .dependence import Dependence
from .function_tape import FunctionTape, TapedCall, version
from .paddings import NAMES, SEGMENTS, ignored_by

PADDED = 3
"""Padded rows that must say the same: a token may be the end of a prompt by chance."""


def ends_ignored(tape: FunctionTape, call: TapedCall) -> Iterator[Dependence]:
    """Of a loss over next tokens: the token that ends each text is ignored in all rows, while the one
    before it is a target. ``n`` is that token, ``of`` the number of rows.
    """
    for tokens, labels, kept in _next_tokens(tape, call):
        end, first = _end_of(tokens)
        if first is None:
            continue
        following = tokens[:, 1:]
        shifted = bool((labels == following)[kept].all())
        before = kept.gather(1, first[:, None] - 2)  # the last token that is none
        if shifted and bool(before.all()) and not bool((kept & (following == end)).any()):
            yield Dependence("end", call, end, len(tokens))


def _next_tokens(
    tape: FunctionTape, call: TapedCall
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Of a loss over classes: (rows, positions) of tokens, and targets for all but the first of them,
    with whether the loss counts each. An embedding got all of them, or all but the last target.
    """
    target = call.argument(1, "target")
    if call.name not in NAMES or call.at is None or target.is_floating_point():
        return
    for embedding in tape.embeddings:
        tokens = embedding.argument(0, "input")
        if tokens.dim() != 2 or version(tokens) != embedding.versions[0] or len(tokens) < 2:
            continue
        if target.numel() == tokens.numel():
            last = target.reshape(tokens.shape)[:, -1:]
            if bool((last == ignored_by(call)).all()):  # then no target says which tokens these are
                last = tokens[:, -1:].mode(0, keepdim=True).values.expand_as(last)
            tokens = torch.cat([tokens, last], 1)
        if target.numel() == tokens[:, 1:].numel():
            labels = target.reshape(tokens[:, 1:].shape)
            yield tokens, labels, labels != ignored_by(call)


def _end_of(tokens: torch.Tensor) -> tuple[int, torch.Tensor | None]:
    """The token that ends all rows, once in the longest one and again and again in the others, which
    are padded with it; and where it comes first in each.
    """
    end, long = int(tokens[0, -1]), tokens.shape[1]
    others = (tokens != end).long().cumsum(1)
    first = long - (others == others[:, -1:]).sum(1) + 1  # behind the last other token
    runs = long - first
    ends = bool((tokens[:, -1] == end).all()) and int(runs.min()) == 1 < int(runs.max())
    if not ends or tokens.unique().numel() <= SEGMENTS or int(first.min()) <= 1:
        return end, None
    before = tokens.gather(1, first[:, None] - 1)
    return end, first if before.unique().numel() > 1 else None  # else it ends the texts


def prompts_trained(tape: FunctionTape, call: TapedCall) -> Iterator[Dependence]:
    """Of a loss over next tokens whose rows are padded on the left, and ignored up to some position:
    nothing but padding is ignored in padded rows, while others have more that is; or less than in
    others by just the padding. ``n`` is the number of these rows, ``of`` that of all.
    """
    for tokens, labels, kept in _next_tokens(tape, call):
        if tokens.unique().numel() <= SEGMENTS:
            continue
        following = tokens[:, 1:]
        whole = bool((kept.diff(dim=1) <= kept[:, 1:]).all())  # what is ignored comes first
        padded = (tokens == tokens[:, :1].mode(0).values).long().cumprod(1).sum(1)
        if not (whole and bool((labels == following)[kept].all())):
            continue
        positions = torch.arange(following.shape[1], device=tokens.device)
        ignored = (~kept & (positions >= padded[:, None])).sum(1)
        bare = (ignored == 0) & (padded > 1)
        if (
            bool(bare.any())
            and bool((ignored[padded == 0] > 0).all())
            and bool((ignored > 0).any())
        ):
            yield Dependence("prompt", call, int(bare.sum()), len(tokens))
        elif early := _ends_too_early(following, (~kept).sum(1), padded):
            yield Dependence("prompt", call, early, len(tokens))


def _ends_too_early(following: torch.Tensor, ignored: torch.Tensor, padded: torch.Tensor) -> int:
    """Rows whose prompt ends later than what is ignored, by as much as they are padded: the token
    there is the one that all whole rows ignore last. 0 if that is not so of all padded ones.
    """
    whole, moved = (padded == 0) & (ignored > 0), padded > 0
    ends, long = following[whole].gather(1, ignored[whole, None] - 1), following.shape[1]
    if not len(ends) or bool((ends != ends[0]).any()) or int(moved.sum()) < PADDED:
        return 0
    last, shift = ignored[moved, None] - 1, padded[moved, None]
    if bool((last < shift).any()) or bool((last + shift >= long).any()) or len(shift.unique()) < 2:
        return 0
    rows = following[moved]
    early = (rows.gather(1, last) != ends[0]) & (rows.gather(1, last + shift) == ends[0])
    return len(early) if bool(early.all()) else 0
