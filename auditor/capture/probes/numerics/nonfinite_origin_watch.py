"""The watch over single operators: which of them made a non-finite value of finite ones. For a few
steps of a replay only.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.probes.numerics.nonfinite_origin_log import Birth, NonfiniteOriginLog, Phase
from auditor.capture.probes.operator_stream import Call, Operator, Subscriber
from auditor.recordings.schema.numerics import BirthInput

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
"""Births that are remembered; once a NaN is loose nearly everything inherits it, so there are
few.
"""

MOST_INPUTS = 4
"""Inputs whose ranges are told."""

UNWRITTEN = ("empty", "new_empty")
"""How the names of operators begin that hand out memory as they find it."""

ATTACHES = "set"
"""Operator that gives a tensor memory with numbers in it, as for a batch that a loader's worker
made: they were there before.
"""

OVERWRITES = frozenset(
    """
    fill zero copy foreach_copy normal uniform exponential random bernoulli geometric log_normal
    cauchy
    """.split()
)
"""Operators that write a tensor without reading what it held."""


class Where(Protocol):
    """Knows what runs now: the user's line, the phase, the node of the backward, the module."""

    def now(self) -> dict[str, Any]:
        """``step``, ``at``, ``place``, ``phase``, ``node`` and ``module`` of a birth."""

    def entered(self) -> int | None:
        """Where the user's code called the outermost module that runs."""


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

    def described(self) -> tuple[BirthInput, ...]:
        """The inputs as a birth tells them."""
        written = {id(tensor) for tensor in self.call.written}
        return tuple(
            describe(tensor, known, written=id(tensor) in written)
            for tensor, known in self.inputs[:MOST_INPUTS]
        )


class NonfiniteOriginWatch(Subscriber):
    """Checks inputs and outputs of every operator.

    A producer makes a non-finite value of finite inputs. What inherits one inherits its birth, so
    that the NaN of ``inf / inf`` is the doing of the ``exp`` that overflowed; but a NaN made of a
    mask's ``-inf`` is a birth of its own.
    """

    def __init__(
        self, log: NonfiniteOriginLog, where: Where, on_error: Callable[[Exception], None]
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

    # -- who did it --------------------------------------------------------------------------------

    def _blame(self, ranges: Ranges, output: torch.Tensor, known: Range) -> Birth:
        inherited = [
            self._log.of(tensor) or self._foreign(ranges, tensor, range_)
            for tensor, range_ in ranges.bad
        ]
        made = min(
            (birth for birth in inherited if not birth.fill),
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
        facts = {
            "op": ranges.call.operator.name,
            "value": known.value,
            "dtype": known.dtype,
            "fill": fill,
        }
        constants = tuple(str(number) for number in ranges.constants)
        return self._log.add(
            **facts, **self._where.now(), constants=constants, inputs=ranges.described()
        )

    def _foreign(self, ranges: Ranges, tensor: torch.Tensor, known: Range) -> Birth:
        """A non-finite value that no watched operator made: a parameter, a mask, state, or data."""
        place = self._where.now()
        phase: Phase = "state" if place["phase"] == "optimizer" else "input"
        if self._log.of_parameter(tensor):
            phase = "parameter"
        written = any(tensor is other for other in ranges.call.written)
        fill = not written and phase == "input" and _is_mask(tensor, known)
        facts = {
            "op": ranges.call.operator.name,
            "value": known.value,
            "dtype": known.dtype,
            "fill": fill,
        }
        birth = self._log.add(
            **facts,
            **{**place, "phase": phase},
            entered=self._where.entered() if phase == "input" else None,
            inputs=(describe(tensor, known, written=written),),
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
    """Zeros and infinities of one sign, or a lone number: somebody wrote that on purpose."""
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
