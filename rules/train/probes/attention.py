"""Padding that attention and means over positions read: what positions of the text attend to, computed
again with values that are 1 at padding and 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import Any

import torch

from .function_tape import Call, FunctionTape, version
from .paddings import Beside, is_real
from .second_gradient import Again, computed_again

SEGMENTS = 3
"""Kinds of segments that tokens may belong to."""

REPEATED = 4
"""Times that a row must end in the same token for it to be padding where no mask says so: a text
may end in two full stops.
"""

PRODUCTS = frozenset({"matmul", "bmm", "einsum"})
"""What weighs values by the result of a softmax, which is attention then."""

WEIGHTS = 1 << 26
"""Weights of one text up to which they are computed again: 256 MiB in float32. An attempt that runs
out of memory would be seen as the program's.
"""


@dataclass(frozen=True)
class Tokens:
    """Tokens of a batch, which of them are padding, and what says so."""

    is_padding: torch.Tensor
    """(rows, positions), bool."""
    by: str
    reached: frozenset[int] | None = None
    """Numbers of the calls that come of these tokens and no others; None: of any."""

    @cached_property
    def row(self) -> int:
        """One in the middle of those with padding, by how much: attention is looked at there."""
        pads = self.is_padding.sum(1)
        padded = pads.nonzero().flatten()
        return int(padded[pads[padded].argsort()[len(padded) // 2]])

    @property
    def pads(self) -> torch.Tensor:
        """(positions,): which of this row are padding."""
        return self.is_padding[self.row]


@dataclass(frozen=True)
class Attended:
    """A call of attention, or of a mean: the share of the weights of real positions that is on
    padding, 0 to 1.
    """

    call: Call
    share: float
    tokens: Tokens


def attended_padding(tape: FunctionTape) -> Iterator[Attended]:
    """The share of each line's newest call of attention, over sequences as long as the tokens of the
    batch: 0 where a mask, or causality, keeps padding out. Nothing where the batch has no padding.
    """
    lines = {call.at: call for call in tape.calls.values() if call.name in COMPUTED}
    texts = list(_padded_texts(tape)) if lines else []
    for call in lines.values():
        if call.at is None or not call.gives_gradient or _is_written_over(call):
            continue
        for tokens in (*texts, *_padded_keys(call)):
            if tokens.reached is not None and _source(call) not in tokens.reached:
                continue
            try:
                with torch.no_grad():
                    on_padding = COMPUTED[call.name](tape, call, tokens)
            except (RuntimeError, ValueError, TypeError, IndexError):
                continue  # attention of another form
            if on_padding is not None:
                each = on_padding.flatten(0, -2).float().mean(0)
                real = each[~tokens.pads] if each.shape == tokens.pads.shape else each
                yield Attended(call, float(real.mean()), tokens)
                break


def _is_written_over(call: Call) -> bool:
    return any(
        version(each) != now for (each, _), now in zip(call.parents, call.versions, strict=True)
    )


def _padded_texts(tape: FunctionTape) -> Iterator[Tokens]:
    """Tokens that an embedding was given, where one value stands for padding. Of a shape that two
    texts have, what comes of each of them alone.
    """
    noted = [each for call in tape.calls.values() for each in call.beside or ()]
    texts: dict[torch.Size, list[Call]] = {}
    for call in tape.embeddings:
        tokens = call.argument(0, "input")
        if tokens.dim() == 2 and version(tokens) == call.versions[0] and _is_text(tokens):
            alike = texts.setdefault(tokens.shape, [])
            if not any(tokens.equal(each.argument(0, "input")) for each in alike):
                alike.append(call)
    for alike in texts.values():
        found = [(call, _padded(call, noted)) for call in alike]
        for call, padded in found:
            if padded is None:
                continue
            # positions that are padded alike are this text's, too
            others = [each for each, its in found if each is not call and not _alike(its, padded)]
            reached = (_reached(tape, [each]) for each in others)
            own = _reached(tape, [call]).difference(*reached) if others else None
            yield replace(padded, reached=own)


def _alike(one: Tokens | None, two: Tokens) -> bool:
    return one is not None and torch.equal(one.is_padding, two.is_padding)


def _padded(call: Call, noted: Sequence[Beside]) -> Tokens | None:
    tokens, index = call.argument(0, "input"), call.argument(2, "padding_idx")
    named = [] if index is None else [Beside("padding_idx", tokens != index, is_mask=True)]
    for each in chain(named, noted, _behind_full_masks(tokens, noted)):
        real = is_real(each, tokens)
        if real is not None and _is_padding(tokens, ~real.view_as(tokens)):
            return Tokens(~real.view_as(tokens), each.name)
    return None


def _behind_full_masks(tokens: torch.Tensor, noted: Sequence[Beside]) -> Iterator[Beside]:
    """Rows that end in one token again and again, beside a mask of theirs that leaves nothing out."""
    last = tokens[:, -1].mode().values
    real = tokens != last
    if int((~real).sum(1).max()) < REPEATED:
        return
    for each in noted:
        if each.is_mask and each.named and each.tensor.shape == tokens.shape:
            full = ~each.tensor.bool() if "pad" in each.name.lower() else each.tensor.bool()
            if bool(full.all()):
                yield Beside(f"{each.name} leaves nothing out", real, is_mask=True)
                return


def _padded_keys(call: Call) -> Iterator[Tokens]:
    """Keys that are no text's: padding is where a mask says so and all of them are the same."""
    key = call.argument(1, "key")
    if not isinstance(key, torch.Tensor) or key.dim() not in (3, 4):
        return
    keys = key.transpose(0, 1) if key.dim() == 3 else key.transpose(1, 2).flatten(2)
    for each in call.beside or ():
        real = is_real(each, keys[..., 0])
        apart = None if real is None else ~real.view(keys.shape[:2])
        if apart is not None and _is_padding(keys, apart):
            yield Tokens(apart, each.name)


def _source(call: Call) -> int | None:
    """The number of the call that made what is attended to; of a softmax its own."""
    key = call.argument(1, "key") if call.name in KEYED else call.argument(0, "input")
    return next((number for each, number in call.parents if each is key), None)


def _reached(tape: FunctionTape, starts: Iterable[Call]) -> frozenset[int]:
    """Numbers of these calls, and of those that are computed from them."""
    reached = {each.number for each in starts}
    for each in tape.calls.values():
        if any(number in reached for _, number in each.parents):
            reached.add(each.number)
    return frozenset(reached)


def _is_padding(tokens: torch.Tensor, apart: torch.Tensor) -> bool:
    """One value, in some rows more of it than in others: not what begins every row."""
    pads, each_row = tokens.detach()[apart], apart.sum(1)
    if not len(pads) or bool(each_row.min() == each_row.max()):
        return False
    if pads.is_floating_point():
        return torch.allclose(pads, pads[:1].expand_as(pads))
    return bool((pads == pads[0]).all())


def _is_text(tokens: torch.Tensor) -> bool:
    """Neither positions, which are alike in all rows, nor segments, which are few."""
    return not bool((tokens == tokens[:1]).all()) and tokens.unique().numel() > SEGMENTS


def _of_attention(_: FunctionTape, call: Call, tokens: Tokens) -> torch.Tensor | None:
    """``scaled_dot_product_attention`` of (rows, heads, positions, size), or (rows * heads, ...)."""
    query, key = call.argument(0, "query"), call.argument(1, "key")
    rows, long = tokens.is_padding.shape
    if query.dim() not in (3, 4) or key.shape[-2] != long:
        return None
    if query.shape[0] % rows or (query.dim() == 4 and query.shape[0] != rows):
        return None
    if query[..., 0].numel() // rows * long > WEIGHTS:
        return None

    def of_row(each: torch.Tensor) -> torch.Tensor:
        return each.reshape(rows, -1, *each.shape[-2:])[tokens.row, None]

    def change(again: Again) -> Any:
        given = {**dict(zip(ARGUMENTS, again.args, strict=False)), **again.kwargs}
        mask = given.get("attn_mask")
        if mask is not None:
            given["attn_mask"] = of_row(mask.expand(*query.shape[:-1], long))
        given["query"], given["key"] = of_row(query), of_row(key)
        given["value"] = tokens.pads[:, None].to(key.dtype).expand(*given["key"].shape[:-1], 1)
        return again.function(**{**given, "dropout_p": 0.0})

    on_padding: torch.Tensor = computed_again(call, change)
    return on_padding[..., 0]


ARGUMENTS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")


def _of_layer(_: FunctionTape, call: Call, tokens: Tokens) -> torch.Tensor | None:
    """``multi_head_attention_forward`` of (positions, rows, size)."""
    rows, long = tokens.is_padding.shape
    three, heads = call.args[:3], call.argument(4, "num_heads")
    steps = three[0].shape[0]
    shapes = [each.shape[:2] for each in three]
    if shapes != [(steps, rows), (long, rows), (long, rows)] or heads * steps * long > WEIGHTS:
        return None

    def change(again: Again) -> Any:
        given = {**again.kwargs, "need_weights": True, "training": False}
        padding, hidden = given.get("key_padding_mask"), given.get("attn_mask")
        if padding is not None:
            given["key_padding_mask"] = padding[tokens.row, None]
        if hidden is not None and hidden.dim() == 3:
            given["attn_mask"] = hidden.view(rows, -1, *hidden.shape[1:])[tokens.row]
        here = (each[:, tokens.row, None] for each in three)
        return again.function(*here, *again.args[3:], **given)

    weights: torch.Tensor = computed_again(call, change)[1]
    return (weights[..., :long] * tokens.pads).sum(-1)


def _of_softmax(tape: FunctionTape, call: Call, tokens: Tokens) -> torch.Tensor | None:
    """``softmax`` of (rows, heads, positions, positions), or (rows * heads, ...)."""
    weights = call.result
    rows, long = tokens.is_padding.shape
    if weights.dim() < 3 or weights.shape[-2:] != (long, long) or weights.shape[0] % rows:
        return None
    if call.argument(1, "dim") not in (-1, weights.dim() - 1) or not _weighs(tape, call):
        return None
    return (weights.reshape(rows, -1, long, long)[tokens.row] * tokens.pads).sum(-1)


def _weighs(tape: FunctionTape, call: Call) -> bool:
    """The result goes into a product, directly or through one function, as dropout."""
    after = {call.number}
    for each in tape.calls.values():
        if after & {number for _, number in each.parents}:
            if each.name in PRODUCTS:
                return True
            if len(after) == 1:
                after.add(each.number)
    return False


def _of_mean(tape: FunctionTape, call: Call, tokens: Tokens) -> torch.Tensor | None:
    """``mean`` over the positions of (rows, positions, size) that come of an embedding; nothing where
    padding was set to zero before.
    """
    given, dim = call.argument(0, "input"), call.argument(1, "dim")
    axis = dim[0] if isinstance(dim, (list, tuple)) and len(dim) == 1 else dim
    if given.dim() != 3 or given.shape[:2] != tokens.is_padding.shape or axis not in (1, -2):
        return None
    if not bool(given[tokens.row][tokens.pads].any()) or not _is_embedded(tape, call, tokens):
        return None
    return tokens.pads.float().mean().expand(1, len(tokens.pads))


def _is_embedded(tape: FunctionTape, call: Call, tokens: Tokens) -> bool:
    """It is computed from an embedding of tokens of this shape."""
    shape = tokens.is_padding.shape
    alike = (each for each in tape.embeddings if each.argument(0, "input").shape == shape)
    return call.number in _reached(tape, alike)


KEYED = frozenset({"scaled_dot_product_attention", "multi_head_attention_forward"})

COMPUTED = {
    "mean": _of_mean,
    "scaled_dot_product_attention": _of_attention,
    "multi_head_attention_forward": _of_layer,
    "softmax": _of_softmax,
}
