"""By hand: operators of a real GPU's trace called again on the null device, and their kernels side
by side (README.md).

    python -m torch_null_device --gpu H100 -- python nulldevice/tests/against_real_traces.py TRACE ...

with the Python of the torch that wrote the traces: of other versions kernels differ. A trace must
have been recorded with record_shapes. Compared are the operators whose kernels are all torch's own
(`at::native`): libraries choose theirs at run time.
"""

from __future__ import annotations

import ast
import gzip
import itertools
import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

TYPES = {
    "float": torch.float32,
    "c10::BFloat16": torch.bfloat16,
    "c10::Half": torch.float16,
    "long int": torch.int64,
    "bool": torch.bool,
    "int": torch.int32,
    "double": torch.float64,
    "unsigned char": torch.uint8,
}
FIELDS = ("grid", "block", "registers per thread", "shared memory", "est. achieved occupancy %")


def events_of(path: Path) -> list[dict[str, Any]]:
    """All events of a trace, as JSON or packed with gzip."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    found: list[dict[str, Any]] = json.loads(text)["traceEvents"]
    return found


def kernels_of(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The kernels in the order of their beginnings."""
    return sorted(
        (event for event in events if event.get("cat") == "kernel"), key=lambda event: event["ts"]
    )


def operators_of(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Each different call of an operator, as JSON, with the kernels of the first such call."""
    events = events_of(path)
    operators = {
        event["args"].get("External id"): event for event in events if event.get("cat") == "cpu_op"
    }
    by_operator: dict[Any, list[dict[str, Any]]] = {}
    for kernel in kernels_of(events):
        by_operator.setdefault(kernel["args"].get("External id"), []).append(kernel)
    found: dict[str, list[dict[str, Any]]] = {}
    for number, kernels in by_operator.items():
        told = operators.get(number, {"args": {}})
        if "Input Dims" in told["args"] and all(
            "at::native" in kernel["name"] for kernel in kernels
        ):
            parts = [
                told["args"].get(field)
                for field in ("Input Dims", "Input type", "Concrete Inputs", "Input Strides")
            ]
            found.setdefault(json.dumps([told["name"], *parts]), kernels)
    return found


def argument(shape: Any, kind: str, concrete: str, strides: Any) -> Any:
    """One argument of an operator as the trace tells it; tensors hold nothing."""
    if kind in {"double", "long int"} and shape == []:
        return torch.tensor(ast.literal_eval(concrete) if concrete else 2, dtype=TYPES[kind])
    if shape and isinstance(shape[0], list):
        # a trace tells neither type nor kind of a list's tensors: bf16 as in the traces that are
        # named in README.md
        return [
            torch.empty_strided(one, steps, dtype=torch.bfloat16, device="cuda")
            for one, steps in zip(shape, strides, strict=True)
        ]
    if kind in TYPES and concrete == "":
        if strides and len(strides) == len(shape):
            return torch.empty_strided(shape, strides, dtype=TYPES[kind], device="cuda")
        return torch.empty(shape, dtype=TYPES[kind], device="cuda")
    if concrete in {"", None}:
        return None
    return ast.literal_eval(re.sub(r"\binf\b", "1e30", concrete))


def call(operator: str) -> None:
    """Calls it by the first overload that takes its arguments. Raises RuntimeError where none
    does.
    """
    name, shapes, kinds, concrete, strides = json.loads(operator)
    filled = itertools.zip_longest(shapes, kinds, concrete or [], strides or [], fillvalue="")
    arguments = [argument(*one) for one in itertools.islice(filled, len(kinds))]
    packet = getattr(torch.ops.aten, name.split("::")[1])
    for overload in (getattr(packet, name) for name in packet.overloads()):
        told = overload._schema.arguments
        if len(told) != len(arguments):
            continue
        named = {
            one.name: value for one, value in zip(told, arguments, strict=True) if one.kwarg_only
        }
        try:
            overload(
                *(value for one, value in zip(told, arguments, strict=True) if not one.kwarg_only),
                **named,
            )
        except (RuntimeError, TypeError, ValueError):
            continue
        return
    raise RuntimeError(f"no overload of {name} takes what the trace tells")


def again(operator: str) -> list[dict[str, Any]]:
    """The kernels of one more call, less those of operators that it calls in turn."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        call(operator)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = events_of(path)
    name = json.loads(operator)[0]
    own = {
        event["args"]["External id"]
        for event in events
        if event.get("cat") == "cpu_op" and event["name"] == name
    }
    return [kernel for kernel in kernels_of(events) if kernel["args"].get("External id") in own]


def compare(path: Path) -> Counter[str]:
    """How many operators of a trace have equal names, and of those how many are equal in each
    field; prints those that are not.
    """
    found: Counter[str] = Counter()
    for operator, real in operators_of(path).items():
        try:
            ours = again(operator)
        except RuntimeError as problem:
            print(f"  left out: {problem}")
            continue
        found["operators"] += 1
        same_names = [kernel["name"] for kernel in ours] == [kernel["name"] for kernel in real]
        found["names"] += same_names
        for field in FIELDS:
            equal = [one["args"][field] for one in ours] == [one["args"][field] for one in real]
            found[field] += equal
            if not equal:
                print(f"  {field}{' and names' * (not same_names)} differ: {operator[:150]}")
    return found


if __name__ == "__main__":
    total: Counter[str] = Counter()
    for trace in map(Path, sys.argv[1:]):
        print(trace.name)
        total += compare(trace)
    print(dict(total))
