"""An out-of-memory error was raised: was the step retried rightly, dropped, or its handling itself
an error?
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from auditor.extensions.drill.log import (
    Log,
    Observation,
    bad,
    count,
    first_difference,
    good,
    listed,
    note,
    of_kind,
)
from auditor.recordings.schema.drill import (
    DrillBackwardRow,
    DrillForwardRow,
    DrillInjectedRow,
    DrillOptimizerRow,
    DrillSaveRow,
)

TWICE = re.compile(r"backward through the graph a second time", re.IGNORECASE)


def judge(undisturbed: Log, log: Log) -> Iterator[Observation]:
    """Observations in the order of events; ``log`` has its fault."""
    fault = log.injected
    assert fault is not None
    yield note(f"torch.OutOfMemoryError was raised at step {fault.step} {fault.place}.")
    if log.error is not None:
        yield from _ended(log, fault)
        return
    here = [event for event in log.after if event.step == fault.step]
    again = of_kind(here, DrillBackwardRow)
    forwards = of_kind(here, DrillForwardRow)
    if not of_kind(here, DrillOptimizerRow):
        yield from _dropped(undisturbed, log, fault)
        return
    yield from _retried(undisturbed, log, fault, forwards, again)
    if any(forward.handling for forward in forwards) or any(each.handling for each in again):
        yield note(
            "The retry ran inside the except block: the exception's traceback keeps the failed "
            "attempt's tensors alive "
            "until that block is left, so a real retry has less memory than the first attempt."
        )
    yield from _compared(undisturbed, log, fault)


def _ended(log: Log, fault: DrillInjectedRow) -> Iterator[Observation]:
    assert log.error is not None
    if log.error.get("type") != "OutOfMemoryError":
        why = ""
        if TWICE.search(str(log.error.get("message", ""))):
            why = (
                ": backward was called again on the graph of the failed attempt, whose buffers the "
                "first call had freed"
            )
        yield bad(
            f"Handling it raised another error at step {fault.step}, {log.said}{why}.",
            f"its handler raised {log.said}{why}",
        )
    else:
        yield note("Nothing retried the step: the error ended the run.")
    saves = [event for event in log.of(DrillSaveRow) if not event.n]
    later = [event.path for event in of_kind(log.after, DrillSaveRow) if not event.n]
    if later:
        yield good(f"Before it ended, a checkpoint was saved: {listed(later)}.")
    elif saves:
        lost = fault.step - saves[-1].step - 1
        yield bad(
            f"The run ended, and its newest checkpoint is {saves[-1].path} of step "
            f"{saves[-1].step}: {_lost(lost)}.",
            _lost(lost),
        )
    else:
        yield bad(f"The run ended without any checkpoint: {_lost(fault.step)}.", _lost(fault.step))


def _lost(steps: int) -> str:
    return (
        f"{count(steps, 'completed step')} {'is' if steps == 1 else 'are'} lost"
        if steps > 0
        else "no completed step is lost"
    )


def _dropped(undisturbed: Log, log: Log, fault: DrillInjectedRow) -> Iterator[Observation]:
    yield note(f"Step {fault.step} was not retried: its batch was dropped.")
    backwards = of_kind(log.after, DrillBackwardRow)
    following = next((event for event in backwards if event.step > fault.step), None)
    if following is not None and not _cleared(undisturbed, following):
        yield bad(
            "The gradients of the failed attempt were not cleared: the next backward, at step "
            f"{following.step}, added to what {count(following.held, 'parameter')} still held.",
            "gradients of the failed attempt were not cleared",
        )
    elif following is not None:
        yield good(f"Training went on with clean gradients at step {following.step}.")


def _cleared(undisturbed: Log, backward: DrillBackwardRow) -> bool:
    """The gradients held nothing, or just what those of an undisturbed run hold at such a moment
    (accumulation).
    """
    known = {event.gradients for event in undisturbed.of(DrillBackwardRow)}
    return not backward.held or backward.gradients in known


def _retried(
    undisturbed: Log,
    log: Log,
    fault: DrillInjectedRow,
    forwards: Sequence[DrillForwardRow],
    again: Sequence[DrillBackwardRow],
) -> Iterator[Observation]:
    inputs = [
        event.input for event in of_kind(log.before, DrillForwardRow) if event.step == fault.step
    ]
    after = [event.input for event in forwards]
    passes = (DrillForwardRow, DrillBackwardRow)
    first = next((event for event in log.after if isinstance(event, passes)), None)
    if isinstance(first, DrillBackwardRow):
        yield bad(
            "Backward was called again without a fresh forward: on the graph of the failed attempt."
        )
    elif inputs and inputs[-1] in after:
        yield good("The step was retried with a fresh forward of the same batch.")
    elif after:
        yield note("The step went on with another batch: the one that failed was dropped.")
    if again and not _cleared(undisturbed, again[0]):
        yield bad(
            f"The gradients were not cleared before the retry: {count(again[0].held, 'parameter')} "
            "still held what the failed backward had added, so the update mixed two attempts.",
            "gradients were not cleared before the retry",
        )
    elif again:
        yield good("The gradients were clean when the retry's backward began.")
    updates = [
        sum(event.step == fault.step for event in run.of(DrillOptimizerRow))
        for run in (undisturbed, log)
    ]
    if updates[1] > updates[0] > 0:
        yield bad(
            f"The optimizer stepped {count(updates[1], 'time')} in step {fault.step}, and "
            f"{updates[0]} when undisturbed."
        )


def _compared(undisturbed: Log, log: Log, fault: DrillInjectedRow) -> Iterator[Observation]:
    """Against the run beside it: same seeds, same steps, no error."""
    apart = first_difference(undisturbed, log, fault.step)
    if apart is not None:
        yield note(
            f"Even undisturbed, two runs of this target differ from step {apart} on (it is not "
            "seeded?), so the result of the retry was not compared."
        )
        return
    steps = sorted(undisturbed.ends.keys() & log.ends.keys())
    later = [step for step in steps if step >= fault.step]
    if not later:
        return
    last = later[-1]
    unequal = first_difference(undisturbed, log, last + 1)
    losses = (
        f"the loss of step {last} is {log.losses.get(last, 0):.6g}, undisturbed "
        f"{undisturbed.losses.get(last, 0):.6g}"
    )
    if unequal is None:
        yield good(
            "All parameters and optimizer states equal those of the undisturbed run bit for bit, "
            f"after step {fault.step} and up to step {last}; {losses}."
        )
    elif undisturbed.ends[unequal].random != log.ends[unequal].random:
        yield note(
            f"From step {unequal} on the parameters differ from the undisturbed run's, as they "
            f"may: the retry drew new random numbers (dropout) or another batch; {losses}."
        )
    elif _same_batches(undisturbed, log, unequal):
        yield bad(
            f"From step {unequal} on the parameters differ from the undisturbed run's on the same "
            f"batches; {losses}."
        )
    else:
        yield note(
            f"From step {unequal} on the parameters differ from the undisturbed run's: the batches "
            f"do, too; {losses}."
        )


def _same_batches(undisturbed: Log, log: Log, step: int) -> bool:
    """True if the last forward of the step saw the same input in both."""
    last = [
        [event.input for event in run.of(DrillForwardRow) if event.step == step][-1:]
        for run in (undisturbed, log)
    ]
    return last[0] == last[1]
