"""``audit analyze`` on memory snapshots: folders, what is printed when, undrawable charts."""

import gzip
import json
import pickle

import pytest
from click.testing import CliRunner

from auditor.allocator import CachingAllocator
from auditor.cli import write_results
from auditor.cli.main import main
from auditor.judging import build_report
from tests.timeline.kineto import text, training

MIB = 2**20
HELD = ({"filename": "/home/user/project/train.py", "line": 7, "name": "step"},)


@pytest.fixture
def content():
    allocator = CachingAllocator(8 << 30)
    for _ in range(4):
        allocator.malloc(600 * MIB, frames=HELD)
    return pickle.dumps(allocator.snapshot())


@pytest.fixture
def analyze(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return lambda *words: CliRunner().invoke(main, ["analyze", *map(str, words)])


@pytest.mark.parametrize("name", ["dump.pickle", "dump.pickle.gz", "dump.pkl"])
def test_a_folder_with_one_snapshot_is_that_snapshot(tmp_path, content, analyze, name):
    folder = tmp_path / "given"
    folder.mkdir()
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    (folder / "config.json").write_text(
        "{}"
    )  # it is no trace, and does not make the folder one of traces
    done = analyze(folder)
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "audits" / "dump" / "report.json").read_text())
    assert report["run"]["target"] == name
    assert [finding["code"] for finding in report["findings"]] == ["MEM006"]


def test_a_folder_with_several_snapshots_says_what_to_do(tmp_path, content, analyze):
    for rank in range(4):
        (tmp_path / f"rank{rank}.pickle").write_bytes(content)
    done = analyze(tmp_path)
    assert done.exit_code == 2
    assert (
        "holds 4 memory snapshots (rank0.pickle, rank1.pickle, rank2.pickle, ...): each has a "
        "report of its own" in done.output
    )
    assert f"audit analyze {tmp_path}/rank0.pickle {tmp_path}/rank1.pickle ..." in done.output


def test_a_snapshot_beside_traces_is_told_and_not_judged(tmp_path, content, analyze):
    (tmp_path / "rank0.json").write_text(text(training(3)))
    (tmp_path / "dump.pickle").write_bytes(content)
    done = analyze(tmp_path, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.output
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert (
        "dump.pickle beside the traces was not looked at: give its own path to judge it"
        in report["warnings"]
    )


def test_the_findings_are_printed_before_anything_is_drawn_or_written(
    tmp_path, content, analyze, monkeypatch
):
    (tmp_path / "dump.pickle").write_bytes(content)

    def full(*_, **__):
        raise OSError("no space left")

    monkeypatch.setattr(write_results, "write", full)
    done = analyze("dump.pickle")
    assert (
        done.exit_code == 2
        and "OSError: no space left" in done.output
        and "MEM006" in done.output
        and "report.html" not in done.output
    )


def test_a_fault_in_a_chart_costs_the_chart_alone(tmp_path, content, analyze, monkeypatch):
    (tmp_path / "dump.pickle").write_bytes(content)

    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(build_report, "memory_charts", broken)
    done = analyze("dump.pickle")
    said = "memory over time cannot be drawn: ZeroDivisionError"
    assert done.exit_code == 0 and f"audit: {said}" in done.output
    report = json.loads((tmp_path / "audits" / "dump" / "report.json").read_text())
    assert [finding["code"] for finding in report["findings"]] == ["MEM006"]
    assert report["warnings"] == [said] and not report["layers"]
    assert said in (tmp_path / "audits" / "dump" / "report.html").read_text()
