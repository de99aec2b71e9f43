"""Mutations of small traces: our own errors alone, every table can be computed, quickly."""

import gzip
import time

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from auditor.errors import AuditProblem
from auditor.timeline import Timeline, read
from auditor.timeline.timeline import Unread, rank_facts
from auditor.timeline.totals import types
from tests.timeline.drawings import drawn
from tests.timeline.kineto import frame, in_lines, memory, redumped, span, text, training

EVENTS = [
    *training(2),
    frame("train.py(3): main", 900, 5000),
    memory(1100, 512, 1024),
    span("Operator", "old", 1, 2, tid="7"),
    {"ph": "B", "cat": "cpu_op", "name": "b", "pid": 1, "tid": 1, "ts": 1},
    {"ph": "s", "id": 5, "pid": 1, "tid": 100, "ts": 1065, "cat": "ac2g", "name": "ac2g"},
]
SEEDS = [text(EVENTS).encode(), redumped(EVENTS).encode(), in_lines(EVENTS).encode()]
PIECES = [
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b"\n  },\n  {",
    b"},{",
    b"NaN",
    b"1e999",
    b"-",
    b"\xff\xfe",
    b"null",
    b'"traceEvents": [',
    b"9" * 400,
]
SECONDS = 5.0

mutation = st.tuples(
    st.sampled_from(["flip", "cut", "insert", "drop", "repeat"]),
    st.floats(0, 1, exclude_max=True),
    st.integers(1, 300),
    st.sampled_from(PIECES),
)


def mutate(raw, changes):
    for kind, where, size, piece in changes:
        at = int(where * len(raw))
        if kind == "flip":
            raw = raw[:at] + bytes([raw[at] ^ (size % 255 + 1)]) + raw[at + 1 :] if raw else raw
        elif kind == "cut":
            raw = raw[:at]
        elif kind == "insert":
            raw = raw[:at] + piece + raw[at:]
        elif kind == "drop":
            raw = raw[:at] + raw[at + size :]
        else:
            raw = raw[: at + size] + raw[at:]
    return raw


def survive(path):
    begun = time.process_time()
    try:
        line = Timeline.of(path)
    except AuditProblem:
        return
    line.compute()
    line.tree.self_ns()
    waits, steps = line.waits, line.steps
    assert (waits.won_back >= 0).all()
    assert (waits.won_back <= waits.held).all()
    for step in range(steps.count):
        inside = waits.step == step
        assert waits.won_back[inside].sum() <= steps.end[step] - steps.start[step]
    assert not isinstance(rank_facts(path), Unread)
    drawn(line)
    assert time.process_time() - begun < SECONDS


@settings(suppress_health_check=list(HealthCheck))
@given(st.sampled_from(SEEDS), st.lists(mutation, min_size=1, max_size=6))
@example(SEEDS[0], [("insert", 0.5, 1, b'"')])
def test_mutated_text(tmp_path_factory, seed, changes):
    path = tmp_path_factory.getbasetemp() / "mutated.json"
    path.write_bytes(mutate(seed, changes))
    survive(path)


@settings(suppress_health_check=list(HealthCheck))
@given(st.sampled_from(SEEDS), st.lists(mutation, min_size=1, max_size=3))
def test_mutated_gzip(tmp_path_factory, seed, changes):
    path = tmp_path_factory.getbasetemp() / "mutated.json.gz"
    path.write_bytes(mutate(gzip.compress(seed, mtime=0), changes))
    survive(path)


lists = st.lists(st.integers(), max_size=2)
numbers = st.one_of(
    st.floats(), st.integers(), st.text(max_size=3), st.none(), st.booleans(), lists
)


@settings(suppress_health_check=list(HealthCheck))
@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "ph": st.sampled_from(["X", "B", "E", "i", "M", "s", "?"]) | numbers,
                "cat": st.sampled_from(["cpu_op", "kernel", "cuda_runtime", "gpu_memcpy", "", "x"]),
            },
            optional={
                "name": st.sampled_from(
                    [
                        "aten::item",
                        "cudaStreamSynchronize",
                        "nccl",
                        "ProfilerStep#1",
                        "Optimizer.step#A",
                    ]
                )
                | numbers,
                "ts": st.floats(0, 100) | numbers,
                "dur": st.floats(0, 50) | numbers,
                "pid": numbers,
                "tid": st.integers(0, 2) | numbers,
                "args": st.dictionaries(
                    st.sampled_from(
                        ["correlation", "device", "stream", "bytes", "Bytes", "Input Dims"]
                    ),
                    numbers,
                )
                | numbers,
            },
        ),
        max_size=20,
    )
)
def test_any_values_in_any_field(tmp_path_factory, events):
    path = tmp_path_factory.getbasetemp() / "values.json"
    path.write_text(text(events) if events else "[]")
    survive(path)


@pytest.mark.parametrize("damage", [b'"fl\xc8at"', b"[" * 200 + b"]" * 200, b"7"])
def test_damaged_types_of_inputs_are_unknown(tmp_path, damage):
    path = tmp_path / "types.json"
    path.write_bytes(SEEDS[0].replace(b'"Input type": ["float"', b'"Input type": [' + damage))
    assert path.read_bytes() != SEEDS[0]
    survive(path)
    trace = read(path)
    for row in range(len(trace.operators.name)):
        assert isinstance(types(trace, row), list)
