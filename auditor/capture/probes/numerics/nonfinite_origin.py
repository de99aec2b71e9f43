"""Where a non-finite value was born, in the last steps of a replay: every operator watched."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any
from weakref import WeakSet

import torch

from auditor.capture.instruments.dispatch_modes import run_compiled_code_eagerly
from auditor.capture.instruments.module_stack import Modules
from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.storages import Storages, storage_bytes
from auditor.capture.instruments.torch_private.autograd import ENGINE, current_node
from auditor.capture.instruments.torch_private.compiler import CALL_OF_A_MODULE
from auditor.capture.instruments.torch_private.data import LoaderIterator, dataset_of
from auditor.capture.instruments.torch_private.training import BatchNorm
from auditor.capture.instruments.user_frames import source_path
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.data.dataloader_facts import dataset_class, tensors_in
from auditor.capture.probes.numerics.nonfinite import Stepped, bad_tensors, finite, statistics_of
from auditor.capture.probes.operator_stream import OVERWRITES, Call, Operator, Subscriber, subscribe
from auditor.errors import fault
from auditor.recordings.schema.numerics import BirthInput, BirthRow

# -- min max ---------------------------------------------------------------------------------------
# Between which numbers does a tensor lie, and is all of it finite? One reduction for both.


@dataclass(frozen=True)
class Range:
    """Smallest and largest element; NaN where there is one. An empty tensor has neither."""

    dtype: str
    low: float | None
    high: float | None

    @property
    def finite(self) -> bool:
        """True if every element is finite."""
        return (
            self.low is None
            or self.high is None
            or (math.isfinite(self.low) and math.isfinite(self.high))
        )

    @property
    def nan(self) -> bool:
        """True if an element is NaN."""
        return self.low is not None and math.isnan(self.low)

    @property
    def value(self) -> str:
        """``nan``, ``inf``, ``-inf`` (if nothing is ``inf``) or ``finite``."""
        if self.finite or self.high is None:
            return "finite"
        return "nan" if self.nan else "inf" if self.high == math.inf else "-inf"


def measure(tensor: torch.Tensor) -> Range | None:
    """The range of a tensor of plain floating or complex numbers; None for any other."""
    real = _real(tensor)
    if real is None:
        return None
    name = str(tensor.dtype).removeprefix("torch.")
    if real.numel() == 0:
        return Range(name, None, None)
    low, high = torch.aminmax(real)
    if real.is_cuda:
        low, high = torch.stack((low, high)).tolist()
    return Range(name, float(low), float(high))


def describe(tensor: torch.Tensor, before: Range, *, written: bool) -> BirthInput:
    """What a row says of an operator's input: the range of its finite part, and how much of it is
    not.

    Where the operator has written into it (``written``), only the range taken before is known.
    """
    dtype, shape = before.dtype, list(tensor.shape)
    if before.finite or written:
        known = before.finite
        low, high = (before.low, before.high) if known else (None, None)
        return BirthInput(
            dtype=dtype, shape=shape, min=low, max=high, share_nonfinite=0.0 if known else None
        )
    real = _real(tensor)
    assert real is not None
    finite = torch.isfinite(real)
    rest = real[finite]
    low, high = (float(each) for each in torch.aminmax(rest)) if rest.numel() else (None, None)
    return BirthInput(
        dtype=dtype,
        shape=shape,
        min=low,
        max=high,
        share_nonfinite=1.0 - rest.numel() / real.numel(),
    )


def _real(tensor: torch.Tensor) -> torch.Tensor | None:
    tensor = plain(tensor)
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_quantized:
        return None
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    if not tensor.is_floating_point():
        return None
    # 8-bit floats have few operators
    return tensor if tensor.element_size() > 1 else tensor.to(torch.float32)


# -- nonfinite origin watch ------------------------------------------------------------------------

MOST_BIRTHS = 20_000
"""Births that are remembered; nearly everything inherits a NaN, so there are few."""

MOST_INPUTS = 4
"""Inputs whose ranges are told."""

UNWRITTEN = ("empty", "new_empty")
"""How the names of operators begin that hand out memory as they find it."""

ATTACHES = "set"
"""Operator that gives a tensor memory whose numbers were there before, as a worker's batch."""


@dataclass
class Ranges:
    """Of a call of an operator the ranges of its inputs before it ran."""

    call: Call
    inputs: list[tuple[torch.Tensor, Range]]
    holes: list[torch.Tensor]
    """Of an element-wise operator, where its inputs were not finite."""

    @property
    def bad(self) -> list[tuple[torch.Tensor, Range]]:
        """Inputs that were not finite."""
        return [(tensor, known) for tensor, known in self.inputs if not known.finite]

    @property
    def constants(self) -> list[float]:
        """Non-finite numbers that the source itself wrote as arguments."""
        numbers = _numbers((*self.call.args, *self.call.kwargs.values()))
        return [number for number in numbers if not math.isfinite(number)]

    def described(self) -> list[BirthInput]:
        """The inputs as a birth tells them."""
        written = {id(tensor) for tensor in self.call.written}
        return [
            describe(tensor, known, written=id(tensor) in written)
            for tensor, known in self.inputs[:MOST_INPUTS]
        ]


class NonfiniteOriginWatch(Subscriber):
    """Checks inputs and outputs of every operator.

    A producer makes a non-finite value of finite inputs. What inherits one inherits its birth, so
    that the NaN of ``inf / inf`` is the doing of the ``exp`` that overflowed; but a NaN made of a
    mask's ``-inf`` is a birth of its own.
    """

    def __init__(
        self, log: NonfiniteOriginLog, where: Position, on_error: Callable[[Exception], None]
    ) -> None:
        super().__init__(on_error)
        self._log = log
        self._where = where

    # -- one call ----------------------------------------------------------------------------------

    def before(self, call: Call) -> Ranges | None:
        """The ranges of the inputs; None of a view."""
        operator = call.operator
        self._log.note_parameters(call.given)
        if operator.view and operator.name != "lift_fresh":
            return None
        overwrites = operator.name in OVERWRITES or any(
            getattr(each, "is_out", False) for each in operator.schema.arguments
        )
        unread = {id(tensor) for tensor in call.written} if overwrites else set()
        inputs = []
        for tensor in () if operator.name.startswith(UNWRITTEN) else call.given:
            known = None if id(tensor) in unread else measure(tensor)
            if known is not None:
                inputs.append((tensor, known))
        holes = [
            ~torch.isfinite(plain(tensor))
            for tensor, known in inputs
            if _pointwise(operator) and not known.finite
        ]
        return Ranges(call, inputs, holes)

    def after(self, call: Call, noted: Ranges) -> None:
        """A non-finite output is held with the birth that is to blame."""
        outputs = {id(tensor): tensor for tensor in (*call.made, *call.written)}
        for output in outputs.values():
            known = measure(output)
            if known is None:
                continue
            if known.finite:
                self._log.finite(output)
            elif call.operator.name == ATTACHES:
                self._foreign(noted, output, known)
            else:
                self._log.hold(output, self._blame(noted, output, known))

    # -- causes ------------------------------------------------------------------------------------

    def _blame(self, ranges: Ranges, output: torch.Tensor, known: Range) -> Birth:
        inherited = [
            self._log.of(tensor) or self._foreign(ranges, tensor, range_)
            for tensor, range_ in ranges.bad
        ]
        made = min(
            (birth for birth in inherited if not birth.row.fill),
            key=lambda birth: birth.order,
            default=None,
        )
        if made is not None:
            return made
        if ranges.constants:
            # 0 * inf is no constant that anybody wrote: its NaN was made.
            fill = not known.nan or any(math.isnan(number) for number in ranges.constants)
            return inherited[0] if inherited else self._born(ranges, known, fill=fill)
        if ranges.call.operator.name.startswith(UNWRITTEN):
            return self._born(ranges, known, fill=True)
        if (
            not inherited
            or (known.nan and not any(range_.nan for _, range_ in ranges.bad))
            or _afresh(ranges, output)
        ):
            return self._born(ranges, known)
        return inherited[0]

    def _born(self, ranges: Ranges, known: Range, *, fill: bool = False) -> Birth:
        if len(self._log.births) >= MOST_BIRTHS:
            return self._log.births[-1]
        return self._log.add(
            **self._where.now(),
            op=ranges.call.operator.name,
            value=known.value,
            dtype=known.dtype,
            fill=fill,
            constants=[str(number) for number in ranges.constants],
            inputs=ranges.described(),
        )

    def _foreign(self, ranges: Ranges, tensor: torch.Tensor, known: Range) -> Birth:
        """A non-finite value that no watched operator made: a parameter, a mask, state, or data."""
        place = self._where.now()
        phase = "state" if place["phase"] == "optimizer" else "input"
        if self._log.parameters.of(tensor):
            phase = "parameter"
        written = any(tensor is other for other in ranges.call.written)
        fill = not written and phase == "input" and _is_mask(tensor, known)
        birth = self._log.add(
            **{**place, "phase": phase},
            op=ranges.call.operator.name,
            value=known.value,
            dtype=known.dtype,
            fill=fill,
            entered=self._where.entered() if phase == "input" else None,
            inputs=[describe(tensor, known, written=written)],
        )
        self._log.hold(tensor, birth)
        return birth


def _afresh(ranges: Ranges, output: torch.Tensor) -> bool:
    """True if an element-wise operator's output is non-finite where all its inputs were finite."""
    output = plain(output)
    if not _pointwise(ranges.call.operator) or output.layout is not torch.strided:
        return False
    inherited = torch.zeros(output.shape, dtype=torch.bool, device=output.device)
    for hole in ranges.holes:
        inherited |= hole
    return bool((~torch.isfinite(output) & ~inherited).any())


def _pointwise(operator: Operator) -> bool:
    return torch.Tag.pointwise in operator.func.tags


def _is_mask(tensor: torch.Tensor, known: Range) -> bool:
    """Zeros and infinities of one sign, or a single number: the program wrote it on purpose."""
    if known.nan:
        return tensor.numel() == 1
    tensor = plain(tensor)
    both = known.low is not None and known.low == -math.inf and known.high == math.inf
    return not both and not bool(tensor[torch.isfinite(tensor)].any())


def _numbers(values: Iterable[Any]) -> Iterator[float]:
    for value in values:
        if isinstance(value, (float, complex)):
            yield abs(value) if isinstance(value, complex) else value
        elif isinstance(value, (list, tuple)):
            yield from _numbers(value)


Line = tuple[str, int]
"""File and line."""


@dataclass(eq=False)
class Birth:
    """An operator whose output was not finite although its inputs were, or a value that came into
    the step non-finite.

    A *fill* was written on purpose (``masked_fill(-inf)``, a mask of zeros and ``-inf``) or never
    written at all (``empty``): it is no fault as long as no operator uses it.
    """

    order: int
    place: Line | None
    """Where the row's ``at`` is."""
    row: BirthRow


class NonfiniteOriginLog:
    """Births by storage, shared by views. Weak; no address is used again meanwhile."""

    def __init__(self) -> None:
        self.births: list[Birth] = []
        self._holding: Storages[Birth] = Storages()
        self.parameters: Storages[bool] = Storages()
        """Those that were seen; a view of one is found, too."""
        self._batches: Storages[str] = Storages()

    def note_batch(self, tensor: torch.Tensor, dataset: str) -> None:
        """A loader gave this tensor, which is not finite, of that dataset."""
        birth = self.of(tensor)
        if birth is not None and birth.row.phase == "input":
            birth.row.dataset = dataset
        elif birth is None:
            self._batches.lay(tensor, dataset)

    def note_parameters(self, tensors: Iterable[torch.Tensor]) -> None:
        """Of these the parameters are seen; their views (a transposed weight) too."""
        for tensor in tensors:
            leaf = tensor.is_leaf and tensor.requires_grad
            if isinstance(tensor, torch.nn.Parameter) or leaf:
                self.parameters.lay(tensor, True)

    def of(self, tensor: torch.Tensor) -> Birth | None:
        """The birth of what is non-finite in this tensor, if it was seen."""
        return self._holding.of(tensor)

    def hold(self, tensor: torch.Tensor, birth: Birth) -> None:
        """The tensor now holds what was born there. An earlier birth is kept, unless a fill."""
        before = self.of(tensor)
        if before is None or before.row.fill or before.order > birth.order:
            self._holding.lay(tensor, birth)
        dataset = self._batches.of(tensor) if birth.row.phase == "input" else None
        if dataset is not None:
            birth.row.dataset = dataset
            self._batches.drop(tensor)

    def finite(self, tensor: torch.Tensor) -> None:
        """A tensor is finite: forget its storage's birth if it covers the storage."""
        if self.of(tensor) is not None and tensor.nbytes >= (storage_bytes(tensor) or 0):
            self._holding.drop(tensor)

    def prune(self) -> None:
        """Forget what is gone."""
        self._holding.prune()

    def add(self, place: Line | None, **facts: Any) -> Birth:
        """A new birth, the latest."""
        birth = Birth(len(self.births), place, BirthRow(**facts))
        self.births.append(birth)
        return birth

    def told(self, birth: Birth) -> Birth:
        """The birth to report: of a backward's the one in the forward of the same line, if that
        came first.

        ``log(0)`` is ``-inf`` in forward and ``1 / 0`` in backward; only the first says what the
        input was.
        """
        if birth.row.phase != "backward" or birth.place is None:
            return birth
        same = (
            each
            for each in self.births
            if each.row.phase == "forward" and not each.row.fill and each.place == birth.place
        )
        return next(same, birth)


BATCH = 100
"""Tensors of a batch that are looked at."""

MOST_ROWS = 5
"""Births of one step that are reported."""

_OPTIMIZERS = f"{os.sep}optim{os.sep}"
"""Part of the path of files that update parameters: torch/optim, timm/optim."""

_CALL_LINE = re.compile(r'\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')


class Position:
    """What runs at this moment, and which line of the user's it comes from.

    In the backward that is the forward's line which made the node, unless a function of the user's
    (a hook, a custom ``autograd.Function``) is what runs there.
    """

    def __init__(self, context: Context, modules: Modules) -> None:
        self._context = context
        self._writer = context.writer
        self._frames = context.frames
        self._modules = modules

    def now(self) -> dict[str, Any]:
        """``step``, ``at``, ``place``, ``phase``, ``node`` and ``module`` of a birth."""
        node, (frame, optimizing) = current_node(), self._innermost()
        at, place = None, None
        if frame is not None:
            at = self._frames.number(frame)
            place = source_path(frame.f_code.co_filename), frame.f_lineno
        elif node is not None:
            at, place = self._forward_of(node)
        phase = "backward" if node is not None else "optimizer" if optimizing else "forward"
        name = "" if node is None else type(node).__name__
        step, module = self._context.step, self._modules.current
        if node is not None and not module:
            module = self._modules.that_made(node)
        return {
            "step": step,
            "at": at,
            "place": place,
            "phase": phase,
            "node": name,
            "module": module,
        }

    def entered(self) -> int | None:
        """Where a line of the user's called the outermost module that runs, if one does."""
        frame: FrameType | None = sys._getframe(1)
        found: FrameType | None = None
        while frame is not None and frame.f_code.co_name != ENGINE:
            if frame.f_code.co_name == CALL_OF_A_MODULE:
                torchs, caller = frame.f_code.co_filename, frame.f_back
                while caller is not None and caller.f_code.co_filename == torchs:
                    caller = caller.f_back
                if caller is not None and self._frames.is_user(caller.f_code.co_filename):
                    found = caller
            frame = frame.f_back
        return None if found is None else self._frames.number(found)

    def _innermost(self) -> tuple[FrameType | None, bool]:
        """The innermost user frame on this side of the engine; if an optimizer runs in it."""
        frame: FrameType | None = sys._getframe(1)
        optimizing = False
        while frame is not None and frame.f_code.co_name != ENGINE:
            file = frame.f_code.co_filename
            if self._frames.is_user(file):
                return frame, optimizing
            optimizing = optimizing or _OPTIMIZERS in file
            frame = frame.f_back
        return None, optimizing

    def _forward_of(self, node: Any) -> tuple[int | None, Line | None]:
        """Anomaly mode has left the forward's stack, as text, in the node's metadata."""
        for text in reversed(node.metadata.get("traceback_", ())):
            match = _CALL_LINE.match(text)
            if match and self._frames.is_user(match["file"]):
                file, line = os.path.abspath(match["file"]), int(match["line"])
                return self._writer.site(file, line, match["function"].strip()), (file, line)
        return None, None


class NonfiniteOriginProbe(Probe):
    """Writes ``births``: of the first watched step that ends badly, what made its gradients or
    parameters non-finite. Of steps that all end well, what the first batch norm was given whose
    statistics did not stay finite.

    ``context.plan.watched`` are the steps to watch. Runs only in a replay: it slows a step several times
    and reads every tensor on the host. It changes no result.
    """

    name = "birth"
    parts = ("births",)
    passes = frozenset({"replay"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._log = NonfiniteOriginLog()
        self._modules = Modules()
        self._stepped = Stepped()
        self._done = False
        self._given: Birth | None = None
        """Behind what a batch norm was given whose statistics it spoiled."""
        self._spoiled: WeakSet[torch.nn.Module] = WeakSet()
        """Batch norms that began a forward with statistics that were not finite."""
        self._errors = 0

    def install(self) -> None:
        self._stepped.install()

    def uninstall(self) -> None:
        self._stepped.uninstall()

    def start(self) -> None:
        """Say that this recording looks for births."""
        super().start()
        if LoaderIterator is not None:
            self._always.around(LoaderIterator, "__next__", after=self._batch)

    def _batch(self, batch: Any, iterator: Any) -> None:
        if self._done or self.context.step + 1 < min(self.context.plan.watched, default=0):
            return
        dataset = dataset_class(dataset_of(iterator))
        for tensor in tensors_in(batch, BATCH):
            if tensor.is_floating_point() and not finite(tensor):
                self._log.note_batch(tensor, dataset.__name__)

    def step_begin(self) -> None:
        self._stepped.take()
        if self.context.step in self.context.plan.watched and not self._done:
            try:
                self._watch()
            except BaseException:
                self._patches.undo()
                raise

    def step_end(self) -> None:
        stepped = self._stepped.take()
        self._patches.undo()
        self._log.prune()
        if self.context.step not in self.context.plan.watched or self._done:
            return
        bad = bad_tensors(stepped)
        if bad:
            self._done = True
            reached = {birth for each in bad if (birth := self._log.of(each.tensor)) is not None}
            told = {self._log.told(birth) for birth in reached}
            for birth in sorted(told, key=lambda birth: birth.order)[:MOST_ROWS]:
                self.context.add(birth.row)

    def stop(self) -> None:
        """A step that raised never came to its end."""
        self.step_end()
        self._always.undo()
        if self._given is not None and not self._done:
            self.context.add(self._log.told(self._given).row)
        self._given = None

    def _look_at_norms(self) -> None:
        def begins(module: torch.nn.Module, *_: Any, **__: Any) -> None:
            if not _all_finite(module):
                self._spoiled.add(module)

        def ran(_: Any, module: torch.nn.Module, given: Any, *__: Any) -> None:
            if self._given is None and module not in self._spoiled and not _all_finite(module):
                self._given = self._log.of(given)

        if BatchNorm is not None:
            self._patches.around(BatchNorm, "forward", before=begins, after=ran)

    def _watch(self) -> None:
        self._modules.watch(self._patches)
        before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        torch.set_anomaly_enabled(True, before[1] and before[0])
        self._patches.on_undo(lambda: torch.set_anomaly_enabled(*before))
        run_compiled_code_eagerly(self._patches)
        watch = NonfiniteOriginWatch(self._log, Position(self.context, self._modules), self._fail)
        self._look_at_norms()
        self._patches.on_undo(subscribe(self.context, watch))

    def _fail(self, error: Exception) -> None:
        self._errors += 1
        if self._errors == 1:
            self.context.warn(
                f"some operators of the replayed step were not watched ({fault(error)})"
            )


def _all_finite(module: torch.nn.Module) -> bool:
    return all(finite(buffer) for _, buffer in statistics_of([module]))
