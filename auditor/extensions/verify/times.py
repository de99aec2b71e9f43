"""Step times of a recording's quiet pass as they are compared: what the machine's other work took
is left out where it is known.
"""

from __future__ import annotations

from auditor.evidence.recorded.steps import Steps, queued_share
from auditor.evidence.table import Evidence
from auditor.extensions.verify.intervals import Run


def quiet_run(evidence: Evidence) -> Run:
    """The quiet steps in order; without any where the recording holds none.

    Where the host's clock timed them, the time that the step's thread was ready and something else
    had the processor (``queued_us``) is taken off, and its share is how busy the machine was: on a
    shared machine that wait multiplied the median of single runs of the same program by up to four
    (docs/compare.md). Device events are not held up by it.
    """
    if evidence.recording.device.simulated or not evidence.has("steps"):
        return Run(())
    steps = evidence.get(Steps).quiet
    before = sum(
        each["steps"]
        for each in evidence.recording.manifest.get("passes") or ()
        if each["name"] == "warmup"
    )
    return Run(tuple(max(step.own_us, 1e-3) for step in steps), queued_share(steps), before)
