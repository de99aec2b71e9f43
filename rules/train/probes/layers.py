"""Layers that are given, or give, what nothing can be learned from: inputs far from unit scale,
units that are never active, gates that are fully open or shut.
"""

from __future__ import annotations

import math
import weakref
from dataclasses import dataclass

import torch

from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS, Backward
from auditor.capture.instruments.dispatch_modes import leave_function, run_compiled_code_eagerly
from auditor.capture.instruments.live_objects import alive
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.numerics.nonfinite import names_of

from ..rows import LayerRow
from . import zeros
from .function_tape import FunctionTape, TapedCall, TapeRequest
from .second_gradient import (
    NUMBERS,
    Change,
    NotRepeated,
    angle_and_ratio,
    computed_again,
    nothing_left_behind,
    recomputed,
    same_as,
    tail_of,
)

AXES = {"linear": -1, "matmul": -1, "mm": -1, "conv1d": -2, "conv2d": -3, "conv3d": -4}
"""Layers, and the dimension of their columns or channels, of input and result alike."""

UNITS = AXES.keys() - {"matmul", "mm"}
"""Layers of which each row of the weight is a unit."""

LOOPS = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
ACTIVE = frozenset({"relu", "relu_", "relu6", "clamp", "clamp_", "clamp_min", "clamp_min_"})
GATES = frozenset({"sigmoid", "tanh"})
NORMS = frozenset(
    "batch_norm layer_norm group_norm instance_norm rms_norm local_response_norm normalize".split()
)
PLACED = AXES.keys() | LOOPS | ACTIVE | GATES

FAR = 16.0
"""Root mean square of an input from which the loss is computed again with it normalised."""

NEAR_END = 0.95
"""Share of a gate's results that ``edge`` speaks of."""


@dataclass
class _Units:
    """Which units of a layer ever gave something, or got a gradient."""

    weight: weakref.ref[torch.Tensor]
    alive: torch.Tensor
    backwards: int = 0
    samples: int = 0
    at: int | None = None
    """The activation behind it; None if none was seen."""


class LayersProbe(Probe):
    """Writes ``layers``.

    The diagnostic pass only adds up which rows of the weights get a gradient: a unit that is silent
    for two batches may answer to the next one. All else is seen on the tape of the gradient pass.
    """

    name = "layers"
    passes = frozenset({"loud", "gradients"})
    after = ("loss_repairs",)

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._patches = Patches(self.missed)
        self._tape: FunctionTape | None = None
        self._leaves: list[torch.Tensor] = []
        self._units: dict[int, _Units] = {}
        self._gates: dict[tuple[int, str], tuple[float, int]] = {}
        self._zeros: dict[tuple[int, int], tuple[int, _Units, _Units]] = {}
        """Lines that multiply two zeros, by the two parameters that are."""
        self._seen: set[tuple[int, int]] = set()
        """Layers whose input was looked at, which is done once."""

    def start(self) -> None:
        """Watch the door; in the gradient pass, enter the tape as well."""
        BACKWARD_HOOKS.add(self)
        if self.context.pass_name != "gradients":
            return
        self.context.writer.touch("layers")
        run_compiled_code_eagerly(self._patches)
        tape = FunctionTape(self.context, TapeRequest(_is_placed), self.missed)
        tape.__enter__()  # type: ignore[no-untyped-call]  # torch's own, without annotations
        self._patches.on_undo(lambda: leave_function(tape))
        self._tape = tape

    def stop(self) -> None:
        BACKWARD_HOOKS.remove(self)
        self._patches.undo()
        if self._tape is not None:
            self._tape = None
            self._write()

    def step_end(self) -> None:
        self._leaves.clear()
        if self._tape is not None:
            self._tape.clear()

    def backward_begins(self, call: Backward) -> None:
        """Look at the tape while it holds what led to the loss."""
        tape = self._tape
        if tape is not None:
            tape.paused = True
        if call.nested or not self.context.in_step:
            return
        self._leaves = [leaf.variable for leaf in call.walked.leaves]
        if tape is None:
            return
        try:
            self._look_at_units(tape)
            for made, *pair in zeros.zero_products(tape):
                one, two = map(self._units_of, pair)
                self._zeros[id(pair[0]), id(pair[1])] = made.at or 0, one, two
            if len(call.tensors) == 1 and not call.create_graph:
                self._look_at_gates(tape, call.tensors[0])
                self._look_at_inputs(tape, call.tensors[0])
        finally:
            if not call.keep_graph:
                tape.clear()

    def backward_ends(self, call: Backward) -> None:
        """See which rows of the weights have a gradient."""
        if call.nested:
            return
        if self._tape is not None:
            self._tape.paused = False
        room = NUMBERS
        for leaf in () if call.failed else self._leaves:
            gradient, room = leaf.grad, room - leaf.numel()
            plain = type(gradient) is torch.Tensor and gradient.layout is torch.strided
            if gradient is not None and plain and room >= 0 and leaf.numel():
                units = self._units_of(leaf)
                units.alive = units.alive | (gradient != 0).reshape(len(units.alive), -1).any(1)
                units.backwards += 1
        self._leaves = []

    def _units_of(self, weight: torch.Tensor) -> _Units:
        units = self._units.get(id(weight))
        if units is None or alive(units.weight) is not weight:
            rows = len(weight) if weight.dim() else 1
            none = torch.zeros(rows, dtype=torch.bool, device=weight.device)
            units = self._units[id(weight)] = _Units(weakref.ref(weight), none)
        return units

    # -- one backward ------------------------------------------------------------------------------

    def _look_at_units(self, tape: FunctionTape) -> None:
        for call in tape.calls.values():
            if call.name not in ACTIVE or not call.gives_gradient:
                continue
            layer = tape.maker_before(call, call.argument(0, "input"))
            weight = None if layer is None else _weight(layer)
            if layer is None or weight is None or layer.name not in UNITS:
                continue
            if call.result.dim() < 2 or not call.result.numel():
                continue
            largest = call.result.detach().amax(_others(call.result, AXES[layer.name]))
            units = self._units_of(weight)
            units.alive = units.alive | (largest != 0)
            units.samples, units.at = units.samples + call.result.numel() // len(largest), call.at

    def _look_at_gates(self, tape: FunctionTape, loss: torch.Tensor) -> None:
        tail = tail_of(tape, loss)
        last = None if tail is None else {call.number for call in tail.calls}
        products = [
            {id(each) for each, _ in call.parents}
            for call in tape.calls.values()
            if call.name == "mul"
        ]
        for call in tape.calls.values():
            if call.name not in GATES or call.at is None or not call.result.numel():
                continue
            own = {id(call.result), id(call.argument(0, "input"))}  # x * sigmoid(x)
            if last is None or call.number in last or any(own <= each for each in products):
                continue
            results = call.result.detach().float().flatten()
            ends = torch.minimum(1 - results, results + (call.name == "tanh"))
            edge = float(ends.kthvalue(max(1, math.ceil(NEAR_END * len(ends)))).values)
            before, samples = self._gates.get((call.at, call.name), (0.0, 0))
            self._gates[call.at, call.name] = max(before, edge), samples + len(ends)

    def _look_at_inputs(self, tape: FunctionTape, loss: torch.Tensor) -> None:
        for call in list(tape.calls.values()):
            weight = _weight(call)
            given = call.parents[0][0] if call.parents else None
            if weight is None or given is None or call.at is None or given.requires_grad:
                continue
            key = call.at, id(weight)
            if key in self._seen or not (given.is_floating_point() and given.numel()):
                continue
            if _is_normalised(tape, call):
                continue
            self._seen.add(key)
            others = _others(given, AXES.get(call.name, -1))
            squares = given.detach().float().square()
            columns = squares.mean(others) if others else squares
            result = _result(tape, call, weight).float().square().mean()
            numbers = (columns.mean(), columns.min(), columns.max(), result)
            mean, least, most, made = (math.sqrt(float(each)) for each in numbers)
            if not (math.isfinite(mean) and math.isfinite(made)):
                continue
            row = LayerRow(
                at=call.at,
                kind="input",
                layer=names_of([weight]).get(id(weight), ""),
                given=mean,
                least=least,
                most=most,
                made=made,
            )
            if row.given >= FAR:
                row.ratio = _compared(tape, loss, call, weight)
            self.context.add(row)

    # -- when the pass is over ---------------------------------------------------------------------

    def _write(self) -> None:
        for at, *pair in self._zeros.values():
            if any(bool(each.alive.any()) for each in pair):
                continue
            both = [each for units in pair if (each := alive(units.weight)) is not None]
            named = sorted(names_of(both).values())
            row = LayerRow(
                at=at,
                kind="zero",
                layer=" and ".join(named) if len(named) == len(both) else "",
                steps=min(each.backwards for each in pair),
            )
            self.context.add(row)
        seen = {number: each for number, each in self._units.items() if each.at is not None}
        names = names_of(
            each for units in seen.values() if (each := alive(units.weight)) is not None
        )
        for number, units in seen.items():
            row = LayerRow(
                at=units.at or 0,
                kind="dead",
                layer=names.get(number, ""),
                units=len(units.alive),
                dead=int((~units.alive).sum()),
                steps=units.backwards,
                samples=units.samples,
            )
            self.context.add(row)
        for (at, name), (edge, samples) in self._gates.items():
            self.context.add(
                LayerRow(at=at, kind="saturated", layer=name, edge=edge, samples=samples)
            )
        self._units.clear()
        self._gates.clear()
        self._zeros.clear()
        self._seen.clear()


def _is_placed(name: str, given: tuple[torch.Tensor, ...]) -> bool:
    multiplies = name in zeros.PRODUCTS and len(given) > 1
    return name in PLACED or (multiplies and all(each.requires_grad for each in given[:2]))


def _weight(call: TapedCall) -> torch.Tensor | None:
    """What a layer has learned; None of what is no layer, or frozen."""
    if call.name not in AXES and call.name not in LOOPS:
        return None
    for each, _ in call.parents[1:]:
        if isinstance(each, torch.nn.Parameter) and each.requires_grad and each.dim() > 1:
            return each
    return None


def _is_normalised(tape: FunctionTape, layer: TapedCall) -> bool:
    """A normalisation stands somewhere behind it: the gradients behind are those of any scale."""
    reached = {layer.number}
    for call in tape.calls.values():
        if any(number in reached for _, number in call.parents):
            if call.name in NORMS:
                return True
            reached.add(call.number)
    return False


def _result(tape: FunctionTape, layer: TapedCall, weight: torch.Tensor) -> torch.Tensor:
    """What the layer gives, after a scale that it is brought to; of an LSTM its gates before their
    activations, without what the last position adds.
    """
    if layer.name in LOOPS:
        given = layer.parents[0][0]
        return torch.nn.functional.linear(given, weight.detach()[:, : given.shape[-1]])
    result = layer.result
    for call in tape.calls.values():
        if any(each is result for each, _ in call.parents):
            if call.name.endswith("_") or call.kwargs.get("inplace"):  # written over
                with torch.no_grad():
                    again: torch.Tensor = computed_again(layer, None)
                return again
            if call.name in ("div", "mul"):
                result = call.result
    return result.detach()


def _others(tensor: torch.Tensor, axis: int) -> list[int]:
    return [dim for dim in range(tensor.dim()) if dim != axis % tensor.dim()]


def _compared(
    tape: FunctionTape, loss: torch.Tensor, layer: TapedCall, weight: torch.Tensor
) -> float | None:
    """How far a small change of the parameters moves the model's outputs, over how far it does with
    the layer's input normalised: norms of the gradients of a fixed sum of the outputs. That of the
    loss would say as much about how far training is. None if they cannot be computed again.
    """
    end, whole = tail_of(tape, loss), tail_of(tape, loss, whole=True)
    if end is None or whole is None or sum(each.numel() for each in whole.outputs) > NUMBERS:
        return None

    def normalised(given: torch.Tensor) -> torch.Tensor:
        others = _others(given, AXES.get(layer.name, -1))
        spread, mean = torch.std_mean(given, others, correction=0, keepdim=True)
        return (given - mean) / torch.where(spread > 0, spread, 1)

    changes: dict[int, Change] = {
        call.number: lambda again: again.with_input(normalised)
        for call in whole.calls
        if call.at == layer.at and _weight(call) is weight and not call.parents[0][0].requires_grad
    }
    if layer.number not in changes:
        return None
    gradients = []
    try:
        with nothing_left_behind():
            for each in ({}, changes):
                held = recomputed(whole, each)
                if not each:
                    same_as(whole, float(held[id(loss)].detach()))
                moved = [held[id(out)].flatten().float() for out in end.outputs if not out.is_leaf]
                outputs = torch.cat(moved)
                mixed = outputs @ torch.arange(len(outputs), device=outputs.device).cos()
                leaves = [held[id(leaf)] for leaf in whole.outputs]
                gradients.append(torch.autograd.grad(mixed, leaves, allow_unused=True))
        pairs = [(a, b) for a, b in zip(*gradients, strict=True) if a is not None and b is not None]
        return angle_and_ratio(pairs)[1]
    except (NotRepeated, RuntimeError, ValueError, TypeError, IndexError, KeyError):
        return None
