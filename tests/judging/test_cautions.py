"""What stands above the findings because it makes them mean less."""

from types import SimpleNamespace
from typing import Any

import pytest
from auditor.reports.terminal import Terminal

from auditor.evidence.table import Evidence
from auditor.judging import build_report, engine
from auditor.judging.build_report import HELD_EAGER, NULL_RUN, _cautions
from auditor.recordings.standalone import TraceRecording
from tests.recorded_traces import OURS


def said(error: dict[str, Any] | None, null: bool = False) -> tuple[str, ...]:
    recording = SimpleNamespace(manifest={"error": error}, device=SimpleNamespace(null=null))
    return _cautions(SimpleNamespace(recording=recording), (), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, ()),
        ({"pass_name": "quiet"}, ()),
        ({}, ()),
        ({"pass_name": "eager_held"}, (HELD_EAGER,)),
    ],
)
def test_a_program_that_ends_while_held_eager_may_not_end_so_by_itself(
    error: dict[str, Any] | None, expected: tuple[str, ...]
) -> None:
    assert said(error) == expected
    assert said(error, null=True) == (*expected, NULL_RUN)


@pytest.mark.parametrize(
    ("name", "said"),
    [("cupti_missing", "could not start CUPTI"), ("cpu_training", "holds no GPU work")],
)
def test_a_trace_without_a_gpus_work_says_so_on_top(name, said):
    path = OURS / "data" / name / "trace.json.gz"
    evidence = Evidence(TraceRecording(path))
    found = build_report.report(evidence, engine.judge(evidence, ()), ())
    assert any(said in each for each in found.cautions)
    shown = Terminal(width=200).render(found)
    assert shown.index(said) < shown.index("No findings")
    assert "of its own in" in shown  # the operators


@pytest.mark.parametrize("null", [False, True])
def test_a_null_devices_trace_has_no_times_of_operators(null, monkeypatch):
    path = OURS / "data" / "cpu_training" / "trace.json.gz"
    monkeypatch.setattr("auditor.timeline.trace.Info.null_device", null)
    evidence = Evidence(TraceRecording(path))
    found = build_report.report(evidence, engine.judge(evidence, ()), ())
    assert bool(found.operators) != null
    assert ("of its own in" in Terminal(width=200).render(found)) != null
