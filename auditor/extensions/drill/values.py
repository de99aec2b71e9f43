"""A NaN or an infinity was planted: what stopped it, and how far did it come?"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from auditor.extensions.drill.log import (
    Log,
    Observation,
    bad,
    count,
    good,
    listed,
    note,
    of_kind,
)
from auditor.recordings.schema.drill import (
    DrillBackwardRow,
    DrillEndRow,
    DrillForwardRow,
    DrillInjectedRow,
    DrillOptimizerRow,
    DrillRow,
    DrillSaveRow,
    DrillSkippedRow,
    DrillStateRow,
)

NAMES_IT = re.compile(
    r"\bnan\b|\binf\b|infinit|finite|overflow|diverg|explod|invalid", re.IGNORECASE
)
"""Words with which a guard says what it saw."""

KINDS = {"parameters": "parameter", "state": "optimizer state", "buffers": "buffer"}


def judge(value: str, undisturbed: Log, log: Log) -> Iterator[Observation]:
    """Observations in the order of events. ``value`` is ``NaN`` or ``infinity``; ``log`` has its
    fault.
    """
    assert log.injected is not None
    yield from _planted(value, log.injected)
    yield from _losses(log, log.injected.step)
    yield from _guarded(undisturbed, log, log.injected.step)
    yield from _reached(value, undisturbed, log)
    yield from _saved(value, undisturbed, log)
    yield from _went_on(log, log.injected.step)


def _planted(value: str, fault: DrillInjectedRow) -> Iterator[Observation]:
    shape = (
        f" (shape {fault.shape}, {str(fault.dtype).removeprefix('torch.')})"
        if fault.shape is not None
        else ""
    )
    yield note(
        f"{'A NaN' if value == 'NaN' else 'An infinity'} was put into {fault.place}{shape} at "
        f"step {fault.step}."
    )


def _losses(log: Log, step: int) -> Iterator[Observation]:
    known = [
        (event.step, float(event.loss))
        for event in of_kind(log.after, DrillBackwardRow)
        if event.loss is not None
    ]
    losses = [loss for _, loss in known]
    here = [loss for number, loss in known if number == step]
    if log.injected is not None and log.injected.where == "gradient":
        return
    if here and not math.isfinite(here[0]):
        yield note(f"The loss of step {step} was {here[0]}, and backward ran on it.")
    elif here and all(map(math.isfinite, losses)):
        yield note(
            f"It reached no loss: that of step {step} was {here[0]:.6g}. What follows says little "
            "about a guard."
        )
    elif not here:
        yield note(f"No backward ran on step {step} after that.")


def _guarded(undisturbed: Log, log: Log, step: int) -> Iterator[Observation]:
    """What stood between the value and the optimizer."""
    update = next(iter(of_kind(log.after, DrillOptimizerRow)), None)
    if of_kind(_until(log, update), DrillSkippedRow):
        yield good(f"GradScaler skipped the update of step {step}.")
    elif update is not None and update.n:
        yield note(
            f"No guard stopped it: at step {update.step} the optimizer stepped with a gradient "
            f"that was not finite in {update.n} of {update.fed} parameters ({listed(update.bad)})."
        )
    elif update is not None and not _skipped(undisturbed, log, update, step):
        yield good(f"The optimizer stepped at step {update.step} with finite gradients only.")
    elif log.error is None:
        yield good(f"The update of step {step} was left out.")
    if log.error is not None:
        yield from _stopped(log)


def _until(log: Log, update: DrillRow | None) -> tuple[DrillRow, ...]:
    return log.after if update is None else log.after[: log.after.index(update)]


def _skipped(undisturbed: Log, log: Log, update: DrillRow, step: int) -> bool:
    """True if the step ended before that update, or took another batch first (in a script, the
    update ends the step).
    """
    if of_kind(_until(log, update), DrillEndRow):
        return True
    forwards = [
        sum(event.step == step for event in run.of(DrillForwardRow)) for run in (undisturbed, log)
    ]
    return update.step == step and forwards[0] < forwards[1]


def _stopped(log: Log) -> Iterator[Observation]:
    step = (log.error or {}).get("step")
    last = log.after[-1].step if log.after else step
    yield good(f"The trainer stopped at step {last} with {log.said}.")
    if not NAMES_IT.search(str((log.error or {}).get("message", ""))):
        yield note("That message does not say that a value was not finite.")


def _reached(value: str, undisturbed: Log, log: Log) -> Iterator[Observation]:
    """Where the value lies after steps, apart from where one lies without it, too (a mask of
    infinities).
    """
    known = {
        name
        for event in undisturbed.of(DrillEndRow)
        for names in event.bad.values()
        for name in names
    }
    states = of_kind(log.after, DrillStateRow)
    if not any(_new(event, kind, known) for event in states for kind in KINDS):
        if states:
            yield good(f"The {value} reached no parameter, no optimizer state and no buffer.")
        return
    for kind, noun in KINDS.items():
        first = next((event for event in states if _new(event, kind, known)), None)
        if first is None:
            continue
        names = _new(first, kind, known)
        many = (
            count(len(names), noun)
            if kind != "parameters"
            else f"{len(names)} of {first.parameters} parameters"
        )
        brief = f"the {value} reached {many} at step {first.step}"
        where = f"T{brief[1:]} ({listed(names)})"
        if _new(states[-1], kind, known):
            said = kind == "state" and bool(_new(states[-1], "parameters", known))
            yield bad(f"{where}, and it stayed.", "" if said else brief)
        else:
            yield note(f"{where}, and was gone at the end.")


def _new(event: DrillStateRow, kind: str, known: set[str]) -> list[str]:
    return [name for name in event.bad.get(kind, ()) if name not in known]


def _saved(value: str, undisturbed: Log, log: Log) -> Iterator[Observation]:
    known = {name for event in undisturbed.of(DrillSaveRow) for name in event.bad}
    saves = of_kind(log.after, DrillSaveRow)
    poisoned = [(event, [name for name in event.bad if name not in known]) for event in saves]
    held = [(event, names) for event, names in poisoned if names]
    if held:
        event, names = held[0]
        paths = list(dict.fromkeys(each.path for each, _ in held))
        more = (
            f" So {'does' if len(paths) == 2 else 'do'} {listed(paths[1:])}."
            if len(paths) > 1
            else ""
        )
        yield bad(
            f"Checkpoint {event.path}, saved at step {event.step}, holds it in {len(names)} of "
            f"{event.tensors} tensors ({listed(names)}).{more}",
            f"checkpoint{'s' * (len(paths) > 1)} {listed(paths)} hold{'s' * (len(paths) == 1)} it",
        )
    clean = [event.path for event, names in poisoned if not names]
    if clean:
        yield good(
            f"{count(len(clean), 'checkpoint')} saved after it "
            f"{'is' if len(clean) == 1 else 'are'} finite: {listed(clean)}."
        )
    elif not saves:
        yield note("No checkpoint was saved after it within the drill's steps.")


def _went_on(log: Log, step: int) -> Iterator[Observation]:
    later = [number for number in log.ends if number > step]
    if len(later) < 2 or log.error is not None or log.ends[max(later)].counts.get("parameters"):
        return
    updates = {event.step for event in of_kind(log.after, DrillOptimizerRow) if not event.n} & set(
        later
    )
    if not updates:
        yield bad(
            f"None of the {len(later)} steps after it updated the parameters with finite "
            "gradients: something carries it on.",
            f"no later step trained (the {len(later)} after it)",
        )
    else:
        yield good(
            f"Training went on: {len(updates)} of the {len(later)} steps after it updated the "
            "parameters."
        )
