"""A chart that cannot be drawn costs the report one sentence, and nothing else."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from auditor import assemble, engine
from auditor.bare_trace import TraceRecording
from auditor.catalogue import rules
from auditor.commands import results
from auditor.evidence import memory_charts
from tests.timeline.kineto import text, training


@pytest.mark.parametrize("name", ["step_series", "trace_charts", "memory_charts"])
def test_the_report_stands_without_the_chart(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("blocks")

    monkeypatch.setattr(assemble, name, broken)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text(training(3)).encode()))
    asked = tuple(rule for rule in rules() if rule.code == "SYNC001")
    recording = TraceRecording(path)
    report = assemble.drawn(assemble.report(recording, engine.judge(recording, asked), asked), recording)
    assert [warning for warning in report.warnings if "cannot be drawn: KeyError: 'blocks'" in warning] != []
    assert [verdict.code for verdict in report.verdicts] == ["SYNC001"]
    assert bool(report.lanes) == (name != "trace_charts")


def test_a_fault_in_a_snapshot_chart_is_not_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_charts, "_courses", lambda _: {}["gone"])
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text(training(1)).encode()))
    with pytest.raises(KeyError):
        memory_charts.memory_charts(TraceRecording(path), predicted=False)


def test_a_fault_in_what_tensorboard_gets_costs_one_sentence(tmp_path, monkeypatch, capsys):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(results.scalars, "write", full)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text(training(3)).encode()))
    asked = tuple(rule for rule in rules() if rule.code == "SYNC001")
    recording = TraceRecording(path)
    report = assemble.report(recording, engine.judge(recording, asked), asked)
    page = results.write(report, recording, tmp_path / "out", [("sarif", str(tmp_path / "found.sarif"))])
    assert page.is_file() and (tmp_path / "found.sarif").is_file()
    assert (
        capsys.readouterr().err
        == f"audit: {tmp_path / 'out' / 'tensorboard'} is incomplete: OSError: [Errno 28] No space left on device\n"
    )
