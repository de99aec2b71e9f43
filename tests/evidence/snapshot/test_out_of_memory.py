"""An out-of-memory error: of which kind, and what torch's message alone tells."""

import pickle

import pytest

from auditor.evidence.snapshot.what_if import OutOfMemory, ran_out
from auditor.evidence.table import Evidence
from auditor.recordings.folder import SCHEMA, Recording, write_manifest


@pytest.mark.parametrize(
    ("requested", "largest", "kind"),
    [
        (None, 50, "unknown"),
        (101, 50, "demand"),
        (100, 50, "fragmentation"),
        (51, 50, "fragmentation"),
        (50, 50, "elsewhere"),
    ],
)
def test_the_kind_of_an_error(requested, largest, kind):
    table = OutOfMemory(True, requested=requested, reserved=300, live=200, largest_free=largest)
    assert (table.free_inside, table.kind) == (100, kind)


def block(size, *, live=True):
    frame = {"filename": "/home/me/train.py", "line": 4, "name": "step"}
    state = "active_allocated" if live else "inactive"
    return {"size": size, "state": state, "frames": [frame]}


SEGMENTS = [
    {"device": 0, "address": 0, "total_size": 100, "blocks": [block(60), block(40, live=False)]},
    {"device": 1, "address": 0, "total_size": 300, "blocks": [block(200), block(100, live=False)]},
]


def table(tmp_path, message, outcome="oom", **error):
    facts = {"schema": SCHEMA, "cwd": "/home/me", "device": "cuda", "outcome": outcome}
    if message is not None:
        facts["error"] = {"type": "OutOfMemoryError", "message": message, **error}
    tmp_path.mkdir(exist_ok=True)
    write_manifest(tmp_path, facts)
    (tmp_path / "snapshot.pickle").write_bytes(pickle.dumps({"segments": SEGMENTS}))
    return Evidence(Recording(tmp_path)).get(OutOfMemory)


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        ("CUDA out of memory. Tried to allocate 1.50 GiB. GPU 0", 3 << 29),
        ("Tried to allocate 20.00 MiB (GPU 0)", 20 << 20),
        ("Tried to allocate 2 KiB", 2 << 10),
        ("Tried to allocate 512 bytes.", 512),
        ("no numbers", None),
        (None, None),
    ],
)
def test_what_torchs_message_says_was_asked_for(tmp_path, message, asked):
    found = table(tmp_path, message)
    assert (found.happened, found.requested, found.tried, found.site) == (True, asked, None, None)
    assert (found.device, found.reserved, found.live, found.largest_free) == (1, 300, 200, 100)
    (holder,) = found.holders
    assert (holder.size, holder.timed) == (200, False)
    assert "no allocation history" in found.why_no_what_if


def test_the_line_that_asked_is_the_errors(tmp_path):
    found = table(tmp_path, "x", file="/home/me/train.py", line=9, function="step")
    assert (found.site.file, found.site.line, found.site.function) == ("train.py", 9, "step")
    assert table(tmp_path / "b", "x", file="/home/me/train.py").site.line == 0


def recorded(tmp_path, message, outcome="oom"):
    table(tmp_path, message, outcome)
    return Evidence(Recording(tmp_path))


def test_the_head_of_a_report_has_the_limit_of_torchs_message(tmp_path):
    said = "Tried to allocate 2.00 MiB. GPU 0 has a total capacity of 1.50 GiB of which 1 is free"
    found = ran_out(recorded(tmp_path, said))
    assert (found.limit, found.requested) == (3 << 29, 2 << 20)
    assert (found.in_use, found.reserved) == (200, 300)
    assert (found.segment, found.free, found.short) == (None, None, None)
    assert (found.fits, found.tried) == ((), 0)
    assert ran_out(recorded(tmp_path / "b", "out of memory")).limit is None


def test_the_head_of_another_report_says_nothing_of_it(tmp_path):
    assert ran_out(recorded(tmp_path, None, "completed")) is None
    empty = tmp_path / "none"
    empty.mkdir()
    write_manifest(empty, {"schema": SCHEMA, "device": "cuda", "outcome": "oom"})
    assert ran_out(Evidence(Recording(empty))) is None


@pytest.mark.parametrize(("tried", "free", "short"), [(20, 7, 13), (20, 20, None), (20, 30, None)])
def test_the_segment_less_what_is_left_is_missing(tmp_path, monkeypatch, tried, free, short):
    evidence = recorded(tmp_path, "x")
    known = OutOfMemory(True, requested=4, tried=tried, device_free=free, reserved=9, live=8)
    monkeypatch.setattr(OutOfMemory, "build", classmethod(lambda cls, evidence: known))
    assert ran_out(evidence).short == short
