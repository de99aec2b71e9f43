"""Samples of a distribution, and derivatives, that the loss reads without the gradient they need."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributions import Distribution, Normal

from auditor.capture.instruments.autograd_graph import node_of, walk
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.plain_tensor import tensors
from auditor.capture.probes.base import Context

from ..rows import DependenceRow
from .bootstraps import FORMING
from .dependence import COMPARED, Dependence, leading_to
from .function_tape import FunctionTape, TapedCall
from .padded_texts import reached_from
from .second_gradient import MIXES

MOST = 64
"""Samples that are kept, the newest ones."""

SHAPING = FORMING | frozenset(
    """
    broadcast_tensors expand_as exp mul div add sub neg softplus clamp sqrt square pow sigmoid tanh
    chunk split detach
    """.split()
)
"""Functions between what a layer gives and a parameter of a distribution."""

MEETING = COMPARED | {"add", "sub", "cat", "stack"}
"""Functions that put a term beside others: one that is multiplied may be a weight."""

CUTTING = frozenset({"detach", "data", "sign"})
"""Functions behind which no gradient is expected."""


@dataclass(frozen=True)
class _Sample:
    at: int
    of: str
    value: torch.Tensor
    parameters: tuple[torch.Tensor, ...]


class Samples:
    """Results of ``sample()`` of distributions whose parameters are computed."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._drawn: list[_Sample] = []

    def watch(self, patches: Patches) -> None:
        """Notice them, until ``patches`` are undone."""
        for kind in (Distribution, Normal):
            patches.around(kind, "sample", after=self._sampled)

    def clear(self) -> None:
        """Let go of them."""
        self._drawn.clear()

    def _sampled(self, result: Any, distribution: Any, *_: Any, **__: Any) -> None:
        given = tuple(
            each
            for each in vars(distribution).values()
            if isinstance(each, torch.Tensor) and each.requires_grad and each.grad_fn is not None
        )
        at = self._context.frames.here() if given and torch.is_grad_enabled() else None
        if at is not None and isinstance(result, torch.Tensor) and distribution.has_rsample:
            name = type(distribution).__name__
            self._drawn = [*self._drawn[1 - MOST :], _Sample(at, name, result, given)]

    def without_gradient(self, tape: FunctionTape, loss: torch.Tensor) -> Iterator[DependenceRow]:
        """Samples that the loss is computed from, by a layer, while another part of it trains what
        the parameters are computed from. Not those that meet these parameters again, as in a
        log-probability.
        """
        drawn = [*self._drawn, *_drawn_by_normal(tape)]
        leading = {call.number: call for call in _trained(tape, loss)} if drawn else {}
        for sample in drawn:
            own = set(_around(tape, sample.parameters))
            trained = any(id(each) in own for call in leading.values() for each, _ in call.parents)
            users = _users(tape, sample, own) if trained else None
            behind = (
                _computed(tape, {id(sample.value)}) & leading.keys() if users else frozenset[int]()
            )
            layers = {id(each) for n in behind for each in _weights(leading[n])}
            before = (call for each in sample.parameters for call in leading_to(tape, each))
            if layers.isdisjoint(id(each) for call in before for each in _weights(call)) and any(
                number in leading and _weights(tape.calls[number]) for number in users or ()
            ):
                row = DependenceRow(at=sample.at, kind="sample", function=sample.of, n=0, of=0)
                row.of = sample.value.numel()
                yield row


def constant_derivatives(tape: FunctionTape, loss: torch.Tensor) -> Iterator[Dependence]:
    """Derivatives by data, taken without ``create_graph``, that stand in the loss beside what trains
    all parameters that they depend on. Not those that a layer is given: steps of an attack or of a
    sampler are constants on purpose. ``of``: how many numbers.
    """
    taken = [each for each in tape.calls.values() if each.function is torch.autograd.grad]
    leading = {call.number: call for call in _trained(tape, loss)} if taken else {}
    for call in taken:
        if call.gives_gradient or call.argument(4, "create_graph", default=False):
            continue
        behind = _parameters(call.argument(0, "outputs"))
        reached = [leading[each] for each in reached_from(tape, [call]) & leading.keys()]
        layers = any(each.name in MIXES or _weights(each) for each in reached)
        if layers or not behind or _parameters(call.argument(1, "inputs")):
            continue
        constant = _without_gradient(tape, call)
        for each in reached:
            beside, made = zip(*each.parents, strict=True)
            meets = each.name in MEETING and not constant.isdisjoint(made)
            if meets and behind <= _parameters(beside):
                yield Dependence("derivative", call, 0, call.result.numel())
                break


def _without_gradient(tape: FunctionTape, first: TapedCall) -> set[int]:
    """Numbers of the calls that make other numbers of what one gave, all without a gradient."""
    made = {first.number}
    for call in tape.calls.values():
        ends = call.gives_gradient or call.name in CUTTING or not call.result.is_floating_point()
        if not ends and any(number in made for _, number in call.parents):
            made.add(call.number)
    return made


def _parameters(given: Any) -> set[int]:
    """``id`` of those that a gradient of these reaches."""
    held = list(tensors((given,)))
    leaves = [leaf.variable for leaf in walk(map(node_of, held)).leaves]
    return {id(each) for each in (*held, *leaves) if isinstance(each, torch.nn.Parameter)}


def _drawn_by_normal(tape: FunctionTape) -> Iterator[_Sample]:
    """Results of ``torch.normal``, whose gradient is zero."""
    for call in tape.calls.values():
        given = tuple(each for each, _ in call.parents if each.grad_fn is not None)
        if call.name == "normal" and given and call.at is not None:
            yield _Sample(call.at, "torch.normal", call.result, given)


def _weights(call: TapedCall) -> list[torch.Tensor]:
    return [each for each, _ in call.parents if isinstance(each, torch.nn.Parameter)]


def _users(tape: FunctionTape, sample: _Sample, own: set[int]) -> set[int] | None:
    """Numbers of the calls that are given a sample, or what is made of it without a gradient; None if
    it meets what it was drawn with, as in a log-probability.
    """
    computed, users, forms = _computed(tape, own), set[int](), set[int]()
    for call in tape.calls.values():
        if not any(each is sample.value or made in forms for each, made in call.parents):
            continue
        if call.number in computed and any(
            id(each) in own or made in computed
            for each, made in call.parents
            if each is not sample.value and made not in forms
        ):
            return None
        users.add(call.number)
        if not call.gives_gradient or call.name in FORMING | {"cat"}:
            forms.add(call.number)
    return users


def _trained(tape: FunctionTape, loss: torch.Tensor) -> Iterator[TapedCall]:
    """The calls that lead to a loss along its gradient."""
    waiting, seen = [tape.maker(loss)], set[int]()
    while waiting:
        call = waiting.pop()
        if call is not None and call.number not in seen:
            seen.add(call.number)
            yield call
            waiting += [
                tape.maker_before(call, each) for each, _ in call.parents if each.requires_grad
            ]


def _around(tape: FunctionTape, parameters: tuple[torch.Tensor, ...]) -> Iterator[int]:
    """``id`` of these, and of what they are made of one by one, up to what a layer gave."""
    for parameter in parameters:
        waiting = [(parameter, tape.maker(parameter))]
        while waiting:
            tensor, made = waiting.pop()
            yield id(tensor)
            given = [] if made is None else [each for each, _ in made.parents if each.requires_grad]
            shapes = made is not None and made.name in SHAPING
            if (
                made is not None
                and shapes
                and (len(given) == 1 or made.name == "broadcast_tensors")
            ):
                waiting += [(each, tape.maker_before(made, each)) for each in given]


def _computed(tape: FunctionTape, own: set[int]) -> frozenset[int]:
    """Numbers of the calls that are computed from these."""
    given = (
        call for call in tape.calls.values() if any(id(each) in own for each, _ in call.parents)
    )
    return reached_from(tape, given)
