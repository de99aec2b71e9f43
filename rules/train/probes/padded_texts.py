"""Texts and other sequences of a batch that are padded, and what says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, product
from typing import Any

import torch

from ..rows import LARGEST, NORMS
from .function_tape import FunctionTape, TapedCall, only_axis, version
from .paddings import COMPARING, NAMES, SEGMENTS, Beside, Padded, is_real
from .second_gradient import Again

INPUTS = 8
"""Sequences of numbers that are looked at."""

LENGTHS_OF_CTC = ((2, "input_lengths"), (3, "target_lengths"))

PADS = frozenset({"pad", "is_pad"})
"""Names of masks that are true at padding, and say nothing else."""

AVERAGES = frozenset({"mean", "adaptive_avg_pool1d", "avg_pool1d"})
COUNTING = frozenset({"logsumexp", "var", "std"})
"""Functions to which a zero is a value like others."""

POOLING = AVERAGES | COUNTING | LARGEST | {"sum"}

CHANNELS_FIRST = NORMS | {"conv1d"}

REPEATED = 4
"""Times that a row must end in one token for it to be padding without a mask."""


MOST_ROWS = 8
"""Rows of a batch that are looked at: a mask of another text leaves out the padding of some."""


@dataclass(frozen=True)
class Tokens:
    """Tokens of a batch, which of them are padding, and what says so."""

    is_padding: torch.Tensor
    """(rows, positions), bool."""
    by: str
    readers: tuple[TapedCall, ...] = ()
    """The calls that are given them."""
    reached: frozenset[int] | None = None
    """Numbers of the calls that come of these tokens and no others; None: of any."""

    @property
    def rows(self) -> Iterator[TextRow]:
        """Those with padding, the one in the middle by how much first."""
        pads = self.is_padding.sum(1)
        padded = pads.nonzero().flatten()
        order = padded[pads[padded].argsort()].tolist()
        yield TextRow(self, order.pop(len(order) // 2))
        few = order[:: -max(1, -(-len(order) // (MOST_ROWS - 1)))]
        yield from (TextRow(self, number) for number in few)

    def is_alike(self, others: Iterable[Tokens]) -> bool:
        """One of the others is padded at the same positions."""
        return any(torch.equal(self.is_padding, each.is_padding) for each in others)


@dataclass(frozen=True)
class TextRow:
    """One row of a batch."""

    tokens: Tokens
    number: int

    @property
    def pads(self) -> torch.Tensor:
        """(positions,): which of this row are padding."""
        return self.tokens.is_padding[self.number]

    def of(self, tensor: torch.Tensor, *, positions_first: bool = False) -> torch.Tensor:
        """The row of a tensor, its dimension kept (size 1, or heads); without rows as it is."""
        rows, sizes = len(self.tokens.is_padding), tensor.shape
        if isinstance(tensor, torch.nn.Parameter) or not sizes:
            return tensor
        if sizes[0] == rows and not (positions_first and tensor.dim() > 2):
            return tensor[self.number, None]
        if tensor.dim() > 1 and sizes[1] == rows:
            return tensor[:, self.number, None]
        if tensor.dim() == 3 and sizes[0] % rows == 0:
            return tensor.reshape(rows, -1, *sizes[1:])[self.number]
        return tensor

    def positions_axis(self, tensor: torch.Tensor) -> int | None:
        """The only dimension with a place for each position; None of scores, which have two."""
        return only_axis(tensor, len(self.pads))


def padded_texts(tape: FunctionTape) -> Iterator[Tokens]:
    """Tokens that an embedding was given, where one value stands for padding, and sequences of
    numbers that the program loaded. Of a shape that two texts have, what comes of each of them
    alone.
    """
    noted = [each for call in tape.calls.values() for each in call.beside or ()]
    noted += _given_masks(tape)
    texts: dict[torch.Size, list[TapedCall]] = {}
    for call in tape.embeddings:
        tokens = call.argument(0, "input")
        whole = tokens.dim() == 2 and version(tokens) == call.versions[0]
        # neither positions, which are alike in all rows, nor segments, which are few
        differ = whole and not bool((tokens == tokens[:1]).all())
        if differ and tokens.unique().numel() > SEGMENTS:
            alike = texts.setdefault(tokens.shape, [])
            if not any(tokens.equal(each.argument(0, "input")) for each in alike):
                alike.append(call)
    for alike in texts.values():
        found = [(call, list(_padded(call, noted))) for call in alike]
        for call, own in found:
            for padded in own:
                # positions that are padded alike are this text's, too
                others = [
                    each for each, its in found if each is not call and not padded.is_alike(its)
                ]
                reached = (reached_from(tape, [each]) for each in others)
                only = reached_from(tape, [call]).difference(*reached) if others else None
                yield replace(padded, readers=(call,), reached=only)
    yield from _padded_inputs(tape, noted)


def _given_masks(tape: FunctionTape) -> Iterator[Beside]:
    """The padding masks that attention was given: of one layer they tell what another one reads."""
    for call in tape.calls.values():
        if call.name == "multi_head_attention_forward":
            mask = call.argument(14, "key_padding_mask")
            if isinstance(mask, torch.Tensor) and mask.dim() == 2:
                hidden = mask if mask.dtype is torch.bool else mask < 0
                yield Beside("key_padding_mask", hidden, is_mask=True)


def _padded_inputs(tape: FunctionTape, noted: Sequence[Beside]) -> Iterator[Tokens]:
    """Sequences of numbers that a model was given: (rows, positions, size)."""
    inputs: dict[int, tuple[torch.Tensor, list[TapedCall]]] = {}
    for call in tape.calls.values():
        compares = call.name in COMPARING | NAMES  # with a target
        reads = call.gives_gradient or call.name in POOLING
        for tensor, made in () if compares else call.parents:
            of_data = tensor.is_floating_point() and not tensor.requires_grad
            maker = None if made is None else tape.calls.get(made)
            # a batch is made of its rows, or filled with them
            loaded = made is None or (maker is not None and not _is_of_batch(maker))
            if tensor.dim() == 3 and of_data and (reads or loaded):
                inputs.setdefault(id(tensor), (tensor, []))[1].append(call)
    for tensor, calls in islice(inputs.values(), INPUTS):
        channels_first = any(each.name in CHANNELS_FIRST for each in calls)
        forms = [tensor.transpose(1, 2), tensor] if channels_first else [tensor]
        padded = next(filter(None, (_padded_by(noted, form) for form in forms)), None)
        if padded is not None:
            yield replace(padded, readers=tuple(calls), reached=reached_from(tape, calls))


def _is_of_batch(maker: TapedCall) -> bool:
    return maker.name != "to" and any(each.dim() > 2 for each, _ in maker.parents)


def _padded(call: TapedCall, noted: Sequence[Beside]) -> Iterator[Tokens]:
    """Of tokens in both orders of their dimensions."""
    tokens, index = call.argument(0, "input"), call.argument(2, "padding_idx")
    for form in (tokens, tokens.T):
        named = [] if index is None else [Beside("padding_idx", form != index, is_mask=True)]
        for each in chain(named, noted, _behind_full_masks(form, noted)):
            real = is_real(each, form)
            if real is not None and _is_padding(form, ~real.view_as(form)):
                yield Tokens(~real.view_as(form), each.name)
                break


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


def padded_sequence(call: TapedCall, tensor: torch.Tensor) -> Tokens | None:
    """The padding of what a call reads that is no text: a mask or lengths beside it say so, and all
    of it is the same. ``tensor`` is (rows, positions, size), (positions, rows, size) or (rows, heads,
    positions, size).
    """
    form = tensor.transpose(1, 2).flatten(2) if tensor.dim() == 4 else tensor
    padded = _padded_by(call.beside or (), form) if form.dim() == 3 else None
    return None if padded is None else replace(padded, readers=(call,))


def _padded_by(noted: Iterable[Beside], tensor: torch.Tensor) -> Tokens | None:
    for form, each in product((tensor, tensor.transpose(0, 1)), noted):
        real = is_real(each, form[..., 0])
        apart = None if real is None else ~real.view(form.shape[:2])
        if apart is not None and _is_padding(form, apart):
            return Tokens(apart, each.name)
        if each.name in PADS and each.tensor.shape == form.shape[:2]:
            counts = each.tensor.sum(1)  # also where old values stand there
            if bool(counts.min() != counts.max()):
                return Tokens(each.tensor.bool(), each.name)
    return None


def counted_by_ctc(tape: FunctionTape, call: TapedCall) -> Padded | None:
    """Frames or labels that ``ctc_loss`` counts although they are padding: it is told that each row
    is as long as the longest one.
    """
    scores, labels = call.argument(0, "log_probs"), call.argument(1, "targets")
    if call.name != "ctc_loss" or call.at is None or scores.dim() != 3:
        return None
    given = [torch.as_tensor(call.argument(*each)) for each in LENGTHS_OF_CTC]
    for number, form in enumerate((scores[..., 0].T, labels)):
        long = form.shape[-1]
        if form.dim() != 2 or not bool((given[number] == long).all()):
            continue
        found = _real_labels(call, labels) if number else _real_frames(tape, call, form, given[1])
        for by, real in found:
            counts = real.sum(1)
            if bool(counts.min() == counts.max()):
                continue
            counts = counts.to(given[number])

            def change(again: Again, number: int = number, counts: Any = counts) -> Any:
                return again.with_argument(*LENGTHS_OF_CTC[number], lambda _: counts)

            value = int(labels[~real.to(labels.device)][0]) if number else None
            return Padded(change, int((~real).sum()), real.numel(), value, by)
    return None


def _real_labels(call: TapedCall, labels: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    for each in call.beside:
        real = is_real(each, labels) if each.named else None
        if real is not None and _is_padding(labels, ~real.view_as(labels)):
            yield each.name, real.view_as(labels)


def _real_frames(
    tape: FunctionTape, call: TapedCall, form: torch.Tensor, labels: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor]]:
    """By lengths or a mask of the frames themselves; or by the inputs that they come of, of which
    several may make a frame.
    """
    rows, long = form.shape
    for each in call.beside:
        lengths = [] if each.is_mask else each.tensor.tolist()
        own = each.is_mask or (max(lengths, default=0) == long and lengths != labels.tolist())
        real = is_real(each, form) if own and each.named else None
        if real is not None:
            yield each.name, real.view_as(form)
    for tokens in padded_texts(tape):
        real = (~tokens.is_padding)[:, None].float()
        fits = len(real) == rows and real.shape[-1] >= long
        if fits and call.number in reached_from(tape, tokens.readers):
            yield tokens.by, torch.nn.functional.adaptive_max_pool1d(real, long)[:, 0] > 0


def reached_from(tape: FunctionTape, starts: Iterable[TapedCall]) -> frozenset[int]:
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
    if pads.is_floating_point():  # one position is equal to itself
        return len(pads) > 1 and torch.allclose(pads, pads[:1].expand_as(pads))
    return bool((pads == pads[0]).all())
