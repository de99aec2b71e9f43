"""``audit reproduce``: run a training step twice, and say where the runs part and why."""

from __future__ import annotations

import json
import time

from auditor.cli import console, progress_display
from auditor.cli.usage import EXIT_FOUND
from auditor.extensions.reproduce import result, runs
from auditor.runs.plan import Device


def reproduce(
    *,
    target: str,
    steps: int,
    device: Device,
    timeout: float | None,
    against: str,
    form: str,
    quiet: bool,
    args: tuple[str, ...],
) -> int:
    """Compare two runs of a target; returns the exit code."""
    deadline = None if timeout is None else time.monotonic() + timeout
    order = runs.Order(target, args, steps, device, deadline, against)
    say = (lambda text: None) if quiet else (lambda text: console.say(f"{text} ...", err=True))
    counted = progress_display.Steps()
    with progress_display.working("reproduce", lambda: str(counted), quiet=quiet):
        outcome = runs.Runs(order, say, counted).outcome()
    if form == "json":
        console.hand_over(json.dumps(result.content(order, outcome), indent=2), form="json")
    else:
        for line in result.lines(outcome)[: 1 if quiet else None]:
            console.say(line)
    return 0 if outcome.found is None else EXIT_FOUND
