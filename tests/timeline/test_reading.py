"""What torch.profiler writes is read whole; of a damaged file one sentence says so."""

import gzip
import json

import pytest

from auditor.errors import AuditProblem
from auditor.timeline import read, reading
from auditor.timeline.trace import KERNEL, MEMCPY, MEMSET, TABLES
from tests.timeline.kineto import (
    TAIL,
    call,
    frame,
    in_lines,
    memory,
    op,
    redumped,
    span,
    text,
    training,
    write,
)

EVENTS = [
    *training(2),
    frame("train.py(3): main", 900, 5000),
    memory(1100, 512, 1024),
    span("gpu_user_annotation", "ProfilerStep#1", 1075, 500, pid=0, tid=7),
    span("cuda_sync", "Stream Sync", 1380, 5, pid=0, tid=7, device=0, stream=7, correlation=1003),
    span("overhead", "Buffer Flush", 1900, 10),
    {"ph": "s", "id": 5, "pid": 1, "tid": 100, "ts": 1065, "cat": "ac2g", "name": "ac2g"},
    {"ph": "f", "id": 5, "pid": 0, "tid": 7, "ts": 1075, "cat": "ac2g", "name": "ac2g", "bp": "e"},
]


def same(one, other):
    assert one.events == other.events
    for group in TABLES:
        ours, theirs = getattr(one, group), getattr(other, group)
        for column in vars(ours):
            if column in {"shapes", "types"}:
                continue  # codes of JSON text, whose blanks may differ
            mine, yours = getattr(ours, column).tolist(), getattr(theirs, column).tolist()
            if column in {"name", "category"}:  # numbered in order of appearance
                mine, yours = (
                    [one.names[code] for code in mine],
                    [other.names[code] for code in yours],
                )
            assert mine == yours, (group, column)


@pytest.fixture
def whole(tmp_path):
    return read(write(tmp_path, text(EVENTS)))


def test_gzip_is_known_by_content_and_not_by_name(tmp_path, whole):
    same(read(write(tmp_path, text(EVENTS), "trace.json.gz")), whole)
    same(read(write(tmp_path, gzip.compress(text(EVENTS).encode()), "packed.json")), whole)
    raw = text(EVENTS).encode()
    members = gzip.compress(raw[:999]) + gzip.compress(raw[999:])
    same(read(write(tmp_path, members, "members.json")), whole)


@pytest.mark.parametrize("indent", [None, 0, 1, 2, 4])
def test_a_trace_that_went_through_another_writer(tmp_path, whole, indent):
    document = json.loads(text(EVENTS))
    trace = read(write(tmp_path, json.dumps(document, indent=indent)))
    same(trace, whole)
    assert trace.info == whole.info
    assert trace.warnings == ()


@pytest.mark.parametrize("indent", [None, 1, 2])
def test_keys_behind_the_events(tmp_path, whole, indent):
    document = json.loads(text(EVENTS))
    events = document.pop("traceEvents")
    trace = read(write(tmp_path, json.dumps({"traceEvents": events, **document}, indent=indent)))
    same(trace, whole)
    assert trace.info == whole.info


def test_a_bare_list_of_events(tmp_path, whole):
    trace = read(write(tmp_path, json.dumps(EVENTS)))
    same(trace, whole)
    assert trace.info.rank is None


def test_the_exporter_in_python_writes_one_event_a_line(tmp_path, whole):
    trace = read(write(tmp_path, in_lines(EVENTS)))
    same(trace, whole)
    assert trace.info == whole.info


@pytest.mark.parametrize("repeat", [300, 3000])
@pytest.mark.parametrize("writer", [text, redumped, in_lines])
def test_many_pieces_lose_nothing(tmp_path, writer, repeat):
    events = [op(f"aten::op{number % 7}", 10.0 * number, 5) for number in range(repeat)]
    trace = read(write(tmp_path, writer(events), "trace.json.gz"))
    assert trace.operators.start.tolist() == [10_000 * number for number in range(repeat)]
    assert trace.warnings == ()


def test_nanoseconds_are_exact(tmp_path):
    times = [1_371_624_315_968.95, 5_120_034_001.001, 0.007, 17.999]
    trace = read(write(tmp_path, text([op("a", time, 0.003) for time in times])))
    assert trace.operators.start.tolist() == [1_371_624_315_968_950, 5_120_034_001_001, 7, 17_999]
    assert (trace.operators.end - trace.operators.start).tolist() == [3] * 4


def test_spellings_of_2021(tmp_path):
    host = {"tid": "144"}
    there = {"pid": 0, "tid": "stream 7", "device": 0, "stream": 7}
    more = {"Input dims": [[2], []], "Device": 0, "External id": 1}
    seen = {"Device Type": 0, "Device Id": -1, "Bytes": 4}
    events = [
        span("Operator", "aten::mm", 10, 5, **host, **more),
        span("Runtime", "cudaLaunchKernel", 11, 2, **host, correlation=4, **{"external id": 1}),
        span("Kernel", "k", 20, 5, **there, correlation=4),
        span("Memcpy", "Memcpy HtoD (Pageable -> Device)", 30, 5, **there, correlation=5, bytes=64),
        span("Memset", "Memset (Device)", 40, 5, **there, correlation=6, bytes=8),
        {"ph": "i", "s": "t", "name": "[memory]", "pid": 1, "tid": 144, "ts": 12, "args": seen},
    ]
    trace = read(write(tmp_path, text(events)))
    assert trace.work.kind.tolist() == [KERNEL, MEMCPY, MEMSET]
    assert trace.work.stream.tolist() == [7, 7, 7]
    assert trace.texts[trace.operators.shapes[0]].replace(b" ", b"") == b"[[2],[]]"
    both = {*trace.operators.thread.tolist(), *trace.calls.thread.tolist()}
    assert len(both) == 1, "a thread named by text and by number is one"
    assert trace.memory.allocated.tolist() == [-1]


def test_the_old_autograd_profiler_named_no_categories(tmp_path):
    events = [
        span(None, "aten::mm", 1.5, 2, pid="CPU functions", tid=1),
        span(None, "volta_sgemm", 3, 4, pid="CUDA functions", tid=0),
    ]
    trace = read(write(tmp_path, json.dumps(events)))
    assert (len(trace.operators.start), trace.work.kind.tolist()) == (1, [KERNEL])


def test_empty_categories_are_told_by_their_arguments(tmp_path):
    there = {"pid": 0, "tid": 7, "device": 0, "stream": 7, "correlation": 3}
    events = [
        span("", "aten::mm", 1, 9),
        span("", "cudaLaunchKernel", 2, 1, correlation=3),
        span("", "gemm", 4, 1, **there),
        span("", "Memcpy DtoH (Device -> Pinned)", 5, 1, **{**there, "correlation": 4}),
    ]
    trace = read(write(tmp_path, text(events)))
    assert (len(trace.operators.start), len(trace.calls.start)) == (1, 1)
    assert trace.work.kind.tolist() == [KERNEL, MEMCPY]


@pytest.mark.parametrize(
    "category", ["hip_runtime", "cuda_driver", "privateuse1_runtime", "xpu_runtime"]
)
def test_runtimes_of_other_makers(tmp_path, category):
    event = span(category, "hipLaunchKernel", 1, 1, correlation=8, stream="0x0", bytes="0x40")
    trace = read(write(tmp_path, text([event])))
    assert trace.calls.correlation.tolist() == [8]


def test_a_missing_and_a_negative_duration_are_an_instant(tmp_path):
    events = [span("cpu_op", "a", 5, None), op("b", 6, 1), op("c", 7, -3)]
    trace = read(write(tmp_path, text(events)))
    assert (trace.operators.end - trace.operators.start).tolist() == [0, 1000, 0]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_quote_that_kineto_left_in_a_name(tmp_path, place):
    """Up to torch 2.13, in the first event, in the middle, in the last one."""
    names = ["a", "b", "c"]
    names[place] = 'say "hello" {to: "me"}'
    raw = text([op(name.replace('"', "'"), 10 * n, 5) for n, name in enumerate(names)])
    trace = read(write(tmp_path, raw.replace("'", '"')))
    assert list(trace.names) == names


def without(old, new):
    return text(EVENTS).replace(old, new, 1).encode()


TIMES = ["NaN", "Infinity", "1e300", "1e999", "9" * 23, '"soon"', "null", "[]"]
FULL = text(EVENTS).encode()
PACKED = gzip.compress(FULL)
DAMAGED = {
    "cut in the events": FULL[: len(FULL) // 2],
    "cut behind them": FULL[:-20],
    "cut in one line": redumped(EVENTS).encode()[:2000],
    "cut while packed": PACKED[: len(PACKED) // 2],
    "packed, and overwritten": PACKED[:300] + b"\xff" * 40 + PACKED[340:],
    "a name without its quote": without('"name": "aten::item"', '"name": aten::item"'),
    "no UTF-8": FULL.replace(b"aten::item", b"aten::\xff\xfe"),
    "a comma too many": FULL.replace(b"},", b"},,"),
    "no events but numbers": b'{"traceEvents": [1, 2]}',
    "arguments that are no object": without('"args": {', '"args": [], "other": {'),
    "too deep": without('"args": {', '"args": {"deep": ' + "[" * 100_000 + "]" * 100_000 + ", "),
    "no header": b'{"deviceProperties": 7, ' + FULL[1:],
    **{f"at {time}": without('"ts": 1100.0', f'"ts": {time}') for time in TIMES},
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_one_sentence(tmp_path, damage):
    with pytest.raises(AuditProblem, match="is damaged: ") as raised:
        read(write(tmp_path, DAMAGED[damage]))
    assert raised.value.hint
    assert "\n" not in raised.value.message


@pytest.mark.parametrize("writer", [text, redumped, in_lines])
def test_a_file_cut_off_anywhere_is_one_sentence(tmp_path, writer):
    full = writer(EVENTS).encode()
    for cut in range(full.index(b"traceEvents") + 20, len(full) - 60, 211):
        with pytest.raises(AuditProblem, match="is damaged"):
            read(write(tmp_path, full[:cut]))


def test_an_event_without_end_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PIECE_LIMIT", 4 << 20)
    raw = text([op("a", 1, 1)])[: -len(TAIL) - 4] + ', "x": "' + "y" * 8_000_000
    with pytest.raises(AuditProblem, match="no event ends in 4 MiB"):
        read(write(tmp_path, raw))


def test_a_file_larger_than_allowed_is_one_sentence(tmp_path):
    with pytest.raises(AuditProblem, match="holds more than 1 MiB"):
        read(write(tmp_path, b'{"traceEvents": [' + b" " * (2 << 20)), limit=1 << 20)


@pytest.mark.parametrize(
    "value", [2**70, -(2**70), "0x10", "seven", None, 1.5, True, [1], {"a": 1}]
)
def test_arguments_of_any_type_are_survived(tmp_path, value):
    given = dict.fromkeys(("device", "stream", "correlation", "bytes"), value)
    events = [
        span("kernel", "k", 1, 1, pid=0, tid=7, **given),
        op("a", 1, 1, **{"Sequence number": value, "Fwd thread id": value, "Input Dims": value}),
        call("c", 1, 1, value),
    ]
    trace = read(write(tmp_path, text(events)))
    assert (len(trace.work.start), len(trace.operators.start), len(trace.calls.start)) == (1, 1, 1)


def test_huge_names_are_cut(tmp_path):
    trace = read(write(tmp_path, text([op("x" * 3_000_000, 1, 1), op("b", 2, 1)])))
    assert [len(trace.names[code]) for code in trace.operators.name] == [4096, 1]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "holds no text"),
        (b"  \n ", "holds no text"),
        (b"\x1f\x8b\x08\x00", "gzip data ends in the middle"),
        (b"<!DOCTYPE html><html>404</html>", "web page"),
        (b"not json", "not JSON"),
        (b"PK\x03\x04rest", "not JSON"),
        (b'{"a": 1}', 'holds no "traceEvents"'),
        (b'{"traceEvents": {}}', 'holds no "traceEvents"'),
        (b"17", "not JSON"),
    ],
)
def test_files_that_are_no_traces_end_in_one_sentence(tmp_path, content, says):
    with pytest.raises(AuditProblem, match=says) as raised:
        read(write(tmp_path, content))
    assert raised.value.hint
    assert "\n" not in raised.value.message


def test_missing_files_and_folders_end_in_one_sentence(tmp_path):
    for path in (tmp_path / "nowhere.json", tmp_path):
        with pytest.raises(AuditProblem, match="cannot be read"):
            read(path)


def test_a_byte_order_mark_and_windows_line_ends(tmp_path, whole):
    same(read(write(tmp_path, b"\xef\xbb\xbf" + text(EVENTS).encode())), whole)
    same(read(write(tmp_path, text(EVENTS).replace("\n", "\r\n"))), whole)
