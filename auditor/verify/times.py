"""Step times of a recording's quiet pass as they are compared: what the machine's other work took is left out where it is known."""

from __future__ import annotations

from auditor.evidence.steps import Steps
from auditor.recording import Recording


def quiet_us(recording: Recording) -> tuple[float, ...]:
    """Times of the quiet steps in us, in order; empty where the recording holds none.

    Where the host's clock timed them, the time that the step's thread was ready and something else had the processor
    (``queued_us``) is taken off: on a shared machine it doubled the median of single runs of the same program
    (docs/verified.md). Device events are not held up by it.
    """
    if recording.manifest.get("device") == "rehearse" or not recording.has("steps"):
        return ()
    steps = Steps.build(recording).quiet
    if recording.manifest.get("device") == "cuda":
        return tuple(step.us for step in steps)
    return tuple(max(step.us - step.queued_us, 1e-3) for step in steps)
