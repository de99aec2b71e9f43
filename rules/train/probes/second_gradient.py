"""The gradient that a step would have with one thing of its loss changed.

What leads from the model's outputs to the loss is computed again on copies of these outputs, once
as it was and once with the change. Both gradients at the outputs then go back through the graph of
the program, which stays; or are compared where they are.
"""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from auditor.capture.instruments.autograd_graph import Walk
from auditor.capture.instruments.plain_tensor import tensors
from auditor.capture.instruments.torch_private.tensors import has_hooks

from .function_tape import FunctionTape, TapedCall, replaced, version

CLOSE = 1e-4
"""How far the repeated loss may be from the program's, as a share: operators that are not
deterministic differ by less. Beyond, what was repeated is not what the program computed.
"""

NUMBERS = 1 << 26
"""Trained numbers for which gradients are compared at most: two copies take 512 MiB."""

MIXES = frozenset(
    """
    linear matmul mm bmm mv addmm addbmm baddbmm einsum bilinear conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d embedding embedding_bag layer_norm group_norm
    rms_norm prelu lstm gru rnn_tanh rnn_relu lstm_cell gru_cell multi_head_attention_forward
    scaled_dot_product_attention tensordot
    """.split()
)
"""Functions that belong to a model where they are given a parameter: the loss begins behind them."""

CHANGES_STATE = ("batch_norm", "instance_norm")
RANDOM = ("dropout", "rand", "bernoulli", "multinomial", "gumbel", "rrelu", "normal_")
"""Parts of names of functions that are never called again."""

OUT_OF_PLACE = {"__iadd__": "add", "__isub__": "sub", "__imul__": "mul", "__itruediv__": "div"}


@dataclass(frozen=True)
class Again:
    """A call as it is computed again, with the arguments that it has now."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    now: Callable[[torch.Tensor], torch.Tensor]
    """What stands for a tensor of the program."""

    def with_argument(self, index: int, name: str, made: Callable[[torch.Tensor], Any]) -> Any:
        """The result with what ``made`` makes of one argument."""
        if len(self.args) > index:
            args = (*self.args[:index], made(self.args[index]), *self.args[index + 1 :])
            return self.function(*args, **self.kwargs)
        return self.function(*self.args, **{**self.kwargs, name: made(self.kwargs[name])})

    def with_input(self, made: Callable[[torch.Tensor], Any]) -> Any:
        """:meth:`with_argument` of the first argument."""
        return self.with_argument(0, "input", made)


Change = Callable[[Again], Any]
"""What is done in the place of one call."""


class NotRepeated(Exception):
    """The end of the loss cannot be computed again, or comes to something else."""


@dataclass
class Tail:
    """The calls between the model's outputs and the loss, in their order."""

    loss: torch.Tensor
    calls: list[TapedCall]
    outputs: list[torch.Tensor]


@dataclass(frozen=True)
class Compared:
    """The step's gradient beside the repaired one."""

    angle: float
    ratio: float
    over: str
    loss: float
    repaired: float


def tail_of(tape: FunctionTape, loss: torch.Tensor, *, whole: bool = False) -> Tail | None:
    """What leads to ``loss``; None if unseen. ``whole``: from the parameters, its ``outputs``."""
    last = tape.maker(loss)
    if last is None or not repeatable(last, whole):
        return None
    calls: dict[int, TapedCall] = {}
    outputs: dict[int, torch.Tensor] = {}
    waiting = [last]
    while waiting:
        call = waiting.pop()
        if call.number in calls:
            continue
        calls[call.number] = call
        for tensor, number in call.parents:
            if not tensor.requires_grad:
                continue
            maker = None if number is None else tape.calls.get(number)
            if maker is not None and maker.gives_gradient and repeatable(maker, whole):
                waiting.append(maker)
            else:
                outputs[id(tensor)] = tensor
    calls |= _conditions(tape, calls)
    return Tail(loss, [calls[number] for number in sorted(calls)], list(outputs.values()))


def _conditions(tape: FunctionTape, calls: dict[int, TapedCall]) -> dict[int, TapedCall]:
    """Calls computed from these that lead to them without gradient: they are changed alike."""
    made: dict[int, TapedCall] = {}
    for call in tape.calls.values():
        given = {number for _, number in call.parents}
        known = calls.keys() | made.keys()
        if given & known and call.number not in calls and repeatable(call):
            made[call.number] = call
    wanted = {number for call in calls.values() for _, number in call.parents}
    for number in sorted(made, reverse=True):
        if number in wanted:
            wanted.update(before for _, before in made[number].parents)
    return {number: call for number, call in made.items() if number in wanted}


def repeatable(call: TapedCall, whole: bool = False) -> bool:
    """Whether a call may be computed again: it belongs to a loss, or to a ``whole`` model, and neither
    draws, nor writes in place, nor changes the state of a layer.
    """
    name = call.name
    if call.function.__name__ not in OUT_OF_PLACE and (
        (name.endswith("_") and not name.startswith("_")) or name == "setitem"
    ):
        return False
    if "out" in call.kwargs or any(part in name for part in (*CHANGES_STATE, *RANDOM)):
        return False
    return (
        whole
        or name not in MIXES
        or not any(
            isinstance(each, torch.nn.Parameter) or (each.requires_grad and each.is_leaf)
            for each, _ in call.parents
        )
    )


@contextlib.contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Random generators' states are put back; gradients are recorded, whatever the mode is."""
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with (
        torch.random.fork_rng(devices=list(devices)),
        torch.enable_grad(),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")  # the program has said them itself
        yield


@dataclass
class Repeated:
    """A loss computed again, and its gradient at each output of the model."""

    loss: float
    at_outputs: list[torch.Tensor]


def repeat(tail: Tail, changes: dict[int, Change]) -> Repeated:
    """Compute the end of the loss again.

    Raises :class:`NotRepeated` if something that it needs was written over, or the loss has no
    gradient.
    """
    held = recomputed(tail, changes)
    leaves = [held[id(each)] for each in tail.outputs]
    loss = held[id(tail.loss)]
    if loss.numel() != 1 or not loss.requires_grad:
        raise NotRepeated("no gradient")
    gradients = torch.autograd.grad(loss, leaves, allow_unused=True)
    at_outputs = [
        torch.zeros_like(leaf) if each is None else each
        for leaf, each in zip(leaves, gradients, strict=True)
    ]
    return Repeated(float(loss.detach()), at_outputs)


def recomputed(tail: Tail, changes: dict[int, Change]) -> dict[int, torch.Tensor]:
    """What stands for each tensor of the program, by its ``id``, where the calls run again.

    Raises :class:`NotRepeated` if something that they need was written over.
    """
    held = {id(each): each.detach().requires_grad_() for each in tail.outputs}

    def now(tensor: torch.Tensor) -> torch.Tensor:
        return held.get(id(tensor), tensor)

    for call in tail.calls:
        for (tensor, _), before in zip(call.parents, call.versions, strict=True):
            if id(tensor) not in held and version(tensor) != before:
                raise NotRepeated("something was written over")
        made = computed_again(call, changes.get(call.number), now)
        for old, each in zip(call.results, tensors((made,)), strict=False):
            held[id(old)] = each
    return held


def computed_again(
    call: TapedCall,
    change: Change | None,
    now: Callable[[torch.Tensor], torch.Tensor] = lambda each: each,
) -> Any:
    """The call's result, or what ``change`` makes of it, under the autocast that it ran under."""
    function = call.function
    plain = OUT_OF_PLACE.get(function.__name__)
    if plain is not None:
        function = getattr(torch, plain)
    args, kwargs = replaced(call.args, now), replaced(call.kwargs, now)
    with contextlib.ExitStack() as stack:
        for device, dtype in call.autocast:
            stack.enter_context(torch.autocast(device, dtype=dtype))
        if change is None:
            return function(*args, **kwargs)
        return change(Again(function, args, kwargs, now))


def compare(tail: Tail, changes: dict[int, Change], walked: Walk | None) -> Compared:
    """The two gradients, of the parameters that ``walked`` reaches; at the model's outputs where it
    is None, or leads through code that a second backward may not run.

    Raises :class:`NotRepeated`, or whatever torch says of the changed loss.
    """
    with nothing_left_behind():
        same, other = repeat(tail, {}), repeat(tail, changes)
        same_as(tail, same.loss)
        pairs = list(zip(same.at_outputs, other.at_outputs, strict=True))
        over = "outputs"
        leaves = trained(walked)
        if leaves:
            with contextlib.suppress(RuntimeError):  # a graph that may be walked once
                pairs = list(_at_leaves(tail, same, other, leaves))
                over = "parameters"
        angle, ratio = angle_and_ratio(pairs)
    return Compared(angle, ratio, over, same.loss, other.loss)


def same_as(tail: Tail, loss: float) -> None:
    """Raise :class:`NotRepeated` if this is not the program's own loss."""
    said = float(tail.loss.detach())
    if not math.isfinite(said) or abs(loss - said) > CLOSE * abs(said) + 1e-9:
        raise NotRepeated("another loss")


def trained(walked: Walk | None) -> list[torch.Tensor]:
    """The leaves that a second backward may reach without running anything but torch's own."""
    if walked is None or not walkable(walked):
        return []
    leaves = [leaf.variable for leaf in walked.leaves]
    return leaves if sum(leaf.numel() for leaf in leaves) <= NUMBERS else []


def walkable(walked: Walk) -> bool:
    """A second backward runs nothing but torch's own code."""
    functions = torch.autograd.function.BackwardCFunction
    return not (
        walked.capped
        or any(isinstance(node, functions) for node in walked.nodes)
        or any(has_hooks(leaf.variable) for leaf in walked.leaves)
    )


def _at_leaves(
    tail: Tail, same: Repeated, other: Repeated, leaves: list[torch.Tensor]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    both = [
        torch.autograd.grad(
            tail.outputs, leaves, each.at_outputs, retain_graph=True, allow_unused=True
        )
        for each in (same, other)
    ]
    for one, two in zip(*both, strict=True):
        if one is not None and two is not None and not (one.is_sparse or two.is_sparse):
            yield one, two


def angle_and_ratio(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[float, float]:
    """Angle in degrees between two gradients, and the norm of the first over that of the second.

    Raises :class:`NotRepeated` if one of them is zero or not finite.
    """
    dot = one = two = 0.0
    for first, second in pairs:
        a, b = first.detach().double().flatten(), second.detach().double().flatten()
        dot, one, two = dot + float(a @ b), one + float(a @ a), two + float(b @ b)
    if not (math.isfinite(dot) and 0.0 < one < math.inf and 0.0 < two < math.inf):
        raise NotRepeated("no angle")
    cosine = max(-1.0, min(1.0, dot / math.sqrt(one * two)))
    return math.degrees(math.acos(cosine)), math.sqrt(one / two)
