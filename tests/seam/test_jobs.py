"""The traces of a job's ranks in one report: who is late, communication, every rank's numbers."""

import json
import re
from dataclasses import replace

import pytest
from auditor.reports.as_json import Json, load
from auditor.reports.html import Html
from auditor.reports.terminal import Terminal

from auditor.evidence.table import Evidence
from auditor.judging import build_report, catalogue, engine
from auditor.recordings.standalone import RankedTraces
from auditor.timeline import fleet, trace_files
from tests.timeline.jobs import job

RULES = catalogue.rules()


def laid_out(folder, texts):
    folder.mkdir(parents=True, exist_ok=True)
    for rank, content in enumerate(texts):
        (folder / f"worker{rank}.json").write_text(content)
    return folder


def judged(folder):
    recording = Evidence(RankedTraces(folder, fleet(trace_files(folder))))
    return build_report.drawn(
        build_report.report(recording, engine.judge(recording, RULES), RULES), recording
    )


def late(rank, step):
    return 200.0 if rank == 2 else 5.0 * rank


def test_one_report_for_all_ranks(tmp_path, audit):
    laid_out(tmp_path / "traces", job(4, late))
    done = audit("analyze", "traces", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "audits" / "traces" / "report.json").read_text())
    assert report["run"]["world_size"] == 4
    assert report["run"]["target"] == "traces/"
    assert report["warnings"] == []
    assert (
        "rules were asked of rank 2, which waits least in collectives: the others wait for it"
        in report["method"]
    )
    assert [row["rank"] for row in report["ranks"]] == [0, 1, 2, 3]
    third = report["ranks"][2]
    assert (third["steps"], third["step_us"], third["compute_us"], third["exposed_us"]) == (
        6,
        990,
        700,
        40,
    )
    assert third["peak_bytes"] is None
    (straggler,) = [finding for finding in report["findings"] if finding["code"] == "DIST004"]
    assert straggler["message"].endswith("for rank 2, last at 6 of 6 collectives")
    assert straggler["lost_us_per_step"] == pytest.approx(195, abs=1)


def test_missing_and_damaged_ranks_are_warnings(tmp_path):
    folder = laid_out(tmp_path / "job", job(5, late))
    (folder / "worker1.json").unlink()
    (folder / "worker4.json").write_text("<html>")
    report = judged(folder)
    assert [row.rank for row in report.ranks] == [0, 2, 3]
    assert report.run.world_size == 5
    assert any(warning.startswith("worker4.json is left out: ") for warning in report.warnings)
    assert any(
        warning.startswith("ranks 1, 4 are missing: 3 of 5 traces are there")
        for warning in report.warnings
    )


def test_ranks_survive_the_way_through_json(tmp_path):
    report = judged(laid_out(tmp_path / "job", job(2, late)))
    assert load(Json().render(report)).ranks == report.ranks != ()


def test_one_trace_has_no_ranks(tmp_path):
    report = judged(laid_out(tmp_path / "job", job(1, late)))
    assert len(report.ranks) == 1
    assert {verdict.code: verdict.status for verdict in report.verdicts}["DIST004"] == "skipped"


def test_the_ranks_are_a_table_in_terminal_and_page(tmp_path):
    report = judged(laid_out(tmp_path / "job", job(12, late)))
    shown = Terminal(width=120).render(report)
    (head,) = [line for line in shown.splitlines() if line.split()[:2] == ["rank", "median"]]
    assert head.split()[-2:] == ["communicating", "exposed"], "nothing is zero everywhere"
    rows = shown.splitlines()[shown.splitlines().index(head) + 1 :][:9]
    assert [row.split()[0] for row in rows] == ["2", "11", "10", "9", "8", "7", "6", "5", "and"]
    assert "and 4 ranks that wait longer in collectives" in rows[-1]
    page = Html().render(report)
    listed = re.findall(r'<tr(.*?)><th scope="row">(\d+)</th><td>990 µs</td>', page)
    assert [int(rank) for _, rank in listed] == list(range(12))
    assert [int(rank) for mark, rank in listed if mark] == [2], "the one that the others wait for"
    assert 'id="ranks"' not in Html().render(replace(report, ranks=()))
