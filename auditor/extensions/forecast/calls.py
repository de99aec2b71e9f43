"""A call of an operator as its shapes tell it: names and types as torch's profiler writes them, or
as a rehearsal sees them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ITEM_BYTES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
    "complex64": 8,
    "complex128": 16,
}
"""Bytes of an element by torch's name of its type."""

_PROFILER_TYPES = {
    "double": "float64",
    "float": "float32",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "long": "int64",
    "long int": "int64",
    "int": "int32",
    "short": "int16",
    "short int": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
    "c10::complex<float>": "complex64",
    "c10::complex<double>": "complex128",
}


@dataclass(frozen=True)
class Tensor:
    """Shape, type and, where known, strides (in elements) of a tensor."""

    shape: tuple[int, ...]
    dtype: str = "float32"
    strides: tuple[int, ...] | None = None
    on_host: bool = False

    @property
    def elements(self) -> int:
        """Elements as the shape counts them."""
        return math.prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """Bytes of an element; 4 where the type is not known."""
        return ITEM_BYTES.get(self.dtype, 1 if self.dtype.startswith("float8") else 4)

    @property
    def size_bytes(self) -> int:
        """Bytes of all elements that the shape counts: what writing it moves."""
        return self.elements * self.item_bytes

    @property
    def stored_bytes(self) -> int:
        """Bytes that memory holds of it: a dimension of stride 0 (``expand``) counts once. What
        reading it moves at least.
        """
        if self.strides is None or len(self.strides) != len(self.shape):
            return self.size_bytes
        held = (
            size for size, step in zip(self.shape, self.strides, strict=True) if step or not size
        )
        return math.prod(held) * self.item_bytes


Argument = Tensor | tuple[Tensor, ...] | None


@dataclass(frozen=True)
class Call:
    """One call of an operator, or several of the same arguments."""

    name: str
    """With its namespace, as the profiler writes it: ``aten::addmm``. An overload may follow."""
    inputs: tuple[Argument, ...] = ()
    """By position: a tensor, a list of tensors, or None for what is neither."""
    values: tuple[object, ...] = ()
    """By the same positions: numbers, booleans and lists of them; None for what is not known."""
    outputs: tuple[Tensor, ...] = ()
    """Empty where not known: then they are worked out from the inputs where that is possible."""
    arithmetic: str | None = None
    """What a product is computed in, where a kernel's name has told it (``16-bit``, ``tf32``,
    ``fp32`` ...).
    """
    times: int = 1

    @property
    def operator(self) -> str:
        """The name alone: ``addmm`` of ``aten::addmm.default``."""
        return self.name.rpartition("::")[2].partition(".")[0]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Tensor arguments, those in lists left out."""
        return tuple(each for each in self.inputs if isinstance(each, Tensor))

    @property
    def lists(self) -> tuple[tuple[Tensor, ...], ...]:
        """Arguments that are lists of tensors."""
        return tuple(each for each in self.inputs if isinstance(each, tuple))

    @property
    def everything(self) -> tuple[Tensor, ...]:
        """All tensors that go in, those in lists among them."""
        return self.tensors + tuple(tensor for each in self.lists for tensor in each)

    def value(self, position: int) -> object:
        """The value at a position; None where it is not known."""
        return self.values[position] if position < len(self.values) else None

    def integers(self, position: int) -> tuple[int, ...] | None:
        """The value at a position as integers; None where it is not known or is something else."""
        value = self.value(position)
        if isinstance(value, int):
            return (int(value),)
        if isinstance(value, (list, tuple)) and value:
            return tuple(int(each) for each in value if isinstance(each, int))
        return None


def from_profiler(
    name: str,
    dims: Sequence[Any] | None,
    types: Sequence[Any] | None,
    strides: Sequence[Any] | None = None,
    concrete: Sequence[Any] | None = None,
) -> Call | None:
    """The call that ``Input Dims``, ``Input type``, ``Input Strides`` and ``Concrete Inputs`` of an
    operator's event tell; None where it has no shapes.
    """
    if dims is None:
        return None
    inputs: list[Argument] = []
    for place, sizes in enumerate(dims):
        kind = _at(types, place)
        inputs.append(_argument(sizes, kind, _at(strides, place)))
    values = tuple(_value(each) for each in concrete or ())
    return Call(name, tuple(inputs), values)


def _at(sequence: Sequence[Any] | None, place: int) -> Any:
    return sequence[place] if sequence is not None and place < len(sequence) else None


def _argument(sizes: Any, kind: Any, strides: Any) -> Argument:
    kind = kind.removeprefix("struct ") if isinstance(kind, str) else ""
    if _nested(sizes):
        return tuple(_tensor(each, "float32", _at(strides, i)) for i, each in enumerate(sizes))
    dtype = _PROFILER_TYPES.get(kind, "float8" if "Float8" in kind else "")
    return _tensor(sizes, dtype, strides) if dtype and _sizes(sizes) else None


def _tensor(sizes: Any, dtype: str, strides: Any) -> Tensor:
    steps = tuple(map(int, strides)) if _sizes(strides) and len(strides) == len(sizes) else None
    return Tensor(tuple(map(int, sizes)), dtype, steps)


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, int) and each >= 0 for each in value)


def _nested(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(_sizes(each) for each in value)


def _value(text: Any) -> object:
    """A value as Kineto writes it: ``[1, 1]``, ``True``, ``1.``; None for what is left empty."""
    if not isinstance(text, str):
        return text if isinstance(text, (int, float, list)) else None
    if text in {"True", "False"}:
        return text == "True"
    try:
        return json.loads(text.replace("True", "true").replace("False", "false"))
    except ValueError:
        return None
