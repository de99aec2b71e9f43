"""Memory over time by owner: which events are shown, who held what, what is worth a layer."""

from pathlib import Path
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from auditor.evidence.snapshot.by_line import (
    REST,
    OwnedHistory,
    _steps,
    layers,
    positions,
)
from auditor.model import Site


def course(allocated, reserved=None, **more):
    facts = {"start_allocated": 0, "time_us": (), "ooms": (), "device": 3, **more}
    return SimpleNamespace(allocated=allocated, reserved=reserved or allocated, **facts)


@given(st.lists(st.integers(0, 99), min_size=1, max_size=300), st.integers(8, 60))
def test_shown_are_the_ends_and_every_extreme_in_few_events(values, limit):
    one = course(values, [value + 5 for value in values])
    found = positions(one, limit)
    assert found == tuple(sorted(set(found))) and len(found) <= limit
    assert {0, len(values) - 1} <= set(found)
    shown = [values[index] for index in found]
    assert (min(shown), max(shown)) == (min(values), max(values))
    if len(values) <= limit:
        assert found == tuple(range(len(values)))


def test_the_chart_of_a_history():
    times = (100, 200, 300, 400)
    one = course((10, 30, 31, 21), (40, 40, 50, 50), time_us=times, ooms=(2,))
    owners = (Site("/a/b/train.py", 4, "f"), "before", "c")
    history = OwnedHistory(one, owners, (0, 1, 2, 0), (0, 0, 0))
    steps = [(100, "one"), (350, "two"), (99, "early"), (401, "late")]
    chart = layers(history, steps, note="n")
    assert (chart.x_unit, chart.x, chart.events) == ("us", (0.0, 100.0, 200.0, 300.0), 4)
    assert chart.reserved == (40, 40, 50, 50)
    assert [tone.name for tone in chart.layers] == ["before", "b/train.py:4 f", "c"]
    assert chart.marks == ((200.0, "out of memory"), (0, "one"), (250, "two"))
    assert all(sum(column) == total for column, total in zip(zip(*chart.held), one.allocated))


def test_without_times_the_chart_runs_by_events_and_the_rest_is_one_layer():
    many = tuple(f"owner {number}" for number in range(12))
    one = course(tuple(range(100, 1300, 100)), ooms=(5,))
    history = OwnedHistory(one, many, tuple(range(12)), (0,) * 12)
    chart = layers(history, [(5, "step")], note="n")
    assert (chart.x_unit, chart.x[-1], len(chart.layers)) == ("event", 11.0, 9)
    assert (chart.layers[-1].name, chart.held[-1][-1]) == (REST, 400)
    assert chart.marks == ((5.0, "out of memory"),)
    assert [tone.colour for tone in chart.layers] == [*range(1, 9), -1]


def test_the_steps_are_those_of_the_run_that_the_snapshot_is_of():
    def run(folder, *times):
        rows = [SimpleNamespace(unix_us=us) for us in times]
        return SimpleNamespace(folder=folder, rows=lambda kind: rows)

    def marked(again, folder):
        recording = SimpleNamespace(to_oom=again, snapshot=folder and Path(folder, "snapshot"))
        evidence = run("", 3, 0, 9)
        evidence.recording = recording
        return list(_steps(evidence))

    first, second = [(3, "step 0"), (9, "step 2")], [(5, "step 0")]
    again = run(Path("again"), 5)
    assert marked(None, "first") == marked(again, "first") == marked(again, None) == first
    assert marked(again, "again") == second
