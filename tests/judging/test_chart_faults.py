"""A chart that cannot be drawn costs the report one sentence, and nothing else."""

import gzip
import json
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from auditor.cli import tensorboard_files, write_results
from auditor.evidence.snapshot import by_line
from auditor.evidence.table import Evidence
from auditor.judging import build_report, engine
from auditor.judging.catalogue import rules
from auditor.model import charts as report_charts
from auditor.recordings.standalone import TraceRecording
from tests.timeline.kineto import text, training


def traced(folder: Path) -> TraceRecording:
    path = folder / "trace.json.gz"
    path.write_bytes(gzip.compress(text(training(3)).encode()))
    return Evidence(TraceRecording(path))


@pytest.mark.parametrize("name", ["step_series", "_parts", "memory_charts", "device_time"])
def test_the_report_stands_without_the_chart(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("blocks")

    monkeypatch.setattr(build_report, name, broken)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text(training(3)).encode()))
    asked = tuple(rule for rule in rules() if rule.code == "SYNC001")
    recording = Evidence(TraceRecording(path))
    report = build_report.drawn(
        build_report.report(recording, engine.judge(recording, asked), asked), recording
    )
    assert [
        warning for warning in report.warnings if "cannot be drawn: KeyError: 'blocks'" in warning
    ] != []
    assert [verdict.code for verdict in report.verdicts] == ["SYNC001"]
    assert bool(report.parts) == (name != "_parts")


def test_a_fault_in_a_snapshot_chart_is_not_hidden() -> None:
    evidence: Any = SimpleNamespace(get=lambda _: {}["gone"])
    with pytest.raises(KeyError):
        by_line.memory_charts(evidence, predicted=False)


def test_a_fault_in_what_tensorboard_gets_costs_one_sentence(tmp_path, monkeypatch, capsys):
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensorboard_files, "write_scalars", full)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text(training(3)).encode()))
    asked = tuple(rule for rule in rules() if rule.code == "SYNC001")
    recording = Evidence(TraceRecording(path))
    report = build_report.report(recording, engine.judge(recording, asked), asked)
    page = write_results.write(
        report,
        recording,
        tmp_path / "out",
        [("sarif", str(tmp_path / "found.sarif"))],
        tensorboard=True,
    )
    assert page.is_file() and (tmp_path / "found.sarif").is_file()
    assert (
        capsys.readouterr().err == f"audit: {tmp_path / 'out' / 'tensorboard'} is incomplete: "
        "OSError: [Errno 28] No space left on device\n"
    )


def test_a_chart_that_never_ends_costs_one_sentence(tmp_path, monkeypatch):
    """As the charts of an 80 MB trace did, once."""

    def endless(*_: object, **__: object) -> None:
        while True:
            try:
                time.sleep(0.01)
            except KeyError:  # a chart may catch errors of its own
                pass

    monkeypatch.setattr(build_report, "_parts", endless)
    monkeypatch.setattr(report_charts.drawn, "__defaults__", (0.2,))
    recording = traced(tmp_path)
    asked = tuple(rule for rule in rules() if rule.code == "SYNC001")
    report = build_report.drawn(
        build_report.report(recording, engine.judge(recording, asked), asked), recording
    )
    assert (
        report.warnings[-1]
        == "what the steps are made of is not drawn: it would take longer than 0.2 s"
    )
    assert report.parts is None


def test_the_report_is_on_disk_before_anything_is_drawn(tmp_path, monkeypatch):
    """So it stays when drawing is interrupted, or the system ends the process."""

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(build_report, "_parts", interrupted)
    recording = traced(tmp_path)
    asked = tuple(rule for rule in rules() if rule.code == "SYNC001")
    report = build_report.report(recording, engine.judge(recording, asked), asked)
    with pytest.raises(KeyboardInterrupt):
        write_results.deliver(report, recording, tmp_path / "out", (), quiet=True)
    assert (
        json.loads((tmp_path / "out" / "report.json").read_text())["verdicts"][0]["code"]
        == "SYNC001"
    )
    assert "SYNC001" in (tmp_path / "out" / "report.html").read_text()


def test_the_callers_alarm_rings_after_a_chart(monkeypatch):
    rung: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: rung.append(number))
    try:
        signal.setitimer(signal.ITIMER_REAL, 60.0)
        assert report_charts.drawn("it", lambda: (1, 2), []) == (1, 2)
        left, _ = signal.setitimer(signal.ITIMER_REAL, 0.0)
        assert 0 < left <= 60.0
        signal.raise_signal(signal.SIGALRM)
        assert rung == [signal.SIGALRM]
    finally:
        signal.signal(signal.SIGALRM, before)


def test_in_another_thread_a_chart_has_all_the_time_it_takes():
    found: list[tuple[int, ...]] = []
    thread = threading.Thread(
        target=lambda: found.append(report_charts.drawn("it", lambda: (1,), [], seconds=0.0))
    )
    thread.start()
    thread.join()
    assert found == [(1,)]
