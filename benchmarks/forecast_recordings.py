"""Operators of recorded traces with the time of the kernels that they started, for
``forecast_fit.py`` and the tests. Reads the events themselves: shapes, strides and values as the
profiler wrote them, of torch 1.8 to 2.x.
"""

from __future__ import annotations

import bisect
import gzip
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from auditor.errors import AuditProblem
from auditor.extensions.forecast.counts import (
    CONV,
    MEMORY,
    PRODUCT,
    UNKNOWN,
    Argument,
    Call,
    Counts,
    Tensor,
    count,
    kind_of,
)
from auditor.extensions.forecast.data_sheets import DataSheet, sheet_of
from auditor.timeline.precision import arithmetic

RUNTIME = {"cuda_runtime", "cuda_driver", "runtime", "hip_runtime"}
OPERATORS = {"cpu_op", "operator"}
SHAPES = ("Input Dims", "Input dims")

# Recordings that do not name their GPU, by what is known of them.
UNNAMED = {
    "kineto_resnet50": "V100",
    "hta_amd_minitoy": "MI250",
}
# Recordings of one origin are one group: one program, or one session on one machine.
GROUPS = (
    "hourany",
    "trace_diff",
    "resnet_kineto",
    "xdit",
    "sglang",
    "kineto_resnet50",
    "param_dlrm",
    "param_linear",
    "sam_amg",
    "torchbench_copy",
    "bert",
    "Qwen",
    "timesformer",
    "owlv2",
    "nsfw_image",
    "normalization",
    "resnet_act",
)


# Operators of which torch 1.x recorded the ``out`` of an overload as a further input.
FACTORS = {"clamp_min": 1, "mm": 2, "bmm": 2, "add": 2, "sub": 2, "mul": 2, "div": 2, "addmm": 3}


@dataclass(frozen=True)
class Row:
    """An operator's call, what was counted of it, and the time of its kernels in us."""

    call: Call | None
    counts: Counts | None
    name: str
    us: float
    kernels: int


@dataclass(frozen=True)
class Recording:
    """One trace of one GPU."""

    name: str
    group: str
    sheet: DataSheet
    rows: tuple[Row, ...]
    loose_us: float
    """Time of kernels that no operator with shapes started."""
    collective_us: float


def recordings(paths: Iterable[Path]) -> Iterator[Recording]:
    for path in paths:
        found = recording(path)
        if found is not None and found.rows:
            yield found


def traces_under(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if re.search(r"\.json(\.gz)?$", path.name) and not path.parent.name.startswith("snap")
    )


def recording(path: Path) -> Recording | None:
    try:
        document = _document(path)
    except (ValueError, OSError, EOFError):
        return None
    if isinstance(document, list):
        document = {"traceEvents": document}
    label = f"{path.parent.name}/{path.name}"
    sheet = _sheet(document, label)
    if sheet is None:
        return None
    owned, loose, collective = _owned(document.get("traceEvents", []))
    rows = tuple(_rows(owned))
    group = next((part for part in GROUPS if part.lower() in label.lower()), path.parent.name)
    return Recording(label, group, sheet, rows, loose, collective)


def _document(path: Path) -> Any:
    raw = path.read_bytes()
    if raw[:2] == b"\x1f\x8b":
        raw = gzip.decompress(raw)
    text = raw.decode("utf-8", "replace")
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return json.loads(re.sub(r'\\(?!["\\/bfnrtu])', r"\\\\", text), strict=False)


def _sheet(document: Any, label: str) -> DataSheet | None:
    devices = document.get("deviceProperties") or [{}]
    name = str(devices[0].get("name") or "")
    for part, key in UNNAMED.items():
        if part in label:
            name = key
    try:
        return sheet_of(name) if name else None
    except AuditProblem:
        return None


@dataclass
class _Owner:
    event: dict[str, Any]
    names: list[tuple[float, str]]


def _owned(events: list[dict[str, Any]]) -> tuple[list[_Owner], float, float]:
    """The innermost operator with shapes around each kernel's launch."""
    operators: dict[Any, list[tuple[float, float, dict[str, Any]]]] = defaultdict(list)
    launches: dict[Any, tuple[float, Any]] = {}
    kernels = []
    for event in events:
        if event.get("ph") != "X":
            continue
        category = str(event.get("cat", "")).lower()
        arguments = event.get("args") or {}
        if category in OPERATORS:
            begin = float(event["ts"])
            operators[event.get("tid")].append((begin, begin + float(event.get("dur", 0)), event))
        elif category in RUNTIME and "correlation" in arguments:
            key = arguments["correlation"]
            if key not in launches or "aunch" in str(event.get("name")):
                launches[key] = (float(event["ts"]), event.get("tid"))
        elif category == "kernel":
            kernels.append(event)
    found: dict[int, _Owner] = {}
    loose = collective = 0.0
    stacks = {thread: _Stack(spans) for thread, spans in operators.items()}
    for kernel in kernels:
        name, time = str(kernel.get("name", "")), float(kernel.get("dur", 0))
        if "nccl" in name.lower() or "rccl" in name.lower():
            collective += time
            continue
        at, thread = launches.get((kernel.get("args") or {}).get("correlation"), (None, None))
        owner = stacks[thread].shaped(at) if at is not None and thread in stacks else None
        if owner is None:
            loose += time
            continue
        found.setdefault(id(owner), _Owner(owner, [])).names.append((time, name))
    ordered = sorted(found.values(), key=lambda each: float(each.event["ts"]))
    return ordered, loose, collective


class _Stack:
    """Operators of one thread, asked which were open at a moment."""

    def __init__(self, spans: list[tuple[float, float, dict[str, Any]]]) -> None:
        spans.sort(key=lambda span: (span[0], -span[1]))
        self.starts = [span[0] for span in spans]
        self.spans = spans
        self.parents: list[int] = []
        open_: list[int] = []
        for row, (begin, _, _) in enumerate(spans):
            while open_ and spans[open_[-1]][1] < begin:
                open_.pop()
            self.parents.append(open_[-1] if open_ else -1)
            open_.append(row)

    def shaped(self, at: float) -> dict[str, Any] | None:
        """The innermost operator with shapes that is open; else the innermost at all."""
        row = bisect.bisect_right(self.starts, at) - 1
        innermost = None
        while row >= 0:
            _, end, event = self.spans[row]
            if end >= at:
                innermost = innermost or event
                name = str(event.get("name"))
                if _shapes(event) is not None and "::" in name and "autograd::" not in name:
                    return event
            row = self.parents[row]
        return innermost


def _shapes(event: dict[str, Any]) -> Any:
    arguments = event.get("args") or {}
    return next((arguments[key] for key in SHAPES if arguments.get(key)), None)


def _rows(owned: list[_Owner]) -> Iterator[Row]:
    calls = [_call(each) for each in owned]
    for place, (owner, call) in enumerate(zip(owned, calls, strict=True)):
        told = with_outputs(call, calls[max(place - 3, 0) : place + 6]) if call else None
        counts = _counts(told, owner) if told else None
        yield Row(
            told,
            counts,
            str(owner.event.get("name")),
            sum(time for time, _ in owner.names),
            len(owner.names),
        )


def _counts(call: Call, owner: _Owner) -> Counts | None:
    """In the arithmetic that the longest kernel's name tells; None where nothing is known."""
    found = count(call)
    computed = next(
        (kind for _, name in sorted(owner.names)[::-1] if (kind := arithmetic(name))), ""
    )
    if computed not in {"", "other"}:
        found = replace(found, arithmetic=computed)
    return None if found.kind == UNKNOWN else found


def _call(owner: _Owner) -> Call | None:
    arguments = owner.event.get("args") or {}
    call = from_profiler(
        str(owner.event.get("name")),
        _shapes(owner.event),
        arguments.get("Input type", arguments.get("Input types")),
        arguments.get("Input Strides"),
        arguments.get("Concrete Inputs"),
    )
    if call is None:
        return None
    number = FACTORS.get(call.operator)
    if number is not None and len(call.tensors) > number:
        call = replace(call, inputs=call.tensors[:number])
    return call


# --- calls as Kineto writes them -----------------------------------------------------------------

TYPES = {
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
    inputs = tuple(
        _argument(sizes, _at(types, place), _at(strides, place)) for place, sizes in enumerate(dims)
    )
    return Call(name, inputs, tuple(_value(each) for each in concrete or ()))


def _at(sequence: Sequence[Any] | None, place: int) -> Any:
    return sequence[place] if sequence is not None and place < len(sequence) else None


def _argument(sizes: Any, kind: Any, strides: Any) -> Argument:
    """The type of tensors in lists is not in traces: they are taken to be fp32."""
    kind = kind.removeprefix("struct ") if isinstance(kind, str) else ""
    if isinstance(sizes, list) and sizes and all(_sizes(each) for each in sizes):
        return tuple(_tensor(each, "float32", _at(strides, i)) for i, each in enumerate(sizes))
    dtype = TYPES.get(kind, "float8" if "Float8" in kind else "")
    return _tensor(sizes, dtype, strides) if dtype and _sizes(sizes) else None


def _tensor(sizes: Any, dtype: str, strides: Any) -> Tensor:
    steps = tuple(map(int, strides)) if _sizes(strides) and len(strides) == len(sizes) else None
    return Tensor(tuple(map(int, sizes)), dtype, steps)


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, int) and each >= 0 for each in value)


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


# --- outputs, which the profiler does not record --------------------------------------------------

REDUCTIONS = re.compile(
    r"^(sum|nansum|mean|nanmean|max|min|amax|amin|aminmax|norm|linalg_vector_norm|argmax|argmin|any"
    r"|all|std|std_mean|var|var_mean|prod|logsumexp|nll_loss\w*forward|nll_loss\w*d|cross_entropy\w*"
    r"|mse_loss|l1_loss|smooth_l1_loss|huber_loss|binary_cross_entropy\w*|kl_div|count_nonzero)$"
)
PLACES = {
    "convolution": (3, 4, 5),
    "_convolution": (3, 4, 5),
    "convolution_overrideable": (3, 4, 5),
    "conv1d": (3, 4, 5),
    "conv2d": (3, 4, 5),
    "conv3d": (3, 4, 5),
    "cudnn_convolution": (3, 2, 4),
    "miopen_convolution": (4, 3, 5),
    "miopen_depthwise_convolution": (4, 3, 5),
    "_conv_depthwise2d": (4, 5, 6),
    "conv_depthwise3d": (4, 5, 6),
    "cudnn_convolution_relu": (3, 4, 5),
}
"""Where an operator has stride, padding and dilation (native_functions.yaml)."""


def with_outputs(call: Call, around: Sequence[Call | None] = ()) -> Call:
    """The call with its outputs, worked out from its inputs and, of convolutions in traces before
    torch 1.13, from the operators around it.
    """
    kind, tensors = kind_of(call.name), call.everything
    in_place = call.operator.endswith("_") and not call.operator.startswith("__")
    if in_place or not tensors or call.operator.startswith("_foreach_"):
        return call
    if kind == CONV:
        return _convolved(call, around)
    if kind == PRODUCT:
        made: Tensor | None = _multiplied(call)
    elif kind == MEMORY:
        made = _made(call)
    else:
        made = None
    return replace(call, outputs=(made,)) if made is not None else call


def _multiplied(call: Call) -> Tensor | None:
    first = 1 if call.operator.startswith(("addm", "badd", "_addm")) else 0
    factors = call.inputs[first : first + 2]
    if "attention" in call.operator or len(factors) < 2:
        return None
    left, right = factors
    if not isinstance(left, Tensor) or not isinstance(right, Tensor) or not left.shape:
        return None
    turned = right.shape[::-1] if call.operator == "linear" else right.shape
    if left.shape[-1] != (turned[-2] if len(turned) > 1 else turned[:1] and turned[0]):
        return None
    ahead = left.shape[:-2] if len(turned) <= 2 else broadcast([left.shape[:-2], turned[:-2]])
    return Tensor((*ahead, *left.shape[-2:-1], *turned[1:][-1:]), left.dtype)


def _made(call: Call) -> Tensor:
    tensors, name = call.everything, call.operator
    first = tensors[0]
    if REDUCTIONS.match(name):
        return Tensor((), first.dtype)
    if "norm" in name:  # weights are along the channels, wherever these are
        return Tensor(first.shape, first.dtype)
    if name in {"cat", "_cat", "stack", "_stack"}:
        return Tensor((sum(each.elements for each in tensors),), first.dtype)
    index = [each for each in tensors[1:] if each.dtype in {"int64", "int32", "bool"}]
    if index and name in {"embedding", "index_select", "gather", "index", "take", "take_along_dim"}:
        return Tensor((_taken(name, first, index),), first.dtype)
    if "pool" in name and "backward" not in name:
        return Tensor((_pooled(call, first),), first.dtype)
    shape = broadcast(each.shape for each in tensors)
    whole = [each for each in tensors if each.elements == math.prod(shape)] or tensors
    dtype = max(whole, key=lambda each: each.item_bytes).dtype
    boolean = name in {"gt", "lt", "eq", "ne", "ge", "le", "isnan", "isinf", "logical_not"}
    return Tensor(shape, "bool" if boolean else dtype)


def broadcast(shapes: Iterable[Sequence[int]]) -> tuple[int, ...]:
    """The shape that shapes broadcast to; sizes that do not fit count as the larger."""
    sizes: list[int] = []
    for shape in shapes:
        for place, size in enumerate(reversed(shape)):
            if place == len(sizes):
                sizes.append(size)
            elif sizes[place] == 1 or size == 0:
                sizes[place] = size
            elif size != 1:
                sizes[place] = max(sizes[place], size)
    return tuple(reversed(sizes))


def _taken(name: str, table: Tensor, index: list[Tensor]) -> int:
    number = math.prod(broadcast(each.shape for each in index))
    if name in {"gather", "take", "take_along_dim"}:
        return number
    if name == "index_select":
        return number * table.elements // max(max(table.shape, default=1), 1)
    if name == "index":
        return number * math.prod(table.shape[len(index) :])
    return number * math.prod(table.shape[1:])


def _pooled(call: Call, image: Tensor) -> int:
    """Elements by a pooling's stride (its window where it has none); a quarter where neither is
    known.
    """
    sizes = _integers(call, 1)
    if sizes is None:
        return image.elements // 4
    spatial = image.shape[-2:] if "2d" in call.operator else image.shape[2:]
    steps = sizes if "adaptive" in call.operator else _integers(call, 2) or sizes
    area = math.prod(steps * len(spatial) if len(steps) == 1 else steps)
    if "adaptive" in call.operator:
        return math.prod(image.shape[: -len(spatial)]) * area
    return image.elements // max(area, 1)


def _convolved(call: Call, around: Sequence[Call | None]) -> Call:
    tensors = [each for each in call.tensors if len(each.shape) >= 3]
    if len(tensors) < 2:
        return call
    first, second = tensors[:2]
    if call.operator.endswith(("backward_input", "backward_weight")):  # torch 1.x
        return _one_gradient(call, first, second, around)
    if "backward" in call.operator:
        old = call.operator in {"cudnn_convolution_backward", "miopen_convolution_backward"}
        order = (second, first, *tensors[2:]) if old else tuple(tensors)
        return replace(call, inputs=order)
    places = PLACES.get(call.operator)
    steps = [_each(_integers(call, place), len(second.shape) - 2) for place in places or ()]
    if places and None not in steps and call.value(6) is not True:
        stride, padding, dilation = steps
        spatial = (
            max(1, (size + 2 * pad - step * (window - 1) - 1) // jump + 1)
            for size, pad, step, window, jump in zip(
                first.shape[2:], padding, dilation, second.shape[2:], stride, strict=True
            )
        )
        return replace(
            call, outputs=(Tensor((first.shape[0], second.shape[0], *spatial), first.dtype),)
        )
    at = next((place for place, each in enumerate(around) if each is call), -1)
    for other in filter(None, around[at + 1 :]):
        for tensor in other.tensors[:1]:
            if len(tensor.shape) == 4 and tensor.shape[:2] == (first.shape[0], second.shape[0]):
                return replace(call, outputs=(Tensor(tensor.shape, first.dtype),))
    return call


def _one_gradient(
    call: Call, gradient: Tensor, other: Tensor, around: Sequence[Call | None]
) -> Call:
    """As the one backward of today: a gradient has the shape of what another operator was given."""
    of_input = call.operator.endswith("input")
    image, weight = (gradient, other) if of_input else (other, None)
    for beside in filter(None, around):
        same = beside.tensors[:1] == (gradient,)
        if not of_input and same and beside.operator.endswith("backward_input"):
            weight = beside.tensors[1]
    if weight is None:
        return replace(call, inputs=())
    values = (None,) * 10 + ([of_input, not of_input, False],)
    return Call("aten::convolution_backward", (gradient, image, weight), values)


def _integers(call: Call, position: int) -> tuple[int, ...] | None:
    value = call.value(position)
    if isinstance(value, int):
        return (int(value),)
    return tuple(map(int, value)) if isinstance(value, list) and value else None


def _each(value: tuple[int, ...] | None, number: int) -> tuple[int, ...] | None:
    """One value for each dimension; torch takes one for all."""
    if not value:
        return None
    return value * number if len(value) == 1 else value if len(value) == number else None
