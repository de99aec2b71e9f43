"""What a price weighs: when a finding is only a note, and the one order that every format has."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from auditor.reports import as_json, headline, summary
from auditor.reports.html import Html
from auditor.reports.terminal import Terminal

from auditor.errors import AuditProblem
from auditor.judging import config
from auditor.model import (
    Finding,
    PeakBytes,
    Report,
    Run,
    Severity,
    Site,
    StepTimes,
    Verdict,
    prices,
)

TIMES = StepTimes(90.0, 400.0, 50.0, 500.0, 20, mean=100.0)


def finding(code: str = "SYNC001", severity: Severity = Severity.WARNING, **more: Any) -> Finding:
    facts = {"code": code, "key": code, "severity": severity, "basis": "measured"}
    return Finding(Site("a.py", 3, "f", "x"), code, **{"seen_on": "cpu", **facts, **more})


def weighed(found: Finding, below: float = prices.NOTE_BELOW, **peaks: int) -> Finding:
    return prices.weighed(found, Severity.NOTE, below, TIMES, peaks)


def reported(*found: Finding) -> Report:
    at = "2026-01-01T00:00:00+00:00"
    run = Run("a:b", 20, 0, 1, "cpu", "completed", None, TIMES, PeakBytes(), "", "", at)
    return Report(run, tuple(Verdict(each.code, each.code, "found") for each in found), found)


@pytest.mark.parametrize(("us", "level"), [(0.0999, "note"), (0.1, "warning"), (50.0, "warning")])
def test_below_a_thousandth_of_the_mean_step_it_is_a_note(us, level):
    found = weighed(finding(lost_us_per_step=us))
    assert (found.severity.value, found.negligible) == (level, level == "note")


@pytest.mark.parametrize(("held", "level"), [(999, "note"), (1000, "warning")])
@pytest.mark.parametrize("seen_on", ["cuda", "rehearsal", "snapshot"])
def test_memory_is_weighed_beside_the_peak_of_its_device(held, level, seen_on):
    found = weighed(finding(lost_bytes=held, seen_on=seen_on), **{seen_on: 1_000_000})
    assert (found.severity.value, found.negligible) == (level, level == "note")


def test_a_wait_that_costs_nothing_is_a_note_and_says_so():
    found = weighed(finding(lost_us_per_step=0.0, basis="estimated"))
    assert (found.severity, found.negligible) == (Severity.NOTE, True)
    assert summary.cost(found) == "0 us / step"
    unknown = finding(lost_us_per_step=0.0, basis="none")
    assert (weighed(unknown), summary.cost(unknown)) == (unknown, "")
    held = finding(lost_us_per_step=0.0, lost_bytes=500, seen_on="cuda")
    assert not weighed(held, cuda=1000).negligible


@pytest.mark.parametrize(
    "found",
    [
        finding(),  # no price
        finding(severity=Severity.ERROR, lost_us_per_step=0.01),  # it is about more
        finding(lost_bytes=1, grows=True, seen_on="cuda"),  # what grows has no share
        finding(lost_bytes=1, seen_on="cpu"),  # a host's peak is mostly Python's own
        finding(lost_us_per_step=0.01, lost_bytes=500_000, seen_on="cuda"),  # dear in memory
    ],
)
def test_what_is_not_weighed(found):
    assert weighed(found, cuda=1_000_000) is found


def test_without_times_nothing_is_weighed():
    found = prices.weighed(finding(lost_us_per_step=0.01), Severity.NOTE, 0.001, None, {})
    assert found.severity is Severity.WARNING


@pytest.mark.parametrize("said", ["-0.1", "1.5", '"0.1%"', "true"])
def test_what_is_no_share_is_refused(tmp_path: Path, said):
    (tmp_path / "pyproject.toml").write_text(f"[tool.audit]\nnote-below = {said}\n")
    with pytest.raises(AuditProblem, match="note-below"):
        config.load(tmp_path, ())


# -- order -----------------------------------------------------------------------------------------


def unsorted() -> Report:
    found = (
        finding("OPT002", Severity.NOTE),
        finding("SYNC009", Severity.NOTE, lost_us_per_step=0.01, negligible=True),
        finding("AMP001"),
        finding("SYNC001", lost_us_per_step=3.0),
        finding("GRAPH002", lost_bytes=100),
        finding("MEM003", Severity.NOTE, lost_bytes=200),
        finding("DATA007", Severity.ERROR, lost_us_per_step=5.0, lost_bytes=9),
        finding("SYNC002", Severity.NOTE, lost_us_per_step=30.0),
        finding("NUM013", Severity.ERROR),
        finding("MEM015", Severity.ERROR),
    )
    return reported(*found)


def test_the_headline_counts_in_the_step_that_it_names():
    said = "measured: fixing 4 findings could save 38 us of 100 us per step (38%)"
    assert headline.headline(unsorted())[1] == said


def waits(line: int, often: float, code: str = "SYNC001", **more: Any) -> Finding:
    made = finding(code, basis="none", per_step=often, **more)
    return replace(made, site=Site(f"{code.lower()}.py", line))


def test_waits_without_a_price_stand_by_how_many_they_are():
    found = (
        finding("AMP001", basis="none", per_step=99.0),
        waits(1, 2.0),
        waits(2, 30.0, "SYNC003"),
        waits(3, 31.0, "SYNC006", severity=Severity.NOTE),
        waits(4, 7.0),
        finding("MEM003", Severity.NOTE, lost_bytes=1 << 20),
    )
    report = replace(unsorted(), findings=found)
    lines = [(each.code, each.per_step) for each in report.findings]
    assert [n for code, n in lines if code.startswith("SYNC")] == [30.0, 7.0, 2.0, 31.0]
    assert (lines[0][0], lines[-1][0]) == ("SYNC003", "SYNC006")
    said = "70 times, 31 of them at sync006.py:3; their cost can be measured only on a GPU"
    assert headline.headline(report)[0] == f"each step would wait for the GPU {said}"
    assert len(headline.headline(report)) == 2
    assert "for the GPU 70 times" in Terminal(width=200).render(report)
    page = re.sub(r"<[^>]+>", "", str(Html().render(report)))
    assert "70 waits per step" in page and f"would wait for the GPU {said}" in page


@pytest.mark.parametrize(
    "found",
    [
        (waits(1, 0.5),),
        (waits(1, 5.0, severity=Severity.NOTE),),
        (replace(waits(1, 5.0), basis="estimated", lost_us_per_step=0.0),),
        (waits(1, 5.0, lost_us_per_step=3.0),),
        (finding("AMP001", basis="none", per_step=5.0),),
    ],
)
def test_no_waits_are_said_that_are_few_or_free_or_priced(found: tuple[Finding, ...]):
    said = headline.headline(replace(unsorted(), findings=found))
    assert not any("for the GPU" in each for each in said)


def test_a_consequence_stands_behind_its_cause_and_in_no_headline():
    cause = finding("GRAPH001", Severity.ERROR, lost_bytes=2 << 20, grows=True)
    smaller = replace(cause, lost_bytes=1 << 20)
    growth = finding("MEM003", Severity.NOTE, lost_bytes=4 << 20, grows=True, follows="GRAPH001")
    dear = finding("NUM009", lost_us_per_step=50.0)
    found = (growth, smaller, dear, cause)
    roomy = prices.Scale(step_us=100.0, host=1 << 50)
    assert prices.in_order(found, roomy) == (dear, cause, growth, smaller)
    assert prices.in_order(found) == (cause, growth, smaller, dear)  # memory is full before
    alone = replace(growth, follows="GRAPH002")  # whose cause was silenced, or not selected
    worse = replace(alone, severity=Severity.ERROR)
    assert prices.in_order((cause, worse), roomy) == (worse, cause)
    assert prices.in_order((cause, alone), roomy) == (cause, alone)  # it may be emptied
    report = replace(unsorted(), findings=(growth, cause))
    assert headline.largest_memory(report) == cause
    assert headline.largest_memory(replace(report, findings=(alone,))) == alone
    nameless = finding("", lost_us_per_step=1.0)  # in a stranger's report
    assert prices.in_order((nameless, dear)) == (dear, nameless)
    again = as_json.load(as_json.Json().render(report))
    assert [each.follows for each in again.findings] == ["", "GRAPH001"]


GIB = 1 << 30
ROOM = prices.Scale(step_us=100.0, device=80 * GIB, device_peak=30 * GIB, host=64 * GIB)


@pytest.mark.parametrize(
    ("found", "worth"),
    [
        (finding(lost_us_per_step=55.0), 0.55),
        (finding(lost_us_per_step=55.0, lost_us_per_step_low=-1.0), 0.0),
        (finding(lost_bytes=20 * GIB, seen_on="cuda"), 0.25),
        (finding(lost_bytes=16 * GIB), 0.25),
        (finding(lost_us_per_step=10.0, lost_bytes=16 * GIB), 0.25),
        (finding(lost_bytes=GIB // 1000, grows=True, seen_on="cuda"), 0.02),
        (finding("X", Severity.ERROR, lost_bytes=GIB // 100_000, grows=True, seen_on="cuda"), 0.02),
        (finding("X", Severity.ERROR, lost_bytes=GIB // 1000, grows=True, seen_on="cuda"), 2.0),
        (finding(grows=True), 0.0),
    ],
)
def test_time_and_memory_are_shares_of_what_there_is(found, worth):
    assert ROOM.worth(found) == pytest.approx(worth, rel=1e-3)


def test_an_error_opens_only_where_the_run_does_not_survive_it():
    error = Severity.ERROR
    graph = finding("GRAPH001", error, grows=True, basis="none")  # saved tensors held 0 B
    leak = finding("MEM003", error, grows=True, lost_bytes=GIB // 500)
    trickle = finding("MEM011", error, grows=True, lost_bytes=1000)
    collect = finding("MEM006", lost_us_per_step=56.0)
    loader = finding("DATA007", lost_us_per_step=55.0)
    worthless = finding("NUM013", error)
    found = (graph, trickle, loader, collect, worthless, leak)
    assert prices.in_order(found, ROOM) == (worthless, leak, collect, loader, trickle, graph)


def test_a_report_is_the_scale_of_its_findings():
    run = replace(unsorted().run, peak_bytes=PeakBytes(None, 2 * GIB))
    scale = prices.Scale.of(run, {"host_memory": str(64 * GIB), "device_memory": "?"})
    assert scale == prices.Scale(100.0, 0, 0, 64 * GIB, 2 * GIB)
    held, slow = finding("MEM003", lost_bytes=32 * GIB), finding("DATA007", lost_us_per_step=40.0)
    report = replace(unsorted(), run=run, findings=(slow, held))
    assert report.findings == (held, slow)
    roomy = replace(report, environment={"host_memory": str(64 * GIB)}, findings=(slow, held))
    assert [each.code for each in roomy.findings] == ["MEM003", "DATA007"]  # 50 % and 40 %
    roomy = replace(roomy, environment={"host_memory": str(640 * GIB)})
    assert [each.code for each in roomy.findings] == ["DATA007", "MEM003"]


def test_what_is_trained_comes_before_what_a_step_could_save():
    wait = replace(finding("SYNC006", per_step=8.0), basis="none")
    dear = finding("DATA007", lost_us_per_step=90.0)
    trained, slight = finding("TRAIN003", basis="none"), finding("TRAIN014", Severity.NOTE)
    assert prices.in_order((wait, dear, slight, trained), ROOM) == (trained, dear, wait, slight)
    ended = finding("NUM002", Severity.ERROR, basis="none")
    assert prices.in_order((trained, ended), ROOM) == (ended, trained)


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        (("SYNC006", "GRAPH006"), "1 finding changes what is trained: GRAPH006 at a.py:3"),
        (("OPT006", "TRAIN003"), "2 findings change what is trained: first OPT006 at a.py:3"),
    ],
)
def test_the_headline_opens_with_what_changes_the_training(codes, said):
    report = reported(*(finding(code, basis="none") for code in codes))
    assert headline.headline(report)[0] == said
    assert 'id="training"' in Html().render(report)


def test_notes_do_not_change_what_is_trained():
    report = reported(finding("TRAIN014", Severity.NOTE, basis="none"))
    assert "trained" not in " ".join(headline.headline(report))
