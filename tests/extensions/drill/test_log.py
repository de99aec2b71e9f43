"""What a drill's runs tell, read from the rows of their recordings."""

from __future__ import annotations

import json

import pytest

from auditor.extensions.drill import report as restart
from auditor.extensions.drill.log import Log
from auditor.recordings.folder import Recording
from auditor.recordings.schema.drill import DrillBackwardRow, DrillOptimizerRow

MANIFEST = {
    "schema": "audit-recording/1",
    "target": "t:step",
    "cwd": "/nowhere",
    "steps": 3,
    "warmup": 0,
    "device": "cpu",
    "passes": [{"name": "drill", "steps": 3}],
    "outcome": "completed",
    "sources": {},
    "recorded_at": "2026-01-01T00:00:00+00:00",
    "warnings": [],
}
BACKWARD = {"what": "backward", "held": 0, "gradients": "aa", "handling": False}
STATE = {"weights": "aa", "state": "bb", "states": 1, "rates": [0.1]}


@pytest.fixture
def log(tmp_path):
    """Reads a run whose part ``drill`` has these rows."""

    def read(*rows, offset=0):
        (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST))
        text = "".join(f"{json.dumps({'pass': 'drill', **row})}\n" for row in rows)
        (tmp_path / "drill.jsonl").write_text(text)
        return Log.read(Recording(tmp_path), offset)

    return read


def test_events_are_typed_and_in_order(log):
    update = {"step": 1, "what": "optimizer", "bad": ["w"], "n": 1, "fed": 2, "rates": [0.1]}
    read = log(
        {"step": 0, "loss": "nan", **BACKWARD}, {"step": 1, "loss": None, **BACKWARD}, update
    )
    assert [type(event) for event in read.events] == [DrillBackwardRow] * 2 + [DrillOptimizerRow]
    assert str(read.losses) == "{0: nan}"
    assert read.of(DrillOptimizerRow)[0].bad == ["w"]
    assert (read.injected, read.start, read.ends, read.after) == (None, None, {}, ())
    assert read.before == read.events


def test_the_steps_of_a_script_are_numbered_as_it_counts(log):
    before = {"pass": "warmup", "step": 0, "loss": "1.0", **BACKWARD}
    assert [event.step for event in log(before, {**before, "pass": "drill"}, offset=1).events] == [
        0,
        1,
    ]


def test_an_event_that_this_version_does_not_know_is_passed_over(log):
    read = log({"step": 0, "what": "moon"}, {"step": 1, "loss": "2.5", **BACKWARD})
    assert read.losses == {1: 2.5}


def test_a_rate_that_could_not_be_read_is_said_to_be_unknown(log):
    [killed] = [
        log(
            {"step": 0, "what": "start", **STATE},
            {"step": 2, "what": "injected", "where": "batch", "place": "there"},
            {"step": 1, "what": "end", "parameters": 1, "random": "r", "bad": {}, **STATE},
            {"step": 2, "what": "optimizer", "bad": [], "n": 0, "fed": 1, "rates": [None]},
        )
    ]
    restarted = log({"step": 0, "what": "start", **STATE})
    said = [each.text for each in restart.judge(killed, restarted)]
    assert said[-1] == (
        "The learning rate began again at 0.1; the killed run had unknown at that step."
    )
