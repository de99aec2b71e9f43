"""Which frame of an allocation's stack is the user's line."""

import pytest

from auditor.evidence.snapshot.state_at import Origins
from auditor.evidence.table import Evidence
from auditor.recordings.folder import SCHEMA, Recording


@pytest.mark.parametrize(
    ("inner", "line"),
    [
        ("/opt/audit/auditor/capture/instruments/dispatch_modes.py", 9),
        ("/env/lib/python3.11/site-packages/torch/nn/modules/linear.py", 9),
        ("/home/user/auditor/model.py", 5),
    ],
)
def test_frames_of_the_recorder_and_of_libraries_are_passed_over(tmp_path, inner, line):
    facts = {"schema": SCHEMA, "cwd": "/home/user", "device": "null", "outcome": "completed"}
    origins = Origins(Evidence(Recording(tmp_path, {**facts, "environment": {}})))
    frames = (
        {"filename": inner, "line": 5, "name": "call"},
        {"filename": "/home/user/train.py", "line": 9, "name": "step"},
    )
    assert origins.site(frames).line == line
