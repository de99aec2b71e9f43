"""What ran on the shadow device, with shapes: one entry for each different call, counted by step."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from auditor.capture.instruments.torch_private.tensors import functions
from auditor.capture.probes.base import Context
from auditor.capture.shadow.crossing import Ran
from auditor.recordings.schema.sync import OperandItem, OperatorOrderRow, OperatorRow

PART, ORDER = OperatorRow.part, OperatorOrderRow.part

MOST = 4096
"""Different calls that are described; further ones are only counted, as number -1."""
UNDESCRIBED = -1

ORDERED = 20_000
"""Operators of a step whose order is kept."""
NOWHERE = -1

COMPILER = "torch.compile"

_VALUED = ("conv", "norm", "attention")
"""Parts of names of operators whose numbers tell what they do: strides, training, causal masks.
Numbers of others change from step to step and would make each call another one."""

RECURRENT = {
    getattr(functions, name): f"aten::{name}"
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")
    if hasattr(functions, name)
}
"""Functions that CUDA runs as one kernel of cuDNN's and the CPU as many operators."""

_Tensor = torch.Tensor
_numel: Any = torch.Tensor.numel


class OperatorLog:
    """Counts calls of operators by what describes them. :meth:`note` never raises."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._counts: dict[int, int] = {}
        self._new: dict[int, OperatorRow] = {}
        self._ids: list[int] = []
        self._at: list[int] = []
        self.compiled = False
        """The program gave something to ``torch.compile``, which a rehearsal runs as it is."""

    def note(self, ran: Ran) -> None:
        """Count a call, and describe it where it is the first of its kind."""
        try:
            number = self._number(ran)
        except Exception:  # a layout without strides, a value without a hash
            number = UNDESCRIBED
        self._counts[number] = self._counts.get(number, 0) + 1
        if len(self._ids) < ORDERED:
            self._ids.append(number)
            self._at.append(self._place())

    def _place(self) -> int:
        """The user's line that the operator runs for; a backward's is that of ``backward()``."""
        frame, _ = self.context.frames.user_frame()
        return NOWHERE if frame is None else self.context.frames.number(frame)

    def _number(self, ran: Ran) -> int:
        if ran.function in RECURRENT:
            ran = Ran(RECURRENT[ran.function], (), [], None, True, None)
        key = _key(ran)
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= MOST:
                return UNDESCRIBED
            self._new[len(self._numbers)] = _described(ran)
            number = self._numbers[key] = len(self._numbers)
        return number

    def write(self) -> None:
        """Write the step's rows, and begin to count the next one."""
        if self.compiled and self._counts:
            self.note(Ran(COMPILER, (), [], None, True, None))
        for number, n in self._counts.items():
            row = self._new.pop(number, None) or OperatorRow(id=number, n=n)
            row.id, row.n = number, n
            self.context.add(row)
        ran = sum(self._counts.values())
        if ran:
            order = OperatorOrderRow(ids=self._ids, at=self._at, cut=ran > len(self._ids))
            self.context.add(order)
        self._counts.clear()
        self._ids, self._at = [], []


def tf32() -> tuple[bool, bool]:
    """Whether products, and convolutions, of float32 run in TF32 now."""
    return _tf32(torch.backends.cuda.matmul), _tf32(
        getattr(torch.backends.cudnn, "conv", torch.backends.cudnn)
    )


def _tf32(settings: Any) -> bool:
    precision = getattr(settings, "fp32_precision", None)
    if precision is None:  # before torch 2.9
        return bool(getattr(settings, "allow_tf32", False))
    if precision == "none":
        precision = getattr(torch.backends, "fp32_precision", "none")
    return bool(precision == "tf32")


def _key(ran: Ran) -> tuple[Any, ...]:
    """What tells calls apart; it is made for every operator, so it is written for speed."""
    name, given, bare, result, in_place, _ = ran
    key: list[Any] = [name]
    for place, one in enumerate(bare):
        kind = type(one)
        if kind is _Tensor or isinstance(one, _Tensor):
            key += (one.shape, one.stride(), one.dtype, given[place] is one)
        elif kind is list and one and isinstance(one[0], _Tensor):
            first = one[0]
            alike = given[place][0] is first
            key += (len(one), first.dtype, alike, first.shape, _elements(one))
        else:
            value = tuple(one) if kind is list else one
            key.append(value if _valued(name) else None)
    if not in_place:
        for made in (result,) if isinstance(result, _Tensor) else _tensors(result):
            key += (made.shape, made.dtype)
    return tuple(key)


def _elements(tensors: list[Any]) -> int:
    """Of all tensors of a list; a list of indices has gaps."""
    try:
        return sum(map(_numel, tensors))
    except TypeError:
        return sum(each.numel() for each in tensors if each is not None)


@cache
def _valued(name: str) -> bool:
    return any(part in name for part in _VALUED)


def _tensors(result: Any) -> list[torch.Tensor]:
    several = result if isinstance(result, (tuple, list)) else (result,)
    return [each for each in several if isinstance(each, torch.Tensor)]


def _described(ran: Ran) -> OperatorRow:
    valued = _valued(ran.name)
    return OperatorRow(
        id=0,
        n=0,
        name=ran.name,
        inputs=[_operand(*pair) for pair in zip(ran.given, ran.bare, strict=True)],
        values=[_value(each) for each in ran.bare] if valued else [],
        outputs=[] if ran.in_place else [_one(each) for each in _tensors(ran.result)],
    )


def _operand(given: Any, bare: Any) -> OperandItem | None:
    if isinstance(bare, torch.Tensor):
        return _one(bare, host=given is bare)
    if not isinstance(bare, list) or not any(isinstance(each, torch.Tensor) for each in bare):
        return None
    pairs = [
        (outer, inner)
        for outer, inner in zip(given, bare, strict=True)
        if isinstance(inner, torch.Tensor)
    ]
    outer, inner = pairs[0]
    return OperandItem(
        dtype=_dtype(inner), host=outer is inner, sizes=[each.numel() for _, each in pairs]
    )


def _one(tensor: torch.Tensor, *, host: bool = False) -> OperandItem:
    if tensor.layout is not torch.strided:
        raise TypeError(f"{tensor.layout} has other bytes than its shape says")
    return OperandItem(
        dtype=_dtype(tensor), shape=list(tensor.shape), strides=list(tensor.stride()), host=host
    )


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _value(value: Any) -> bool | int | list[int] | None:
    if isinstance(value, (bool, int)):
        return value
    whole = isinstance(value, (list, tuple)) and all(isinstance(each, int) for each in value)
    return [int(each) for each in value] if whole else None
