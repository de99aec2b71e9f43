"""All rules on real traces: what the truth sees is reported, nothing loud contradicts it."""

import pytest

from tests.recorded_traces import TRACES
from tests.timeline.against_truth import judged


@pytest.fixture(scope="module", params=TRACES)
def trace(request):
    return judged(request.param, TRACES[request.param])


def test_no_rule_fails(trace):
    assert not trace.failed


def test_nothing_louder_than_a_note_contradicts_the_truth(trace):
    assert not trace.false


def test_what_the_truth_sees_is_reported_or_excused(trace):
    assert not trace.missed


def test_a_trace_without_steps_gives_notes_at_most(trace):
    if not trace.truth["trace"]["steps"]["n"] and not trace.truth["trace"]["optimizer"]:
        assert {finding.severity.value for finding in trace.findings} <= {"note"}
