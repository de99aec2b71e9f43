"""Evidence tables from small recordings: what the rows mean, what a missing part does, what a
hostile file does not do.
"""

import gzip
import os
import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auditor.evidence.recorded.reads import Expression, act_of
from auditor.evidence.recorded.step_pattern import sen_slope
from auditor.evidence.snapshot.file import RefusedPickle, load_plain
from auditor.evidence.snapshot.state_at import Snapshot
from auditor.evidence.source.files import Source, Span
from auditor.evidence.table import Evidence
from auditor.model import Site
from auditor.recordings.folder import SCHEMA, Recording, RecordingWriter, write_manifest
from auditor.recordings.writer import store_sources
from auditor.rule import NotLooked

TRAINER = """\
import torch
def collate(rows):
    batch = torch.stack(rows).to(torch.float32)
    return batch.to(device)
def step():
    loss = model(x)
    if loss > best: best = loss.item()
    flag = bool(loss)
    torch.cuda.empty_cache(); log(loss.item())
    used = torch.cuda.memory_stats()
    torch.autograd.backward(
        loss,
        retain_graph=True)
"""


@pytest.fixture
def project(tmp_path):
    """A folder with ``trainer.py``, and how to record rows about it."""
    home = tmp_path / "home"
    home.mkdir()
    (home / "trainer.py").write_text(TRAINER)

    def record(device="cpu", sites=(), outcome="completed", **parts):
        folder = tmp_path / "recording"
        writer = RecordingWriter(folder)
        for line, more in sites:
            writer.site(str(home / "trainer.py"), line, "step", **more)
        for part, rows in parts.items():
            writer.touch(part)
            for row in rows:
                writer.add_fields(part, row)
        writer.close()
        stored = store_sources(folder, str(home), iter([str(home / "trainer.py")]))
        facts = {"schema": SCHEMA, "cwd": str(home), "device": device, "outcome": outcome}
        write_manifest(folder, {**facts, "sources": stored, "environment": {"cpu_count": "6"}})
        return Recording(folder)

    return record


def rows(n=12, name="loud", **more):
    return [{"pass": name, "step": step, "us": 1000.0, **more} for step in range(n)]


# -- reads -----------------------------------------------------------------------------------------


def expression(line, text, opcode="CALL", via=""):
    start = TRAINER.splitlines()[line - 1].index(text)
    return Expression(opcode, via, Span(line, line, start, start + len(text)), text)


def act(line, made, kind="item"):
    return act_of(kind, made, Site("trainer.py", line), Source({"trainer.py": TRAINER}))


@pytest.mark.parametrize(
    ("line", "made", "expected"),
    [
        (7, expression(7, "loss > best", "POP_JUMP_FORWARD_IF_FALSE"), "branch"),
        (7, expression(7, "loss > best", "POP_JUMP_IF_FALSE"), "branch"),
        (7, expression(7, "loss > best", "TO_BOOL"), "branch"),
        (7, expression(7, "loss > best", "COMPARE_OP"), "branch"),  # Python 3.13 compares and asks in one
        (7, expression(7, "loss > best", "JUMP_IF_FALSE_OR_POP"), "branch"),
        (7, expression(7, "loss.item()"), "scalar"),
        (8, expression(8, "bool(loss)"), "branch"),
        (8, Expression("CALL_FUNCTION"), "branch"),  # Python 3.10: the line alone
        (9, Expression("CALL_METHOD"), "scalar"),
        (7, Expression("CALL_METHOD"), "scalar"),  # the line also branches, but it says .item()
        (8, Expression("FORMAT_VALUE"), "scalar"),
        (7, Expression("POP_JUMP_IF_FALSE", via="torch/nn/utils/clip_grad.py:clip_grad_norm_"), "scalar"),
        (7, Expression("CONTAINS_OP", via="torch/_tensor.py:__contains__"), "branch"),
    ],
)  # fmt: skip
def test_what_a_scalar_read_is_for(line, made, expected):
    assert act(line, made) == expected


# -- snapshots -------------------------------------------------------------------------------------


class Hostile:
    """Runs a command when an ordinary unpickler reads it."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize(
    "wrap", [lambda x: x, lambda x: {"segments": [x]}, lambda x: [{"a": (x,)}]]
)
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_hostile_pickle_is_refused_and_runs_nothing(tmp_path, wrap, protocol):
    mark, path = tmp_path / "mark", tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(wrap(Hostile(mark)), protocol))
    with pytest.raises(RefusedPickle, match="only plain containers"):
        load_plain(path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "content",
    [b"", b"\x80", b"not a pickle", pickle.dumps({"a": 1})[:-3], b"\x1f\x8bxx", b"Pother\n."],
)
def test_broken_pickle_is_refused(tmp_path, content):
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(content)
    with pytest.raises(RefusedPickle):
        load_plain(path)


def test_large_pickle_is_refused_also_when_it_is_packed_small(tmp_path):
    path, content = tmp_path / "snapshot.pickle.gz", pickle.dumps(b"0" * 100_000)
    path.write_bytes(gzip.compress(content))
    assert load_plain(path) == b"0" * 100_000
    with pytest.raises(RefusedPickle, match="larger than"):
        load_plain(path, limit=50_000)


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=20,
)


@given(plain, st.integers(3, pickle.HIGHEST_PROTOCOL), st.booleans())
def test_plain_data_comes_back_as_it_was(tmp_path_factory, data, protocol, packed):
    """Before protocol 3, bytes are written as a call."""
    path = tmp_path_factory.mktemp("plain") / "snapshot.pickle"
    content = pickle.dumps(data, protocol)
    path.write_bytes(gzip.compress(content) if packed else content)
    assert load_plain(path) == data


def snapshot_of(recording, data, name="snapshot.pickle"):
    (recording.folder / name).write_bytes(pickle.dumps(data))
    return Evidence(recording).get(Snapshot)


LIVE, FREE = {"size": 10, "state": "active_allocated"}, {"size": 90, "state": "inactive"}


def test_snapshot_that_is_missing_or_refused_is_not_looked(project):
    """One that repeats itself at once."""
    recording, text = project(device="cuda"), "x"
    with pytest.raises(NotLooked):
        Evidence(recording).get(Snapshot)
    for _ in range(60):
        text = [text, text]
    endless = LIVE | {"frames": [{"filename": text, "line": 1, "name": "f"}]}
    many = {"total_size": 1, "blocks": [FREE] * 50_000}
    for data in (
        Hostile("x"),
        [1],
        {"segments": [{"blocks": 3}]},
        [{"total_size": 1, "blocks": [endless]}],
        [many] * 50_000,
        [{"total_size": float("inf"), "blocks": []}],
    ):
        with pytest.raises(NotLooked):
            snapshot_of(recording, data)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is capped on Linux only")
@pytest.mark.parametrize(
    "content",
    [
        b"\x80\x02]r" + (0x0FFFFFFF).to_bytes(4, "little") + b".",  # a memo of four billion bytes
        b"\x80\x04\x8e" + (1 << 40).to_bytes(8, "little") + b"x.",
        gzip.compress(b"\x80\x02" + b"]" * 20_000_000 + b"."),  # 20 KB that become 1.3 GB
    ],
)
def test_small_pickle_cannot_take_the_machines_memory(tmp_path, content):
    import gc
    import resource

    (tmp_path / "snapshot.pickle").write_bytes(content)
    before = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(RefusedPickle, match="MemoryError"):
        load_plain(tmp_path / "snapshot.pickle")
    assert resource.getrlimit(resource.RLIMIT_AS) == before and gc.isenabled()


# -- trends ----------------------------------------------------------------------------------------

series = st.lists(st.integers(-(10**9), 10**9), min_size=8, max_size=60)


@given(series, st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_slope(values, base, rate):
    """It lies in its interval, turns with the series and moves with a line that is added."""
    slope = sen_slope(values)
    assert slope.low <= slope.per_step <= slope.high
    assert sen_slope(values[::-1]).per_step == pytest.approx(-slope.per_step)
    tilted = sen_slope([base + rate * x + y for x, y in enumerate(values)])
    assert tilted.per_step == pytest.approx(slope.per_step + rate, abs=1e-3)
    straight = sen_slope([rate * x for x in range(len(values))])
    assert (straight.per_step, straight.low, straight.high) == (rate, rate, rate)


def test_interval_of_pure_noise_holds_zero_and_is_right_about_as_often_as_it_says():
    import random

    draw = random.Random(0)
    trials = [sen_slope([draw.gauss(0, 1) for _ in range(30)]) for _ in range(400)]
    covered = sum(slope.low <= 0 <= slope.high for slope in trials) / len(trials)
    assert 0.92 <= covered <= 0.98
