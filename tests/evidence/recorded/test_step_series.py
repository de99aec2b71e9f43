"""The step-time chart and that of memory."""

import json

import pytest

from auditor.evidence.recorded.steps import step_series
from auditor.evidence.table import Evidence
from auditor.recordings.folder import Recording, RecordingWriter
from auditor.recordings.schema.run import StepRow


@pytest.fixture
def times(tmp_path):
    """The series of twenty quiet steps of 10 ms, changed at some of them."""

    def read(changed, **manifest):
        usual = {"pass_name": "quiet", "us": 10_000.0, "rss": 1 << 20}
        rows = [StepRow(**{**usual, "step": n, **changed.get(n, {})}) for n in range(20)]
        writer = RecordingWriter(tmp_path)
        writer.close()
        (tmp_path / "manifest.json").write_text(
            json.dumps({"schema": "audit-recording/1", **manifest})
        )
        return step_series(Evidence(Recording(tmp_path)), rows)

    return read


def test_times_leave_out_what_the_machine_took_as_the_header_does(times):
    """A chart up to 30 ms under a header that says "slowest 10 ms" is two kinds of time."""
    series, memory = times({7: {"us": 30_000.0, "queued_us": 20_000.0}})
    assert (series.name, max(series.y)) == ("timing pass", 10_000.0)
    assert (memory.unit, memory.y[0]) == ("bytes", float(1 << 20))
