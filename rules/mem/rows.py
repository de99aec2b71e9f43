"""What probes of MEM rules write, and these rules read."""

from typing import Annotated

from auditor.recordings.row import At, PassRow, doc, older


class EnclosingRow(PassRow, kw_only=True):
    """One row for each different stack of user frames around a backward of the step."""

    part = "enclosing"
    when = "loud"

    lines: Annotated[list[int], doc("numbers of `sites`, innermost first")]


class HooksRow(PassRow, kw_only=True):
    """At the pass's end, one row for each line that registered hooks in a step which are still there."""

    part = "hooks"
    when = "loud"

    at: At
    n: Annotated[int, doc("hooks that are left")]
    steps: Annotated[int, doc("steps that left one, at most on one module or tensor")]
    all: Annotated[int, doc("steps until then; 0: unknown")] = older(0)


class DifferencesRow(PassRow, kw_only=True):
    """A subtraction of all pairs of rows of which only sums over the last dimension are used."""

    part = "differences"
    when = "numbers"

    at: At
    kind: Annotated[str, doc("what was summed: `squares` or `absolute` values")]
    size: Annotated[int, doc("of the last dimension")] = older(0)
    bytes: Annotated[int, doc("of the differences")]
    graph: Annotated[bool, doc("whether their graph was recorded")]


class LeanerRow(PassRow, kw_only=True):
    """One row per step, one thing changed at a time: the peak in the simulated allocator."""

    part = "leaner"
    when = "a rehearsal: leaner"
    why_absent = (
        "steps with one thing changed are only taken in a rehearsal, and this recording has none"
    )
    of_rehearsals = True

    at: Annotated[int | None, doc("the optimizer's step")]
    what: Annotated[
        str,
        doc(
            "what was changed: nothing (empty), `gradients` (cleared before the step, where the "
            "step itself clears them before "
            "its first backward), `foreach` (optimizers step parameter by parameter), `largest` "
            "(loaders give the largest batch of an epoch, on a card without a limit)"
        ),
    ]
    changed: Annotated[int, doc("tensors concerned; batches that the largest is of")]
    peak_allocated: Annotated[int, doc("bytes")]
    capacity: Annotated[int, doc("bytes of the card that an allocator can have")] = older(0)
