"""A chart that cannot be drawn costs the report one sentence, and nothing else."""

import contextlib
import gzip
import json
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from auditor.cli import tensorboard_files, write_results
from auditor.evidence.table import Evidence
from auditor.judging import build_report, engine
from auditor.judging.catalogue import rules
from auditor.model import Report
from auditor.model import charts as report_charts
from auditor.recordings.standalone import TraceRecording
from tests.timeline.kineto import text, training


def made(tmp_path: Path) -> tuple[Evidence, Report]:
    """A trace, and its report of one rule before anything is drawn."""
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(text(training(3)).encode()))
    asked = tuple(rule for rule in rules() if rule.code == "SYNC001")
    evidence = Evidence(TraceRecording(path))
    return evidence, build_report.report(evidence, engine.judge(evidence, asked), asked)


@pytest.fixture
def traced(tmp_path: Path) -> tuple[Evidence, Report]:
    return made(tmp_path)


def raising(error: BaseException) -> Callable[..., None]:
    def broken(*_: object, **__: object) -> None:
        raise error

    return broken


@pytest.mark.parametrize("name", ["step_series", "_parts", "memory_charts", "device_time"])
def test_the_report_stands_without_the_chart(tmp_path, name, monkeypatch):
    monkeypatch.setattr(build_report, name, raising(KeyError("blocks")))
    evidence, report = made(tmp_path)
    report = build_report.drawn(report, evidence)
    assert "cannot be drawn: KeyError: 'blocks'" in " ".join(report.warnings)
    assert [verdict.code for verdict in report.verdicts] == ["SYNC001"]
    assert bool(report.parts) == (name != "_parts")


def test_a_fault_in_what_tensorboard_gets_costs_one_sentence(traced, tmp_path, monkeypatch, capsys):
    full = OSError(28, "No space left on device")
    monkeypatch.setattr(tensorboard_files, "write_scalars", raising(full))
    (evidence, report), out, sarif = traced, tmp_path / "out", tmp_path / "found.sarif"
    page = write_results.write(report, evidence, out, [("sarif", str(sarif))], tensorboard=True)
    assert page.is_file() and sarif.is_file()
    assert capsys.readouterr().err == (
        f"audit: {out / 'tensorboard'} is incomplete: OSError: [Errno 28] No space left on device\n"
    )


def test_a_chart_that_never_ends_costs_one_sentence(traced, monkeypatch):
    """As the charts of an 80 MB trace did, once."""

    def endless(*_: object, **__: object) -> None:
        while True:
            with contextlib.suppress(KeyError):  # a chart may catch errors of its own
                time.sleep(0.01)

    monkeypatch.setattr(build_report, "_parts", endless)
    monkeypatch.setattr(report_charts.drawn, "__defaults__", (0.2,))
    evidence, report = traced
    report = build_report.drawn(report, evidence)
    said = "what the steps are made of is not drawn: it would take longer than 0.2 s"
    assert report.warnings[-1] == said and report.parts is None


def test_the_report_is_on_disk_before_anything_is_drawn(traced, tmp_path, monkeypatch):
    """So it stays when drawing is interrupted, or the system ends the process."""
    monkeypatch.setattr(build_report, "_parts", raising(KeyboardInterrupt()))
    evidence, report = traced
    with pytest.raises(KeyboardInterrupt):
        write_results.deliver(report, evidence, tmp_path / "out", (), quiet=True)
    written = json.loads((tmp_path / "out" / "report.json").read_text())
    assert written["verdicts"][0]["code"] == "SYNC001"
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
