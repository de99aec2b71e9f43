"""Padding that attention, recurrent layers and sums over positions read.

The gradient says so, as it does in :mod:`.dependence`: a call is computed again for one row of the
batch, and what its result at real positions makes of the values at padding is zero where a mask,
causality or packing keeps them out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from auditor.capture.instruments.plain_tensor import tensors

from ..rows import LARGEST, NORMS, RECURRENT
from .activations import PASSED
from .dependence import PICKING, attention_of, mask_of, softmax_behind
from .function_tape import FunctionTape, TapedCall, only_axis, version
from .padded_texts import (
    AVERAGES,
    COUNTING,
    POOLING,
    TextRow,
    Tokens,
    padded_sequence,
    padded_texts,
    reached_from,
)
from .second_gradient import Again, computed_again, nothing_left_behind

VALUES = {
    "scaled_dot_product_attention": (2, "value"),
    "multi_head_attention_forward": (2, "value"),
    "matmul": (1, "other"),
    "bmm": (1, "mat2"),
    "einsum": (2, "operands"),
    **dict.fromkeys(POOLING | RECURRENT | {"getitem"}, (0, "input")),
}
"""The argument that may hold padding, by function; of a product the second factor."""

READING = VALUES.keys() - {"getitem", "matmul", "bmm", "einsum"} | NORMS | {"softmax"}
"""Functions that are reported: their lines are kept, and the masks and lengths in the frames around."""

SEQUENCES = READING - POOLING - NORMS - {"softmax"}
"""Those that may read sequences of numbers as well as texts."""

PARTS = PICKING | frozenset("gather take_along_dim select chunk split unbind".split())
"""Functions that may read a part of what a recurrent layer gives."""

FLIPS = frozenset("flip fliplr index_select getitem".split())

WEIGHTS = 1 << 26
"""Numbers of one row that are computed again at most: 256 MiB in float32. An attempt that runs out
of memory would be seen as the program's.
"""


@dataclass(frozen=True)
class PaddingRead:
    """A call that reads padding."""

    call: TapedCall
    share: float
    """Of what its result at real positions takes from one row, 0 to 1: the part that is on padding."""
    tokens: Tokens
    zero: bool
    """A mean that only counts padding: it is zero there."""


def padding_reads(tape: FunctionTape) -> Iterator[PaddingRead]:
    """Each line's newest call that may read padding, and how much; nothing without padding."""
    readers = {}
    for call in tape.calls.values():
        reader = _reader(tape, call)
        if reader is not None and reader.at is not None:
            readers[reader.at, call.name] = call, reader
    norms = [each for each in tape.calls.values() if each.name in NORMS and each.at is not None]
    texts = list(padded_texts(tape)) if readers or norms else []
    yield from _last_of_unpacked(tape)
    yield from _counted_from_padding(tape, texts)
    yield from _averaged_over_padding(tape, texts)
    yield from _normalised_with_padding(tape, norms, texts)
    for call, reader in readers.values():
        if _is_written_over(call):
            continue
        own = padded_sequence(reader, _value(reader)) if reader.name in SEQUENCES else None
        for tokens in texts if own is None else (*texts, own):
            if not _comes_of(tape, call, tokens):
                continue
            try:
                with nothing_left_behind():
                    share = _share(tape, call, tokens)
                    begun = _begun_in_padding(tape, call, tokens) if share is None else None
            except (RuntimeError, ValueError, TypeError, IndexError, KeyError):
                continue  # of another form
            if begun is not None:
                yield begun
                break
            if share is not None:
                zero = call.name in AVERAGES and not _is_set(call, tokens)
                if not (zero and _is_rescaled(tape, call)):
                    picks = call.name == "getitem" and call.at is not None
                    told = replace(reader, at=(call if picks else mask_of(tape, reader)).at)
                    yield PaddingRead(told, share, tokens, zero)
                break


def _begun_in_padding(tape: FunctionTape, call: TapedCall, tokens: Tokens) -> PaddingRead | None:
    """A recurrent layer one direction of which comes to the padding before the text: the backward
    one, or the other where the program flipped the batch.
    """
    value, pads = _value(call), tokens.is_padding
    if call.name not in RECURRENT or value.dim() != 3 or bool(pads[:, 0].any()):
        return None
    both, axis = bool(call.argument(7, "bidirectional")), int(bool(call.argument(8, "batch_first")))
    flipped, size = _is_flipped(tape, call, tokens), call.result.shape[-1] // (1 + both)
    if value.shape[axis] != pads.shape[1] or not (flipped or both):
        return None
    seen = replace(tokens, is_padding=pads.flip(1)) if flipped else tokens
    biased = call.argument(3, "has_biases") or _is_set(call, seen)  # else the state stays zero
    if not biased or call.number not in reached_from(tape, tokens.readers):
        return None
    half, word = (slice(size), "flipped") if flipped else (slice(size, None), "backward")
    for row in seen.rows:
        share = _share_of_row(tape, call, row, half) if _is_read(tape, call, row, half) else None
        if share is not None:
            return PaddingRead(replace(call, name=f"{word} {call.name}"), share, tokens, zero=False)
    return None


def _is_flipped(tape: FunctionTape, call: TapedCall, tokens: Tokens) -> bool:
    """The positions were turned round between the tokens and the call, all rows alike."""
    flipped = False
    made: TapedCall | None = call
    while made is not None and made.parents:
        given = made.parents[0][0]
        axis = only_axis(given, tokens.is_padding.shape[1]) if made.name in FLIPS else None
        flipped ^= axis is not None and torch.equal(made.result, given.flip(axis))
        made = None if made in tokens.readers else tape.maker_before(made, given)
    return flipped


def _is_read(tape: FunctionTape, call: TapedCall, row: TextRow, half: slice) -> bool:
    """The program reads this half of the layer's outputs at real positions of the row."""
    used, read = call.result, _read(tape)
    leaf = used.detach().requires_grad_()
    for each in tape.users(call):
        if not any(given is used for given, _ in each.parents):
            continue
        if each.name not in PARTS:
            return True
        again = computed_again(each, None, lambda given: leaf if given is used else given)
        parts = zip(each.results, tensors((again,)), strict=True)
        sums = [new.sum() for old, new in parts if id(old) in read]
        if sums:
            (gradient,) = torch.autograd.grad(torch.stack(sums).sum(), leaf)
            if bool(_real_outputs(row, row.of(gradient), half).any()):
                return True
    return False


def _real_outputs(row: TextRow, outputs: torch.Tensor, half: slice) -> torch.Tensor:
    axis = row.positions_axis(outputs[..., 0])
    return outputs.movedim(axis or 0, 0)[~row.pads][..., half]


def _counted_from_padding(tape: FunctionTape, texts: Sequence[Tokens]) -> Iterator[PaddingRead]:
    """Positions that are the same in each row, beside texts that are padded in front."""
    for tokens in texts:
        pads = tokens.is_padding
        if not bool(pads[:, 0].any()) or bool(pads[:, -1].any()):
            continue
        for call in tape.embeddings:
            ids = call.argument(0, "input")
            each_row = ids.reshape(-1, pads.shape[1]) if ids.numel() % pads.shape[1] == 0 else ids
            counts = each_row.dim() == 2 and bool((each_row.diff() == 1).all())
            if call.at is not None and counts and bool((each_row == each_row[:1]).all()):
                in_front = pads.sum(1).double().mean() / pads.shape[1]
                yield PaddingRead(call, float(in_front), tokens, zero=False)


def unpacked(tape: FunctionTape, made: TapedCall | None) -> TapedCall | None:
    """The call of ``pad_packed_sequence`` that made what ``made`` gave, in the order of its rows."""
    if made is not None and made.name == "index_select":
        made = tape.maker_before(made, made.parents[0][0])
    return made if made is not None and made.name == "_pad_packed_sequence" else None


def _last_of_unpacked(tape: FunctionTape) -> Iterator[PaddingRead]:
    """The last position of what was packed, which shorter rows do not have, if no other is picked."""
    for call in tape.calls.values():
        made = tape.maker_before(call, call.parents[0][0]) if call.name == "getitem" else None
        padded = unpacked(tape, made)
        if made is None or padded is None or call.at is None or not call.gives_gradient:
            continue
        value, lengths = call.args[0], padded.results[1]
        axis = int(bool(padded.argument(2, "batch_first")))
        last = value.select(axis, -1)
        alone = sum(each.name in ("getitem", "select", "unbind") for each in tape.users(made)) == 1
        if alone and last.shape == call.result.shape and torch.equal(last, call.result):
            pads = torch.arange(value.shape[axis]) >= lengths[:, None]
            if bool(pads.any()):
                tokens = Tokens(pads, "pad_packed_sequence")
                yield PaddingRead(
                    replace(call, name="pad_packed_sequence"), 1.0, tokens, zero=False
                )


def _averaged_over_padding(tape: FunctionTape, texts: Sequence[Tokens]) -> Iterator[PaddingRead]:
    """Means of one number for each token, those of padding too, by which these get a gradient."""
    for tokens in texts:
        pads = tokens.is_padding
        after = reached_from(tape, tokens.readers)
        for call in tape.calls.values():
            value = _value(call) if call.name == "mean" and call.number in after else None
            if value is None or call.at is None or not call.gives_gradient or call.result.dim():
                continue
            if value.shape not in (pads.shape, pads.flatten().shape) or pads.shape[0] == 1:
                continue
            counted = value.detach().reshape(pads.shape)[pads]
            made = tape.maker_before(call, value)
            if made is not None and made.name == "neg":
                made = tape.maker_before(made, made.parents[0][0])
            # not of what a target picks: that is told at its line
            if made is not None and made.name in ("mean", "add") and bool(counted.all()):
                share = float(counted.numel()) / pads.numel()
                yield PaddingRead(replace(call, name="tokens"), share, tokens, zero=False)


def _normalised_with_padding(
    tape: FunctionTape, norms: Sequence[TapedCall], texts: Sequence[Tokens]
) -> Iterator[PaddingRead]:
    """Norms whose statistics run over positions, those of padding too."""
    for tokens in texts if norms else ():
        pads = tokens.is_padding
        after = reached_from(tape, tokens.readers)
        for call in norms:
            if call.number not in after:
                continue
            value = call.parents[0][0]
            rows = value.dim() == 2 and len(value) == pads.numel()
            axis = only_axis(value, pads.shape[1]) if value.dim() == 3 else None
            of_batch = call.name == "batch_norm" and bool(call.argument(5, "training"))
            if (of_batch and rows) or (
                (of_batch or call.name != "batch_norm") and axis == 2 and len(value) == len(pads)
            ):
                share = float(pads.double().mean())
                yield PaddingRead(call, share, tokens, zero=False)


def _is_set(call: TapedCall, tokens: Tokens) -> bool:
    """Some padding of what a call was given is not zero."""
    for row in tokens.rows:
        value = row.of(_value(call))
        if bool(value.movedim(row.positions_axis(value) or 0, 0)[row.pads].any()):
            return True
    return False


def _is_rescaled(tape: FunctionTape, call: TapedCall) -> bool:
    """The program multiplies or divides the result by a tensor next, as the share of what is real."""
    for each in tape.users(call):
        scales = each.name in ("div", "mul")
        if scales and len(each.parents) > 1:
            return True
        if (scales or each.name in PASSED) and _is_rescaled(tape, each):
            return True
    return False


def _reader(tape: FunctionTape, call: TapedCall) -> TapedCall | None:
    """The call that is told where this one reads padding: of a product the softmax in front of it,
    where the mask belongs, of a state that is picked the recurrent layer. None of any other.
    """
    if call.name not in VALUES or not (call.gives_gradient or call.name in AVERAGES):
        return None
    if call.name == "getitem":
        made = tape.maker_before(call, call.args[0])
        while made is not None and made.name == "dropout":
            made = tape.maker_before(made, made.argument(0, "input"))  # it may give it back
        return made if made is not None and made.name in RECURRENT else None
    if call.name in ("matmul", "bmm", "einsum"):
        reader = attention_of(tape, call)
        return reader if reader.name == "softmax" else None
    if call.name == "sum":
        _, softmax = _shares_summed(tape, call)
        return softmax or call
    return call if call.at is not None else None


def _shares_summed(
    tape: FunctionTape, call: TapedCall
) -> tuple[torch.Tensor | None, TapedCall | None]:
    """Of ``(shares * x).sum(1)``: the shares, and the softmax that made them."""
    product = tape.maker_before(call, call.argument(0, "input")) if call.name == "sum" else None
    if product is not None and product.name == "mul":
        for factor, _ in product.parents:
            softmax = softmax_behind(tape, product, factor)
            if softmax is not None:
                return factor, softmax
    return None, None


def _value(call: TapedCall) -> Any:
    index, name = VALUES[call.name]
    return call.argument(index, name)


def _comes_of(tape: FunctionTape, call: TapedCall, tokens: Tokens) -> bool:
    if call.name in POOLING and call.number not in reached_from(tape, tokens.readers):
        return False
    if call in tokens.readers:
        return True
    value = _value(call)
    source = next((number for each, number in call.parents if each is value), None)
    return tokens.reached is None or source in tokens.reached


def _is_written_over(call: TapedCall) -> bool:
    return any(
        version(each) != now for (each, _), now in zip(call.parents, call.versions, strict=True)
    )


def _share(tape: FunctionTape, call: TapedCall, tokens: Tokens) -> float | None:
    """The gradient on padding at the call's values, of the first such row; None of other forms."""
    share = None
    shares, _ = _shares_summed(tape, call)
    for row in tokens.rows:
        if not _may_read(call, row, weighed=shares is not None):
            return None
        if shares is None:
            share = _share_of_row(tape, call, row)
        else:
            share = _on_padding(row.of(shares.detach()), row)
        if share != 0.0:
            break
    return share


def _share_of_row(
    tape: FunctionTape, call: TapedCall, row: TextRow, half: slice | None = None
) -> float | None:
    """``half``: of these outputs of a recurrent layer at real positions, not of its last states."""
    if call.name in LARGEST:  # its gradient also lies on padding that is only as large
        value = row.of(_value(call).detach())
        places = value.movedim(row.positions_axis(value) or 0, 0)
        return float((places[row.pads].amax(0) > places[~row.pads].amax(0)).double().mean())
    leaf = torch.empty(0)

    def own_leaf(value: torch.Tensor) -> torch.Tensor:
        nonlocal leaf
        leaf = value.detach().requires_grad_()
        return leaf

    def change(again: Again) -> Any:
        return again.with_argument(*VALUES[call.name], own_leaf)

    made = list(tensors((computed_again(call, change, partial(_of_row, call, row)),)))
    if half is not None:
        chosen = [_real_outputs(row, made[0], half)]
    elif call.name in RECURRENT:
        chosen = _states_used(tape, call, made)
    else:
        axis = row.positions_axis(made[0])
        chosen = [made[0] if axis is None else made[0].movedim(axis, 0)[~row.pads]]
    if not chosen:
        return None
    total = torch.stack([each.sum() for each in chosen]).sum()
    (gradient,) = torch.autograd.grad(total, leaf)
    return _on_padding(gradient, row)


def _on_padding(tensor: torch.Tensor, row: TextRow) -> float | None:
    axis = row.positions_axis(tensor)
    if axis is None or not bool(tensor.isfinite().all()):
        return None
    positions = tensor.abs().movedim(axis, 0).flatten(1).double().sum(1)
    whole = float(positions.sum())
    return float(positions[row.pads].sum()) / whole if whole else None


def _of_row(call: TapedCall, row: TextRow, tensor: torch.Tensor) -> torch.Tensor:
    state = call.name in RECURRENT and tensor is not _value(call)  # (layers, rows, size)
    first = call.name == "multi_head_attention_forward" or state
    return row.of(tensor, positions_first=first)


def _may_read(call: TapedCall, row: TextRow, *, weighed: bool) -> bool:
    """The call's values are a sequence as long as the tokens, and it is one that may not read all of
    them. ``weighed``: it sums them with shares of attention.
    """
    value, pads = _of_row(call, row, _value(call)), row.pads
    axis, rows = row.positions_axis(value), len(row.tokens.is_padding)
    if axis is None or rows == len(pads) or not bool(value.isfinite().all()):
        return False
    if call.name in POOLING:
        pooled = call.result.dim() > 1 and row.positions_axis(row.of(call.result)) is None
        set_there = bool(value.movedim(axis, 0)[pads].any())
        if call.name == "mean" and not call.result.dim():
            return value.dim() in (2, 3) and axis == 1 and not set_there  # of a masked loss
        if call.name in AVERAGES - {"mean"} and call.result.shape[-1] > 1:
            return False  # fewer positions
        adds = call.name in AVERAGES | COUNTING or set_there
        return value.dim() == 3 and pooled and (adds or weighed)  # zeros add nothing to a sum
    if call.name == "getitem":
        return call.result.dim() == value.dim() - 1
    if call.name in RECURRENT:
        ends = bool(pads[-1]) and not bool(pads[0])  # what lies in front is forgotten
        return ends and axis == int(bool(call.argument(8, "batch_first")))
    if call.name == "multi_head_attention_forward" and axis:
        return False
    queries = _of_row(call, row, call.parents[0][0])
    heads = call.argument(4, "num_heads") if call.name == "multi_head_attention_forward" else 1
    return queries[..., 0].numel() * heads * len(pads) <= WEIGHTS


def _states_used(
    tape: FunctionTape, call: TapedCall, made: Sequence[torch.Tensor]
) -> list[torch.Tensor]:
    """The last states of a recurrent layer's forward direction, of those that the program reads."""
    read = _read(tape)
    step = 2 if call.argument(7, "bidirectional") else 1
    states = zip(call.results[1:], made[1:], strict=True)
    return [now[::step] for old, now in states if id(old) in read]


def _read(tape: FunctionTape) -> set[int]:
    """The tensors that the program reads, by their ``id``."""
    return {
        id(tensor)
        for each in tape.calls.values()
        for tensor, _ in each.parents
        if each.name != "detach"
    }
