"""The report says where steps were so long that passes with instruments had fewer of them."""

from types import SimpleNamespace
from typing import Any

from auditor.judging import build_report
from auditor.judging.build_report import method_of
from auditor.runs.schedule import LONG_STEPS


def test_the_report_says_which_passes_had_fewer_steps():
    manifest = {"passes": [{"name": "loud", "steps": 8}], "cut": {"loud": 12}}
    (said, *_) = method_of(manifest, [], 0.0)
    assert "8 steps of 20: steps are long" in said


def test_what_the_rehearsal_says_too_is_said_once(monkeypatch):
    def evidence(warnings: list[str], inside: Any) -> Any:
        recording = SimpleNamespace(manifest={"warnings": warnings})
        return SimpleNamespace(recording=recording, inside=lambda name: inside)

    monkeypatch.setattr(build_report.null_beside, "warnings", lambda given: ())
    rehearsed = evidence([LONG_STEPS, "else"], None)
    assert list(build_report._said_in(evidence([LONG_STEPS], rehearsed))) == [
        "in the rehearsal: else"
    ]
    assert len(list(build_report._said_in(evidence([], rehearsed)))) == 2
