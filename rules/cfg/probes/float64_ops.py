"""Where float64 comes into what is differentiated, and how far it spreads. And sizes that
convolutions on the device have not met before: cuDNN's benchmark mode tries its algorithms for each.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn import functional

from auditor.capture.instruments.storages import Storages
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.operator_stream import Call, Operator, OperatorProbe, Subscriber
from auditor.capture.probes.optim.optimizer_hooks import live_optimizers, tensors_of

from ..rows import ConvSizesRow, DoubleBirthRow, DoubleParametersRow

CONVOLUTIONS = (
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
)
MOST_SIZES = 10_000
"""Upper bound on remembered sizes; after that no size counts as new."""


class ConvSizesProbe(Probe):
    """Writes ``conv_sizes``, one row for each step with a convolution on the device.

    It is told of calls of torch.nn.functional, which modules make too. Nothing of a tensor is read
    but its shape and dtype. The warm-up only learns which sizes there are.
    """

    name = "conv_sizes"
    passes = frozenset({"warmup", "loud"})
    in_runs = False  # a trace of a real GPU shows the searching itself
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._met: set[Hashable] = set()
        self._begin()

    def _begin(self) -> None:
        self._row = ConvSizesRow(at=None, n=0, new=0, shape=[], benchmark=True)

    def start(self) -> None:
        super().start()
        for name in CONVOLUTIONS:
            self._patches.around(functional, name, before=self._convolves)

    def stop(self) -> None:
        super().stop()
        self._begin()

    def _convolves(self, *args: Any, **kwargs: Any) -> None:
        given = [*args, *kwargs.values()]
        tensors = [each for each in given if isinstance(each, torch.Tensor)]
        if not self.context.in_step or len(tensors) < 2 or not tensors[0].is_cuda:
            return
        row, cudnn = self._row, torch.backends.cudnn
        row.n += 1
        row.benchmark = row.benchmark and bool(cudnn.benchmark and cudnn.enabled)
        sizes = tuple((tuple(each.shape), each.dtype) for each in tensors[:2])
        others = tuple(str(each) for each in given if not isinstance(each, torch.Tensor))
        key = sizes, others
        if key in self._met or len(self._met) >= MOST_SIZES:
            return
        self._met.add(key)
        row.new += 1
        if row.new == 1:
            row.at, row.shape = self.context.frames.here(), list(tensors[0].shape)

    def step_end(self) -> None:
        if self._row.n and self.context.pass_name == "loud":
            self.context.add(self._row)
        self._begin()


def _birth(at: int, how: str, op: str) -> DoubleBirthRow:
    return DoubleBirthRow(
        at=at, how=how, op=op, n=0, elements=0, largest=0, products=0, graph=False, steps=0, all=0
    )


MOVES = frozenset(
    {"to_copy", "copy", "clone", "pin_memory", "index", "index_select", "stack", "cat"}
)
"""Operators that hand float64 values on as they are; the last ones collate a batch."""


@dataclass(eq=False)
class Arrival:
    """A float64 tensor that the step did not make: where it was cast to a narrower dtype, with how
    many elements, and whether anything else was computed from it.
    """

    casts: list[tuple[int, int]] = field(default_factory=list)
    used: bool = False


class Float64OpsWatch(Subscriber):
    """Follows what runs with gradients on: the forward, but not the optimizer, an evaluation or a
    metric.

    Nor the backward, whose dtypes are those of the forward.
    """

    def __init__(self, step: Callable[[], int], on_error: Callable[[Exception], None]) -> None:
        super().__init__(on_error)
        self._step = step
        self.births: dict[tuple[int, str], DoubleBirthRow] = {}
        self._on: dict[tuple[int, str], set[int]] = {}
        self.elements = 0
        """Elements that all operators on floating-point numbers went through."""
        self.trails: Storages[DoubleBirthRow] = Storages()
        self._arrived: Storages[Arrival] = Storages()
        self._arrivals: list[Arrival] = []

    in_backward = False

    def wants(self, operator: Operator) -> bool:
        """All that compute."""
        return not operator.view

    def before(self, call: Call) -> bool | None:
        """Only what may be differentiated."""
        return torch.is_grad_enabled() or None

    def after(self, call: Call, noted: Any) -> None:
        """Count what was worked on, and lay the trail on."""
        operator, given = call.operator, call.given
        made = [each for each in (*call.made, *call.written) if each.is_floating_point()]
        self.elements += _work(made, [each for each in given if each.is_floating_point()])
        wide = [each for each in made if each.dtype is torch.float64]
        self._arrives(call, made)
        born = self._born(call) if wide else None
        for each in made:
            if born is not None and each.dtype is torch.float64:
                self.trails.lay(each, born)
            else:
                self.trails.drop(each)
        if born is not None:
            self._count(
                born,
                operator,
                given,
                _work(wide, [each for each in given if each.dtype is torch.float64]),
            )

    def _arrives(self, call: Call, made: list[torch.Tensor]) -> None:
        """Follow float64 tensors from outside through moves, to casts and what is made of them."""
        moves = call.operator.name in MOVES
        for each in call.given:
            if each.dtype is not torch.float64 or each.numel() < 2:
                continue
            outside = self.trails.of(each) is None and not each.requires_grad
            arrival = self._arrived.of(each)
            if arrival is None and outside:
                arrival = Arrival()
                self._arrivals.append(arrival)
                self._arrived.lay(each, arrival)
            if arrival is None:
                continue
            narrowed = [one for one in made if one.dtype is not torch.float64]
            at = call.site if narrowed and moves else None
            if at is not None:
                arrival.casts.append((at, each.numel()))
            elif moves and made and not narrowed:
                for one in made:
                    self._arrived.lay(one, arrival)
            else:
                arrival.used = True

    def end_step(self) -> None:
        """Write down what was only narrowed, and forget what led to the step's tensors; one that
        stays until the next step is *given* to it.
        """
        for arrival in self._arrivals:
            for at, elements in arrival.casts if not arrival.used else ():
                found = self.births.setdefault((at, "narrowed"), _birth(at, "narrowed", "to_copy"))
                self._add(found, elements)
        self._arrivals.clear()
        self._arrived.clear()
        self.trails.clear()

    def _born(self, call: Call) -> DoubleBirthRow | None:
        given = call.given
        inherited = (self.trails.of(each) for each in given if each.dtype is torch.float64)
        known = next((each for each in inherited if each is not None), None)
        if known is not None:
            return known
        at = call.site
        if at is None:
            return None
        how = _how(given)
        return self.births.setdefault((at, how), _birth(at, how, call.operator.name))

    def _count(
        self, born: DoubleBirthRow, operator: Operator, given: list[torch.Tensor], elements: int
    ) -> None:
        if elements <= 1:  # a single number costs nothing
            return
        self._add(born, elements)
        born.products += operator.product
        born.graph |= any(each.requires_grad for each in given)

    def _add(self, born: DoubleBirthRow, elements: int) -> None:
        on = self._on.setdefault((born.at, born.how), set())
        on.add(self._step())
        born.steps = len(on)
        born.n += 1
        born.elements += elements
        born.largest = max(born.largest, elements)


def _work(made: list[torch.Tensor], given: list[torch.Tensor]) -> int:
    return max((each.numel() for each in (*made, *given)), default=0)


def _how(given: list[torch.Tensor]) -> str:
    floating = [each for each in given if each.is_floating_point() and each.dim() > 0]
    wide = any(each.dtype is torch.float64 for each in given)
    if not wide:
        return "cast" if given else "made"
    return "mixed" if any(each.dtype is not torch.float64 for each in floating) else "given"


class Float64OpsProbe(OperatorProbe):
    """Writes ``doubles`` when its pass is over: births of float64, then what share of the trained
    parameters is float64.

    Below autograd, so that dtypes are those that ran. Nothing of a tensor is read.
    """

    name = "doubles"
    passes = frozenset({"numbers"})
    in_rehearsals = True
    unseen = "float64 was not followed through some operators"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._watching: Float64OpsWatch | None = None

    def watch(self) -> None:
        """Follow float64."""
        self._watching = Float64OpsWatch(lambda: self.context.step, self.missed)
        self.enter(self._watching)

    def step_end(self) -> None:
        if self._watching is not None:
            self._watching.end_step()

    def stop(self) -> None:
        super().stop()
        watch, self._watching = self._watching, None
        if watch is None:
            return
        self.context.writer.touch("doubles")
        for born in watch.births.values():
            if born.n:
                born.all = watch.elements
                self.context.add(born)
        trained = [each for optimizer in live_optimizers() for each in tensors_of(optimizer)]
        sizes = [
            (each.dtype is torch.float64, each.numel())
            for each in {id(each): each for each in trained}.values()
        ]
        wide, every = sum(n for double, n in sizes if double), sum(n for _, n in sizes)
        self.context.add(DoubleParametersRow(elements=wide, all=every))
