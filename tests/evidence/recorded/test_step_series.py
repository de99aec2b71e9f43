"""Marks of the step-time chart: only what stands out, and the cause that took most of the
difference.
"""

import json

import pytest

from auditor.evidence.recorded.steps import step_series
from auditor.evidence.table import Evidence
from auditor.recordings.folder import Recording, RecordingWriter
from auditor.recordings.schema.data import BatchRow
from auditor.recordings.schema.run import StepRow


@pytest.fixture
def times(tmp_path):
    """The series of twenty quiet steps of 10 ms, changed at some of them, and the loader's
    waits.
    """

    def read(changed, waits=(), **manifest):
        usual = {"pass_name": "quiet", "us": 10_000.0, "rss": 1 << 20}
        rows = [StepRow(**{**usual, "step": n, **changed.get(n, {})}) for n in range(20)]
        writer = RecordingWriter(tmp_path)
        for step, wait in waits:
            writer.add(BatchRow(pass_name="quiet", step=step, loader=0, n=1, wait_us=wait))
        writer.close()
        (tmp_path / "manifest.json").write_text(
            json.dumps({"schema": "audit-recording/1", **manifest})
        )
        return step_series(Evidence(Recording(tmp_path)), rows)

    return read


def test_ordinary_unrest_is_not_marked(times):
    series, memory = times({3: {"us": 14_900.0}, 4: {"us": 11_000.0, "gc_us": 900.0}})
    assert (series.name, series.marks) == ("timing pass", ())
    assert (memory.unit, memory.y[0]) == ("bytes", float(1 << 20))


def test_a_retry_of_the_allocator_explains_its_step_only(times):
    changed = {n: {"retries": 1} for n in range(7, 20)} | {
        7: {"us": 90_000.0, "retries": 1},
        12: {"us": 30_000.0, "retries": 1},
    }
    series, *_ = times({n: {"retries": 0} for n in range(7)} | changed)
    assert [place for place, _ in series.marks] == [7.0, 12.0]
    assert "returned cached memory" in series.marks[0][1]
    assert ":" not in series.marks[1][1]  # no cause


def test_times_leave_out_what_the_machine_took_as_the_header_does(times):
    """A chart up to 30 ms under a header that says "slowest 10 ms" is two kinds of time."""
    series, *_ = times({7: {"us": 30_000.0, "queued_us": 20_000.0}}, ())
    assert (max(series.y), series.marks) == (10_000.0, ())
