"""What an output depends on and must not: other samples of its batch, or the tokens that it is asked
for.

The gradient says so. One backward from the output of one sample (of one position) through the
functions that the program called; where nothing flows nothing is added, so exact zeros decide and
no threshold is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch.utils.data import DataLoader

from auditor.capture.instruments.live_objects import live_instances
from auditor.capture.instruments.plain_tensor import tensors

from ..rows import RECURRENT
from . import paddings
from .function_tape import FunctionTape, TapedCall, only_axis, version
from .padded_texts import reached_from
from .second_gradient import Tail, computed_again, nothing_left_behind
from .shifts import Shifted
from .summaries import Summaries

MIXING = frozenset(
    """
    softmax log_softmax lstm gru rnn_tanh rnn_relu scaled_dot_product_attention
    multi_head_attention_forward layer_norm rms_norm normalize cumsum
    """.split()
)
"""Functions that can mix samples where they take the batch's dimension for another one."""

WEIGHTED = RECURRENT | frozenset(
    "linear embedding layer_norm rms_norm multi_head_attention_forward conv1d conv2d".split()
)
"""Functions whose parameters are a layer's weights."""

SEQUENCES = RECURRENT | {"multi_head_attention_forward"}

FORMS = frozenset({"view", "reshape", "unflatten"})
"""Functions that give a tensor another form: wrong where its dimensions had to be exchanged."""

ON_PURPOSE = frozenset(
    """
    mean std var std_mean var_mean batch_norm instance_norm native_batch_norm sync_batch_norm
    index_select gather take take_along_dim flip roll scatter scatter_add index_add sort
    argsort topk randperm rand rand_like randn randn_like
    """.split()
)
"""Functions that mix samples on purpose: batch statistics, orders (mixup), graph messages."""

OVER_DIMENSIONS = frozenset("mean std var std_mean var_mean".split())
"""Of these, those that are statistics over the dimensions that they are given."""

COMPARED = (
    paddings.NAMES
    | paddings.COMPARING
    | frozenset({"binary_cross_entropy", "binary_cross_entropy_with_logits"})
)
"""Losses of an output against a target."""

OTHER_LENGTHS = frozenset(
    "pad cat stack conv1d unfold getitem narrow chunk split max_pool1d avg_pool1d".split()
)
"""Functions that make a text longer or shorter."""

LONGEST = 32
"""Calls between two tensors with a row for each sample that are computed again."""

ATTENDING = frozenset(
    """
    scaled_dot_product_attention multi_head_attention_forward matmul bmm baddbmm einsum lstm gru
    rnn_tanh rnn_relu conv1d cumsum flip roll
    """.split()
)
"""Functions by which a position can depend on those behind it."""


@dataclass(frozen=True)
class Dependence:
    """A call whose result depends on what it must not."""

    kind: str
    """``samples``, ``statistics`` or ``future``, and others of :class:`DependenceRow`."""
    call: TapedCall
    n: int
    """Samples, or positions, that it depends on."""
    of: int
    """Samples, or positions behind the one that was asked."""


# -- the future ------------------------------------------------------------------------------------


def future_of(tape: FunctionTape, shifted: Shifted) -> Dependence | None:
    """Where a position's output begins to depend on the tokens behind it; None if none does."""
    position = shifted.asked_position
    summed = None if position is None else _summaries_of(tape, shifted)
    if position is None or summed is None:
        return None
    n = _behind(shifted, position, shifted.output, shifted.axis)
    if not n:
        return None

    behind = partial(_behind, shifted, position)
    first = next(_attending(tape, shifted, behind, summed), shifted.call)
    if first.name in OF_BATCHES:
        return None  # an evaluation takes what the training has counted
    at_first = partial(_behind, shifted, 0)
    wrapped = next(_attending(tape, shifted, at_first), first)
    if wrapped.number < first.number and _is_given_it(first, shifted, at_first):
        first = wrapped  # the last position was moved in front of the others
    of = shifted.output.shape[shifted.axis] - 1 - position
    reader = mask_of(tape, first)
    return Dependence("future", _combined(tape, reader) or reader, n, of)


OF_BATCHES = frozenset({"batch_norm", "native_batch_norm", "sync_batch_norm"})
"""Norms by statistics of the whole batch, which are counted for evaluations."""


def _is_given_it(
    call: TapedCall, shifted: Shifted, reached: Callable[[torch.Tensor, int], int]
) -> bool:
    """What a call was given, and not only what it gives, is reached already."""
    positions = shifted.output.shape[shifted.axis]
    axes = ((each, only_axis(each, positions)) for each, _ in call.parents)
    return any(axis is not None and reached(each, axis) for each, axis in axes)


def documents_of(tape: FunctionTape, shifted: Shifted) -> Dependence | None:
    """Where a token of a packed row begins to depend on the document before its own. Positions that
    an embedding gets start again with each document. None if they do not, or without such a token.
    """
    begins = _second_document(tape, shifted)
    if begins is None:
        return None
    row, position = begins

    def reached(result: torch.Tensor, axis: int) -> int:
        found = shifted.reached(result, axis, position, row) if result.requires_grad else None
        return 0 if found is None else int(found[:position].sum())

    n = reached(shifted.output, shifted.axis) if shifted.axis == 1 else 0
    if not n:
        return None
    first = next(_attending(tape, shifted, reached), shifted.call)
    reader = mask_of(tape, first)
    return Dependence("documents", _combined(tape, reader) or reader, n, position)


def _second_document(tape: FunctionTape, shifted: Shifted) -> tuple[int, int] | None:
    """A row, and the position in it at which its second document begins."""
    tokens = shifted.embedding.argument(0, "input")
    for call in tape.embeddings:
        places = call.argument(0, "input")
        if places.shape != tokens.shape or places.dim() != 2 or not bool((places[:, 0] == 0).all()):
            continue
        steps = places.diff(dim=1)
        restarts = (steps < 0) & (places[:, 1:] == 0)
        if bool(((steps == 1) | (places[:, 1:] == 0)).all()) and bool(restarts.any()):
            row = int(restarts.any(1).nonzero()[0])
            return row, int(restarts[row].nonzero()[0]) + 1
    return None


def _attending(
    tape: FunctionTape,
    shifted: Shifted,
    reached: Callable[[torch.Tensor, int], int],
    summed: Container[int] = (),
) -> Iterator[TapedCall]:
    """The calls with a row for each position by which something is reached, the first one first; and
    the statistics over positions, ``summed``, which hold everything.
    """
    positions = shifted.output.shape[shifted.axis]
    for call in tape.calls.values():
        between = shifted.embedding.number < call.number < shifted.call.number
        if not between or call.spot is None or not call.result.is_floating_point():
            continue
        axis = axis_of(tape, call, positions)
        if call.number in summed or (
            call.result.dim() > 2 and axis is not None and reached(call.result, axis)
        ):
            yield call


def axis_of(tape: FunctionTape, call: TapedCall, positions: int) -> int | None:
    """The dimension of a result with a place for each position; None if it is unknown. Scores have two
    of them, and a convolution may have as many channels.
    """
    last = call.result.dim() - 1
    if call.name == "conv1d" or crops_convolution(
        tape, call.name, [each for each, _ in call.parents]
    ):
        return last if call.result.shape[last] == positions else None
    return only_axis(call.result, positions)


def _combined(tape: FunctionTape, reader: TapedCall) -> TapedCall | None:
    """The call that put the mask together which attention is given."""
    index, name = (3, "attn_mask") if reader.name == "scaled_dot_product_attention" else (1, "mask")
    mask = reader.argument(index, name)
    made = tape.maker_before(reader, mask) if isinstance(mask, torch.Tensor) else None
    while made is not None and made.name in FORMING:
        made = tape.maker_before(made, made.parents[0][0])
    return made if made is not None and made.name in COMBINING and made.at is not None else None


COMBINING = frozenset("and or bitwise_and bitwise_or logical_and logical_or".split())
"""Functions that make one mask of several."""

FORMING = frozenset("getitem unsqueeze invert logical_not bitwise_not to expand view".split())
"""Functions that give a mask another form."""


def mask_of(tape: FunctionTape, call: TapedCall) -> TapedCall:
    """The call that puts a mask on attention's scores, or forms an added one; else attention."""
    reader = attention_of(tape, call)
    mask = tape.maker_before(reader, reader.parents[0][0]) if reader.name == "softmax" else None
    if mask is not None and mask.name == "add":
        rows = len(reader.result)
        data = (each for each, _ in mask.parents if not each.requires_grad)
        added = [each for each in data if each.dim() and len(each) == rows]
        mask = tape.maker_before(mask, added[0]) if rows > 1 and len(added) == 1 else None
        return mask if mask is not None and mask.at is not None else reader
    return mask if mask is not None and mask.name in MASKING and mask.at is not None else reader


def forms_a_mask(tape: FunctionTape, name: str, given: Sequence[torch.Tensor]) -> bool:
    """Whether a call gives what was made of a mask another form."""
    made = tape.maker(given[0]) if given and name in ("getitem", "unsqueeze", *FORMS) else None
    return made is not None and made.name in MASKING and not given[0].requires_grad


def crops_convolution(tape: FunctionTape, name: str, given: Sequence[torch.Tensor]) -> bool:
    """Whether a call cuts off what a convolution's padding added: at which end decides."""
    made = tape.maker(given[0]) if given and name in ("getitem", "narrow") else None
    return made is not None and made.name == "conv1d"


def _summaries_of(tape: FunctionTape, shifted: Shifted) -> Container[int] | None:
    """The statistics over positions on the way to the output; None if the text goes through something
    without positions that may know all of it, as a latent variable.
    """
    positions, rows = shifted.asked.shape
    lengths, of_text = {positions, rows * positions}, {shifted.embedding.number}
    scores = shifted.call.argument(0, "input")
    summaries = Summaries(tape, scores, lengths)
    for call in leading_to(tape, scores):
        given = [tensor for tensor, number in call.parents if number in of_text]
        without = [tensor for tensor in given if lengths.isdisjoint(tensor.shape)]
        if given and not summaries.take(call, without, given):
            return None
        if given:
            of_text.add(call.number)
            if call.name in OTHER_LENGTHS and not without:
                sizes = call.result.shape[2:] if call.name == "conv1d" else call.result.shape
                lengths |= set(sizes).difference({1}, *(tensor.shape for tensor in given))
    return summaries.numbers


def _behind(shifted: Shifted, position: int, result: torch.Tensor, axis: int) -> int:
    reached = shifted.reached(result, axis, position) if result.requires_grad else None
    return 0 if reached is None else int(reached[position + 1 :].sum())


def attention_of(tape: FunctionTape, call: TapedCall) -> TapedCall:
    """Of a product with shares of attention: the softmax that made these, where the mask belongs."""
    return (call.name in PRODUCTS and softmax_behind(tape, call, call.parents[0][0])) or call


def softmax_behind(tape: FunctionTape, call: TapedCall, shares: torch.Tensor) -> TapedCall | None:
    """The softmax that made the shares of attention that a call was given."""
    maker = tape.maker_before(call, shares)
    while maker is not None and maker.name in BETWEEN:
        if maker.name == "softmax" and maker.at is not None:
            return maker
        maker = tape.maker_before(maker, maker.parents[0][0])  # dropout may give it back
    return None


MASKING = frozenset({"masked_fill", "where"})
"""Functions that put a mask on scores."""

PRODUCTS = frozenset({"matmul", "bmm", "baddbmm", "einsum"})
BETWEEN = frozenset(
    """
    softmax dropout to type_as masked_fill view reshape flatten squeeze unsqueeze getitem transpose
    permute mT contiguous expand
    """.split()
)
"""Functions that shares of attention go through on their way to the product."""


ADDED = {"scaled_dot_product_attention": (3, 5), "multi_head_attention_forward": (16, 24)}
"""The places of ``attn_mask`` and ``is_causal``."""


def added_masks(tape: FunctionTape) -> Iterator[Dependence]:
    """The first attention that adds a causal mask of ones and zeros, which hides nothing."""
    for call in tape.calls.values():
        masks: list[object] = []
        if call.name in ADDED:
            index, causal = ADDED[call.name]
            masks = (
                [] if call.argument(causal, "is_causal") else [call.argument(index, "attn_mask")]
            )
        elif call.name == "softmax" and call.parents:
            made = tape.maker_before(call, call.parents[0][0])
            masks = [each for each, _ in made.parents] if made and made.name == "add" else []
        mask = next(filter(_is_triangle, masks), None)
        if call.at is not None and call.gives_gradient and isinstance(mask, torch.Tensor):
            yield Dependence("added", call, mask.shape[-1] - 1, mask.shape[-1] - 1)
            return


def _is_triangle(mask: object) -> bool:
    """Numbers, one on and on one side of the diagonal or beside it, and zero on the other side."""
    if not isinstance(mask, torch.Tensor) or mask.dim() < 2 or mask.requires_grad:
        return False
    size = mask.shape[-1]
    if size < SHORTEST_MASK or mask.shape[-2] != size or not mask.is_floating_point():
        return False
    each = mask.reshape(-1, size, size)
    ones = torch.ones_like(each)
    return any(
        torch.equal(each, half) for half in (ones.tril(), ones.tril(-1), ones.triu(), ones.triu(1))
    )


SHORTEST_MASK = 4
"""Positions of a causal mask, at least: a smaller matrix may look like one."""


# -- dimensions ------------------------------------------------------------------------------------


def reshaped(tape: FunctionTape) -> Iterator[Dependence]:
    """Calls of ``view`` and its like that exchange the sizes of two dimensions behind the first, and
    none of the numbers. Left alone where that undoes another one, and where all numbers are equal.
    """
    for call in tape.calls.values():
        if call.name not in FORMS or call.at is None or not call.parents:
            continue
        (old, _), new = call.parents[0], call.result
        apart = [
            axis for axis, (a, b) in enumerate(zip(old.shape, new.shape, strict=False)) if a != b
        ]
        if new.dim() == 2 and _joins_states(tape, call):
            yield Dependence("order", call, 0, 1)
        if old.dim() != new.dim() or len(apart) != 2 or apart[0] == 0:
            continue
        one, two = apart
        exchanged = (old.shape[two], old.shape[one]) == (new.shape[one], new.shape[two])
        if not exchanged or 1 in (old.shape[one], old.shape[two]) or _is_undone(tape, call):
            continue
        if not torch.equal(old.detach().transpose(one, two), new.detach()):
            yield Dependence("order", call, one, two)


def _joins_states(tape: FunctionTape, call: TapedCall) -> bool:
    """A recurrent layer's last states, (layers, batch, size), become (batch, layers * size)."""
    old, new = call.parents[0][0], call.result
    made = tape.maker_before(call, old)
    while (
        made is not None
        and made.name in PICKING
        and made.parents[0][0].shape[-2:] == old.shape[-2:]
    ):
        made = tape.maker_before(made, made.parents[0][0])
    state = made is not None and made.name in RECURRENT and old.dim() == 3
    return state and new.shape[0] == old.shape[1] != old.shape[0] > 1 != old.shape[1]


PICKING = frozenset({"index_select", "getitem", "narrow", *FORMS})
"""Functions that pick layers' states, or those of packed sequences in their own order."""


def _is_undone(tape: FunctionTape, call: TapedCall) -> bool:
    """The form was another one before, or is again after it."""
    before = tape.maker_before(call, call.parents[0][0])
    return any(each is not None and each.name in FORMS for each in (before, *tape.users(call)))


# -- other samples ---------------------------------------------------------------------------------


def mixed_samples(tape: FunctionTape, tail: Tail) -> Dependence | None:
    """The first call that makes one sample's row of other samples' rows, on the way to a loss with a
    target for each sample; None if there is none.
    """
    asked = asked_of(tape, tail)
    if asked is None:
        return None
    given, batch = asked
    for call in leading_to(tape, given):
        if call.result.dim() and call.result.shape[0] == batch and call.result.is_floating_point():
            segment = _Segment.of(tape, call, batch)
            if segment is not None and segment.may_mix():
                found = segment.mixes()
                if found is not None:
                    return Dependence("samples", *found, batch)
    return None


def batch_statistics(tape: FunctionTape, tail: Tail) -> Dependence | None:
    """The first number made of a whole batch that scales or shifts the rows of its samples."""
    asked = asked_of(tape, tail)
    if asked is None:
        return None
    given, batch = asked
    leading = list(leading_to(tape, given))
    for call in leading:
        of_batch = [each for each, _ in call.parents if each.dim() > 1 and each.shape[0] == batch]
        if call.name not in STATISTICS or call.at is None or call.result.dim() or not of_batch:
            continue
        for user in tape.users(call):
            rows = [each for each, _ in user.parents if each.dim() > 1 and each.shape[0] == batch]
            if user.name in ("sub", "div", "mul") and rows and user in leading:
                return Dependence("statistics", call, batch - 1, batch)
    return None


def scaled_back(tape: FunctionTape) -> Dependence | None:
    """The first statistic over a batch and its positions that normalizes what learned layers are
    given, and then scales or shifts back what they make of it: each sample's by those of all.
    """
    calls = tape.calls.values()
    for call in calls:
        if call.name not in STATISTICS or call.at is None or not _is_over_batch(call):
            continue
        value, own = call.parents[0][0], {call.number}
        for each in calls:
            made_of_it = any(number in own for _, number in each.parents)
            if made_of_it and each.result.numel() == call.result.numel():
                own.add(each.number)
        uses = [
            each
            for each in calls
            if len(each.parents) > 1 and not own.isdisjoint(number for _, number in each.parents)
        ]
        normalizing = [
            each
            for each in uses
            if each.name in ("sub", "div") and each.parents[0][0].shape == value.shape
        ]
        after = reached_from(tape, normalizing)
        learned = [each for each in calls if each.name in WEIGHTED and each.number in after]
        behind = reached_from(tape, learned) if learned else frozenset[int]()
        back = (each for each in uses if each.name in ("mul", "add"))
        if any(number in behind for each in back for _, number in each.parents):
            return Dependence("statistics", call, len(value) - 1, len(value))
    return None


def _is_over_batch(call: TapedCall) -> bool:
    """Over the first dimension of three or more, and another one: alone, the first may be time."""
    value, dims = call.parents[0][0], call.argument(1, "dim")
    if not isinstance(dims, (tuple, list)) or len(dims) < 2 or value.dim() < 3 or len(value) < 2:
        return False
    return 0 in {each % value.dim() for each in dims} and call.result.numel() > 1


STATISTICS = frozenset("mean std var amax amin max min norm vector_norm std_mean sum".split())
"""Functions that make one number of a batch."""


def asked_of(tape: FunctionTape, tail: Tail) -> tuple[torch.Tensor, int] | None:
    """As :func:`_per_sample`, of the first loss that has a target for each sample."""
    return next(filter(None, (_per_sample(tape, call) for call in tail.calls)), None)


def _per_sample(tape: FunctionTape, call: TapedCall) -> tuple[torch.Tensor, int] | None:
    """What a loss compares with one target for each sample, and how many samples these are."""
    given, target = call.argument(0, "input"), call.argument(1, "target")
    if call.name not in COMPARED:
        return None
    if not isinstance(given, torch.Tensor) or not isinstance(target, torch.Tensor):
        return None
    if target.requires_grad or not given.requires_grad or not target.dim() or not given.dim():
        return None
    batch = target.shape[0]
    single = target.dim() == 1 or (target.dim() == 2 and target.shape[1] == 1)
    of_units = any(
        call.name == "linear" and call.result.shape[-1] == given.shape[-1]
        for call in leading_to(tape, given)
    )
    before = _merged(tape, given)
    plain = before is given and _merged(tape, target) is target
    if plain and (single or (target.dim() == 2 and of_units)):
        return (given, batch) if _has_samples_first(given, batch) else None
    # either dimension may be the batch's, or tokens of all samples are rows: a loader knows
    given, batch = before, len(before)
    known = _has_samples_first(given, batch) and given.dim() > 2 and batch in loaded_sizes()
    return (given, batch) if known else None


def _has_samples_first(given: torch.Tensor, batch: int) -> bool:
    return batch > 1 and given.shape[0] == batch and batch not in given.shape[1:]


def _merged(tape: FunctionTape, tensor: torch.Tensor) -> torch.Tensor:
    """The tensor whose tokens, of several samples, are the rows of this one; else this one."""
    form = tape.maker(tensor)
    before = None if form is None else form.argument(0, "input")
    if not isinstance(before, torch.Tensor) or before.dim() <= tensor.dim():
        return tensor
    return before if form is not None and form.name in (*FORMS, "flatten") else tensor


def loaded_sizes() -> set[int | None]:
    """Sizes of the batches that the program's loaders give. Slow: asks all live objects."""
    return {loader.batch_size for loader in live_instances(DataLoader)}


def leading_to(tape: FunctionTape, tensor: torch.Tensor) -> Iterator[TapedCall]:
    """The calls that lead to a tensor, as far back as the tape goes, the first one first."""
    numbers, waiting = set[int](), [tape.maker(tensor)]
    while waiting:
        call = waiting.pop()
        if call is not None and call.number not in numbers:
            numbers.add(call.number)
            waiting += [tape.calls.get(number) for _, number in call.parents if number is not None]
    return (tape.calls[number] for number in sorted(numbers))


def picks(call: TapedCall) -> bool:
    """An index that is a tensor or a list may put samples in another order."""
    index = call.argument(1, "index") if call.name == "getitem" else None
    each = index if isinstance(index, tuple) else (index,)
    return any(isinstance(one, (torch.Tensor, list)) for one in each)


def on_purpose(call: TapedCall, axis: int | None) -> bool:
    """A statistic over samples, which lie along ``axis`` (None: unknown), or another order of them."""
    if call.name not in OVER_DIMENSIONS:
        return call.name in ON_PURPOSE
    value, dims = call.parents[0][0], call.argument(1, "dim")
    over = dims if isinstance(dims, (tuple, list)) else (dims,)
    known = axis is not None and all(isinstance(each, int) for each in over)
    return not known or axis in {each % value.dim() for each in over}


def _splits(call: TapedCall, batch: int) -> bool:
    """It takes the batch's dimension apart into two: ``frames.view(samples, frames_of_each, -1)``."""
    given, made = call.argument(0, "input"), call.result.shape
    splits = call.name in FORMS and len(made) > 1 and 1 < made[0] < batch == made[0] * made[1]
    return splits and isinstance(given, torch.Tensor) and given.shape[0] == batch


def others_reached(
    out: torch.Tensor, axis: int, leaves: Sequence[torch.Tensor], along: int = 0
) -> int:
    """On how many other samples of ``leaves``, ``along`` which they lie, the last sample of ``out``
    depends, whose samples lie along ``axis``.
    """
    if not out.requires_grad or out.dim() <= axis:
        return 0
    row = out.select(axis, -1).flatten()
    weights = torch.linspace(0.5, 1, len(row)).to(row)
    gradients = torch.autograd.grad(row, leaves, weights, allow_unused=True, retain_graph=True)
    reached = [
        each.movedim(along, 0)[:-1].flatten(1).ne(0).any(1)
        for each in gradients
        if each is not None and bool(each.isfinite().all())
    ]
    return max((int(each.sum()) for each in reached), default=0)


@dataclass(frozen=True)
class _Segment:
    """The calls between tensors with a row for each sample, and one that is made of them."""

    calls: list[TapedCall]
    sources: list[torch.Tensor]
    result: torch.Tensor
    constants: list[torch.Tensor]

    @classmethod
    def of(cls, tape: FunctionTape, last: TapedCall, batch: int) -> _Segment | None:
        """None of one that is too long, or holds a function that mixes on purpose."""
        calls: dict[int, TapedCall] = {}
        sources: dict[int, torch.Tensor] = {}
        constants: list[torch.Tensor] = []
        waiting = [last]
        while waiting:
            call = waiting.pop()
            if call.number in calls:
                continue
            # the samples may be among the rows of a statistic
            axis = (call.parents and only_axis(call.parents[0][0], batch)) or 0
            if on_purpose(call, axis) or picks(call) or len(calls) >= LONGEST:
                return None
            calls[call.number] = call
            for (tensor, number), before in zip(call.parents, call.versions, strict=True):
                maker = None if number is None else tape.calls.get(number)
                if version(tensor) != before:
                    return None
                if isinstance(tensor, torch.nn.Parameter):
                    if call.name not in WEIGHTED:  # a learned matrix may be of nodes
                        constants.append(tensor)
                elif not tensor.is_floating_point():
                    constants.append(tensor)
                elif tensor.dim() > 1 and tensor.shape[0] == batch:
                    sources[id(tensor)] = tensor
                elif maker is not None:
                    waiting.append(maker)
                else:
                    constants.append(tensor)
        ordered = [calls[number] for number in sorted(calls)]
        return cls(ordered, list(sources.values()), last.result, constants)

    def may_mix(self) -> bool:
        """It has a function that can, and is no graph of as many nodes, pairs, or single sequence."""
        batch = self.result.shape[0]
        tensors_here = (*self.sources, self.result, *self.constants)
        if any(each.dim() == 2 and each.shape[1] == batch for each in tensors_here):
            return False
        if any(each.dim() > 2 and each.shape[1] == batch for each in self.sources):
            return False  # either dimension may be the batch's
        if any(not call.result.dim() for call in self.calls):
            return False  # one number for all: a scale
        if any(_splits(call, batch) for call in self.calls):
            return False  # rows are positions, or frames, of fewer samples
        names = {call.name for call in self.calls}
        if names & SEQUENCES and any(
            each.dim() < 3 or (each.shape[1] == 1 and batch not in loaded_sizes())
            for each in self.sources
        ):
            return False  # rows may be positions of one sequence
        return bool(names & MIXING) or (len(self.calls) > 1 and bool(names & FORMS))

    def mixes(self) -> tuple[TapedCall, int] | None:
        """The first call whose last sample's row depends on rows of other samples, and on how many;
        None without such a call. (The last one: a recurrence over samples gives it all before it.)
        """
        held = {id(each): each.detach().requires_grad_() for each in self.sources}
        leaves, batch = list(held.values()), self.result.shape[0]
        try:
            with nothing_left_behind():
                for call in self.calls:
                    made = computed_again(call, None, lambda each: held.get(id(each), each))
                    for old, new in zip(call.results, tensors((made,)), strict=False):
                        held.setdefault(id(old), new)
                n = others_reached(held[id(self.result)], 0, leaves)
                if not n:
                    return None
                for call in self.calls:
                    out = held[id(call.result)]
                    axis = only_axis(out, batch)
                    # as many channels as samples, which are among the rows
                    forms = call.name in FORMS | SEQUENCES
                    among_rows = axis and not forms and not len(out) % batch
                    if (
                        call.at is not None
                        and axis is not None
                        and not among_rows
                        and others_reached(out, axis, leaves)
                    ):
                        return self._form_before(call), n
        except (RuntimeError, ValueError, TypeError, IndexError, KeyError):
            return None  # what cannot be computed alone says nothing
        return self._form_before(next(call for call in self.calls[::-1] if call.at is not None)), n

    def _form_before(self, found: TapedCall) -> TapedCall:
        """The first call that put the samples in another form, if a form is to blame."""
        forms = [call for call in self.calls if call.at is not None and call.name in FORMS]
        batch = self.result.shape[0]
        taken = [each for each in forms if each.result.shape[1:2] == (batch,)]
        # rows of all samples that were taken for (time, batch, size)
        rows = [each for each in taken if len(each.parents[0][0]) == len(each.result) * batch]
        if rows and (found.name in SEQUENCES or found in rows):
            return rows[0]
        return forms[0] if forms and found.name in FORMS else found
