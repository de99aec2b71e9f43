"""How often compiled functions are entered, read off spans of the compiler in a trace."""

import pytest
from auditor.rules.comp.compiled import LOOKUP, Entered, GraphEntries, _entered

from auditor.evidence.table import Evidence
from auditor.evidence.trace.facts import timeline_of
from auditor.recordings.standalone import TraceRecording
from tests.timeline.kineto import note, op, text

REGION = "Torch-Compiled Region: "


def entered(tmp_path, events):
    (tmp_path / "trace.json").write_text(text(events))
    return _entered(timeline_of(Evidence(TraceRecording(tmp_path / "trace.json"))))


def step(number, inside):
    start = 1000.0 * number
    return [note(f"ProfilerStep#{number}", start, 900.0), *(each(start) for each in inside)]


def lookup(at, us, **more):
    return lambda start: op(LOOKUP, start + at, us, **more)


def region(at, us, frame, **more):
    return lambda start: op(REGION + frame, start + at, us, **more)


def test_entries_and_lookups_are_of_a_step(tmp_path):
    first = [lookup(0, 80), region(81, 500, "0/0"), lookup(200, 40), region(241, 90, "2/0 (a)")]
    events = [*step(1, first), *step(2, first[:2])]
    found = entered(tmp_path, events)
    assert found == {"0": Entered(1.0, 80.0), "2": Entered(0.5, 20.0)}


def test_what_is_no_lookup_of_the_region_is_not_counted(tmp_path):
    """Of another thread; of an inner region; and a region with none at all."""
    events = step(1, [region(10, 50, "0/1"), lookup(70, 9, tid=200), region(90, 5, "1/0")])
    assert entered(tmp_path, events) == {"0": Entered(1.0), "1": Entered(1.0)}


def test_what_runs_between_the_steps_is_not_counted(tmp_path):
    events = [*step(1, [region(10, 50, "0/0")]), op(f"{REGION}0/0", 1950, 20)]
    events += step(2, [region(10, 50, "0/0")])
    assert entered(tmp_path, events) == {"0": Entered(1.0)}


def test_names_of_compiled_autograd_have_their_frame(tmp_path):
    assert set(entered(tmp_path, step(1, [region(10, 50, "!3/5/0")]))) == {"5"}


@pytest.mark.parametrize("events", [[], step(1, [lookup(0, 5)])])
def test_a_trace_without_regions_has_none(tmp_path, events):
    assert entered(tmp_path, events or step(1, [])) == {}


def test_several_frames_add_up():
    table = GraphEntries({"1": Entered(1.0, 40.0), "2": Entered(0.5, 5.0)})
    assert table.of({"1", "2", "9"}) == Entered(1.5, 45.0)
    assert table.of(()) == Entered()
