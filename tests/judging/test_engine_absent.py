"""Why a rule could not look: one sentence for all that have the same reason, whatever part each of
them needed.
"""

from pathlib import Path

import pytest

from auditor.evidence.recorded.lines import Lines
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence
from auditor.recordings.folder import Recording
from auditor.recordings.schema.sync import CallRow
from auditor.rule import NotLooked


class Empty(Recording):
    """A recording without a single part."""

    def __init__(self, device, outcome="completed", **more):
        super().__init__(Path("nowhere"), {"device": device, "outcome": outcome, **more})

    def has(self, part):
        return False


@pytest.mark.parametrize(
    ("recording", "said"),
    [
        (Empty("cpu", "raised"), "the run ended early (raised), before this could be recorded"),
        (Empty("trace", "raised"), "a trace does not show it: audit run records it"),
        (Empty("rehearse"), "only a run on the CPU or on a GPU records what this needs"),
        (Empty("trace"), "a trace does not show it: audit run records it"),
    ],
)
def test_the_reason_is_one_for_all(recording, said):
    reasons = set()
    for table in (Steps, Lines[CallRow]):
        with pytest.raises(NotLooked) as why:
            Evidence(recording).get(table)
        reasons.add(str(why.value))
    assert reasons == {said}
