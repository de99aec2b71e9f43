"""Small files that ask for gigabytes, minutes or the stack: one sentence each, in little."""

import gzip
import json
import pickle
import resource

import pytest
from click.testing import CliRunner

from auditor.cli.main import main
from auditor.errors import AuditProblem
from auditor.evidence.snapshot.file import RefusedPickle, load_plain
from auditor.timeline import read, reading

MB = 1 << 20
HEAD = b'{"traceEvents":['
KINETO = b'\n  {\n    "ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1,\n    "ts": 1, "dur": 1\n  },'
EVENT = b'{"ph":"X","cat":"kernel","name":"k","pid":%d,"tid":7,"ts":%d,"dur":1}'


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def bomb(path, head, unit, size, tail=b"]}"):
    with gzip.open(path, "wb", 9) as file:
        file.write(head)
        block = unit * (MB // len(unit))
        for _ in range(size // MB):
            file.write(block)
        file.write(tail)
    return path


@pytest.mark.parametrize(
    ("head", "unit", "tail"),
    [
        (HEAD, KINETO, KINETO[:-1] + b"]}"),
        (HEAD, b" ", b"]}"),
        (HEAD + b'{"ph":"X","name":"a","args":{"x":[', b"[],", b"[]]}}]}"),
        (b'{"a":[', b"1,", b'1],"traceEvents":[]}'),
    ],
    ids=["events", "spaces", "lists", "head"],
)
def test_a_gzip_bomb_is_refused_at_a_hundredfold(tmp_path, monkeypatch, head, unit, tail):
    monkeypatch.setattr("auditor.timeline.reading.UNPACKED_AT_LEAST", 8 * MB)
    before = peak()
    path = bomb(tmp_path / "bomb.json.gz", head, unit, 80 * MB, tail)
    assert path.stat().st_size < 600_000
    with pytest.raises(AuditProblem, match="holds more than"):
        read(path)
    assert peak() - before < 400 * MB


def test_a_trace_that_inflates_as_traces_do_is_read_whole(tmp_path):
    events = [
        {
            "ph": "X",
            "cat": "cpu_op",
            "name": f"op{n % 50}",
            "pid": 1,
            "tid": 1,
            "ts": 3 * n,
            "dur": 2,
        }
        for n in range(30_000)
    ]
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": events}).encode(), 9))
    trace = read(path)
    assert trace.events == 30_000 and not trace.warnings


@pytest.mark.parametrize(("devices", "refused"), [(256, False), (257, True)])
def test_more_devices_than_any_machine_has(tmp_path, devices, refused):
    path = tmp_path / "t.json"
    path.write_bytes(HEAD + b",".join(EVENT % (n, n) for n in range(devices)) + b"]}")
    if refused:
        with pytest.raises(AuditProblem, match="257 devices"):
            read(path)
    else:
        assert len(read(path).work.start) == devices


def test_events_are_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MOST_EVENTS", 1000)
    path = tmp_path / "t.json"
    path.write_bytes(HEAD + KINETO * 50_000 + KINETO[:-1] + b"]}")
    with pytest.raises(AuditProblem, match="more than 1,000 events"):
        read(path)


def test_a_trace_of_kernels_alone_fails_no_rule(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.json").write_bytes(HEAD + b",".join(EVENT % (0, n) for n in range(9)) + b"]}")
    result = CliRunner().invoke(main, ["analyze", "t.json"])
    assert result.exit_code == 0 and "failed" not in result.output


DEEP = b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s."


def test_a_deep_key_of_a_snapshot_is_one_sentence(tmp_path):
    (tmp_path / "x.pickle").write_bytes(DEEP)
    with pytest.raises(RefusedPickle, match="died of it"):
        load_plain(tmp_path / "x.pickle")


def test_a_deep_key_ends_no_scan_of_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.pickle").write_bytes(DEEP)
    result = CliRunner().invoke(main, ["analyze", "x.pickle"])
    assert (
        result.exit_code == 2 and "died of it" in result.output and "Traceback" not in result.output
    )


def test_a_snapshot_with_many_tuples_is_still_read(tmp_path):
    content = {"segments": [{"pool": (0, n), "text": "t" * 5} for n in range(3000)], (1, (2, 3)): 4}
    (tmp_path / "x.pickle").write_bytes(pickle.dumps(content, 2))
    assert load_plain(tmp_path / "x.pickle") == content


def test_a_gzipped_pickle_bomb(tmp_path):
    path = tmp_path / "x.pickle"
    path.write_bytes(gzip.compress(b"\x80\x02X\x00\x00\x00\x0a" + bytes(160 * MB), 9))
    before = peak()
    with pytest.raises(RefusedPickle, match="larger than"):
        load_plain(path)
    assert peak() - before < 200 * MB
