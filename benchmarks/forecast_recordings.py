"""Operators of recorded traces with the time of the kernels that they started, for
``forecast_fit.py`` and the tests. Reads the events themselves: shapes, strides and values as the
profiler wrote them, of torch 1.8 to 2.x.
"""

from __future__ import annotations

import bisect
import gzip
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from auditor.errors import AuditProblem
from auditor.extensions.forecast import kinds
from auditor.extensions.forecast.calls import Call, Tensor, from_profiler
from auditor.extensions.forecast.counted import Counts
from auditor.extensions.forecast.counts import count
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
        told = _with_output(call, calls[max(place - 3, 0) : place + 6]) if call else None
        yield Row(
            told,
            count(told) if told else None,
            str(owner.event.get("name")),
            sum(time for time, _ in owner.names),
            len(owner.names),
        )


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
    longest = sorted(owner.names, reverse=True)
    computed = next((kind for _, name in longest if (kind := arithmetic(name))), None)
    return replace(call, arithmetic=None if computed == "other" else computed)


def _with_output(call: Call, around: list[Call | None]) -> Call:
    """Traces before torch 1.13 have no strides of convolutions: the next operator that takes an
    image of that batch and those channels takes the output.
    """
    if call.values or "conv" not in call.name or len(call.tensors) < 2:
        return call
    first, second = call.tensors[:2]
    if call.operator.endswith("backward_weight"):
        for other in filter(None, around):
            if other.operator.endswith("backward_input") and other.tensors[:1] == (first,):
                return replace(call, outputs=(other.tensors[1],))
    if "backward" in call.operator:
        return replace(call, outputs=(first,)) if call.operator.endswith("input") else call
    for other in filter(None, around[around.index(call) + 1 :]):
        for tensor in other.tensors[:1]:
            if len(tensor.shape) == 4 and tensor.shape[:2] == (first.shape[0], second.shape[0]):
                return replace(call, outputs=(Tensor(tensor.shape, first.dtype),))
    return call


def busy_kinds(found: Recording) -> set[str]:
    return {row.counts.kind for row in found.rows if row.counts} - {kinds.NOTHING}
