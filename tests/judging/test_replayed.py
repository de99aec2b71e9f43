"""Prices of a trace by its replay: together, in order, and where they cannot be had."""

from pathlib import Path

import pytest

from auditor.evidence.table import Evidence
from auditor.judging import engine, replayed
from auditor.judging.build_report import report
from auditor.judging.catalogue import rules
from auditor.model import Finding, FoundAt, Report, Site
from auditor.model.charts import Overdue
from auditor.model.what_if import Change
from auditor.recordings.standalone import TraceRecording
from tests.timeline.kineto import call, kernel, loop, memcpy, note, op, product, text, write

STEPS = 4


def judged(folder: Path, events) -> Report:
    evidence = Evidence(TraceRecording(write(folder, text(events))))
    chosen = rules()
    return report(evidence, engine.judge(evidence, chosen), chosen)


def read(start, end, number, under):
    """A scalar read at ``start`` that returns at ``end``."""
    return [
        op(under, start, end - start),
        op("aten::_local_scalar_dense", start + 1, end - start - 2),
        call("cudaMemcpyAsync", start + 2, end - start - 14, number),
        memcpy("DtoH (Device -> Pageable)", end - 20, 4, number),
        call("cudaStreamSynchronize", end - 11, 8, number + 1),
    ]


def two_reads(number, start):
    """A product of 2 ms, of which two reads in a row wait for the same end; the host then takes
    2 ms for something else, and the device waits for it.
    """
    first = 100 * number
    return [
        *product(start + 10, first + 1, 2000),
        *read(start + 60, start + 2060, first + 2, "aten::item"),
        *read(start + 2100, start + 2140, first + 4, "aten::is_nonzero"),
        *product(start + 4200, first + 6, 100),
    ]


@pytest.fixture(scope="module")
def reads(tmp_path_factory):
    return judged(tmp_path_factory.mktemp("reads"), loop(STEPS, 4400, two_reads))


def test_each_price_is_what_the_replay_gives_alone(reads):
    found = {each.code: each for each in reads.findings}
    alone = {fix.code: fix.alone_us for fix in reads.what_if.fixes}
    for code in ("SYNC001", "SYNC002"):
        assert found[code].lost_us_per_step == alone[code]
        assert found[code].basis == "estimated"
    assert alone["SYNC001"] < 100  # the other read takes its time
    assert alone["SYNC002"] < 100


def test_where_the_replay_is_not_trusted_prices_stay_and_the_reason_is_said(tmp_path):
    def body(number, start):
        """The second kernel begins 1 ms after its launch, and nothing shows why."""
        first = 10 * number
        return [
            *product(start + 10, first + 1, 300),
            *read(start + 60, start + 360, first + 2, "aten::item"),
            op("aten::mm", start + 400, 20),
            call("cudaLaunchKernel", start + 405, 5, first + 5),
            kernel("k", start + 1405, 100, first + 5),
            call("cudaDeviceSynchronize", start + 420, 1110, first + 6),
        ]

    found = judged(tmp_path, loop(STEPS, 2000, body))
    assert found.what_if.fixes == ()
    assert found.what_if.reason.startswith("replayed with nothing changed, ")
    assert found.what_if.replayed_us < 0.9 * found.what_if.recorded_us
    assert any(each.lost_us_per_step for each in found.findings if each.code == "SYNC001")


def test_work_without_any_launch_is_not_replayed(tmp_path):
    def body(number, start):
        return [
            note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", start + 10, 2000),
            kernel("k", start + 2100, 500, number),
        ]

    found = judged(tmp_path, loop(STEPS, 4000, body))
    assert found.what_if.reason == "the trace does not show what launched the device's work"
    (finding,) = (each for each in found.findings if each.code == "DATA007")
    assert finding.lost_us_per_step == 2000


def test_a_replay_that_fails_costs_no_report(tmp_path, monkeypatch):
    def fails(*_):
        raise ValueError("no such stream")

    monkeypatch.setattr(replayed, "replay", fails)
    found = judged(tmp_path, loop(STEPS, 4400, two_reads))
    assert found.what_if is None
    assert "the trace cannot be replayed: ValueError: no such stream" in found.warnings
    assert {"SYNC001", "SYNC002"} <= {each.code for each in found.findings}


def test_a_replay_that_takes_too_long_is_given_up(tmp_path, monkeypatch):
    def takes_long(*_):
        raise Overdue

    monkeypatch.setattr(replayed, "replay", takes_long)
    found = judged(tmp_path, loop(STEPS, 4400, two_reads))
    assert found.what_if.reason == "it would take longer than 60 s"


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("MOST_EVENTS", 32, "32 calls and 2 findings are too many to replay"),
        ("MOST_EVENTS", 10, "25 calls are too many"),
        ("MOST_STREAMS", 0, "work on 1 streams of one device is too much"),
    ],
)
def test_too_much_is_not_replayed(tmp_path, monkeypatch, name, value, reason):
    monkeypatch.setattr(replayed, name, value)
    assert judged(tmp_path, loop(STEPS, 4400, two_reads)).what_if.reason == reason


def test_parts_of_a_finding_have_prices_of_their_own_and_consequences_no_row(monkeypatch):
    """Of a finding that joins two places, and one that follows from it."""
    site = Site("train.py", 3)
    changes = Change("waits", (1,)), Change("waits", (2,))
    parts = tuple(FoundAt(site, "x", code="A", changes=(each,)) for each in changes)
    whole = Finding(site, "m", code="A", basis="estimated", changes=changes, places=parts)
    after = Finding(None, "n", code="B", basis="estimated", changes=changes[:1], follows="A")
    other = Finding(None, "o", code="C", lost_us_per_step=7.0)
    asked = []

    def said(_evidence, sets, counted):
        asked.append((sets, counted))
        return replayed.Replayed(
            100.0, 101.0, (30.0, 5.0, 10.0, 4.0), (0,), (30.0,), (30.0, 0, 0, 0)
        )

    monkeypatch.setattr(replayed, "replay", said)
    found = replayed.repriced(None, (whole, other, after), [])
    assert asked == [
        ([changes, changes[:1], changes[:1], changes[1:]], [True, False, False, False])
    ]
    assert [each.lost_us_per_step for each in found.findings] == [30.0, 7.0, 5.0]
    assert [each.lost_us_per_step for each in found.findings[0].places] == [10.0, 4.0]
    assert [fix.code for fix in found.what_if.fixes] == ["A"]
    assert found.weights == {}
