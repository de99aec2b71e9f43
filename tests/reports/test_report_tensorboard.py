"""The copy for the legacy trace tab: only dead categories change, memory stays bounded."""

import gzip
import io
import json
import tracemalloc

import pytest
from auditor.reports import tensorboard


def _event(cat, name, **more):
    return {"ph": "X", "cat": cat, "name": name, "ts": 1, **more}


EVENTS = [
    _event("cpu_op", "aten::add", dur=2, args={"Input Dims": [[2, 3]]}),
    _event("cuda_runtime", "cudaLaunchKernel", dur=2, args={"correlation": 7}),
    _event("cuda_driver", "cuLaunchKernel", dur=2),
    _event("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
    _event("user_annotation", "Optimizer.step#SGD.step"),
    _event("user_annotation", "ProfilerStep#2"),
    _event("user_annotation", 'say "cat": "cuda_runtime" <\u00e9>'),
    {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": 3},
    _event("kernel", "gemm", args={"text": '{"cat": "user_annotation", "name": "Optimizer."}'}),
]
EXPECTED = """
    cpu_op Runtime Runtime cpu_op cpu_op user_annotation user_annotation fwdbwd kernel
""".split()

LAYOUTS = {
    "kineto": {"indent": 2},
    "one line": {},
    "tight": {"separators": (",", ":")},
    "sorted": {"sort_keys": True},
}


def _trace(layout, events):
    return json.dumps({"schemaVersion": 1, "traceEvents": events}, **LAYOUTS[layout]).encode()  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("block", [7, 64, 1 << 20])
def test_only_dead_categories_change(layout, block, monkeypatch):
    monkeypatch.setattr(tensorboard, "BLOCK", block)
    copy = b"".join(tensorboard.rewritten(io.BytesIO(_trace(layout, EVENTS))))
    events = json.loads(copy)["traceEvents"]
    assert [event["cat"] for event in events] == EXPECTED
    assert [event | {"cat": ""} for event in events] == [event | {"cat": ""} for event in EVENTS]


def test_a_run_name_cannot_leave_the_folder(tmp_path):
    trace = tmp_path / "trace.json.gz"
    trace.write_bytes(gzip.compress(b"{}"))
    written = tensorboard.export(trace, tmp_path / "tb", "../../etc", "..", 1)
    assert written.parent.parent == tmp_path / "tb"


def test_a_cut_trace_leaves_no_file(tmp_path):
    trace = tmp_path / "trace.json.gz"
    trace.write_bytes(gzip.compress(_trace("kineto", EVENTS * 100))[:-20])
    with pytest.raises(EOFError):
        tensorboard.export(trace, tmp_path / "tb", "run", "host_0", 1)
    assert not list((tmp_path / "tb" / "run").iterdir())


class _Endless(io.RawIOBase):
    """A trace of ``size`` bytes made as it is read: events, or one string without a brace."""

    def __init__(self, size, unit):
        self.left, self.unit = size, unit

    def read(self, count=-1):
        count = min(count, self.left)
        self.left -= count
        return (self.unit * (count // len(self.unit) + 1))[:count]


@pytest.mark.parametrize("unit", [b'{"cat": "cuda_runtime"},\n', b"x"])
def test_memory_is_bounded(unit, monkeypatch):
    monkeypatch.setattr(tensorboard, "BLOCK", 1 << 15)
    monkeypatch.setattr(tensorboard, "HELD_LIMIT", 1 << 18)
    tracemalloc.start()
    try:
        for _ in tensorboard.rewritten(_Endless(1 << 22, unit)):  # type: ignore[arg-type]
            pass
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
