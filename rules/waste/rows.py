"""What probes of WASTE rules write, and these rules read."""

from typing import Annotated

from auditor.recordings.row import At, PassRow, doc


class EqualCallsRow(PassRow, kw_only=True):
    """At the pass's end, one row per place at which a step, with gradients off, called a module again
    and again that was given the same and returned the same.
    """

    part = "equal_calls"
    when = "loud, of all steps until then"
    optional = True

    lines: Annotated[list[int], doc("the lines around the calls, outermost first, in `sites`")]
    module: Annotated[str, doc("its class")]
    n: Annotated[int, doc("calls in one step")]
    looked: Annotated[int, doc("of them those whose inputs and results were compared")]
    us: Annotated[float, doc("time of the calls after the first")]
    block_us: Annotated[float, doc("time with gradients off around them, in that step")]
    steps: Annotated[int, doc("steps that turned gradients off there")] = 0
    all: Annotated[int, doc("steps until then")] = 0


class DeepCopyRow(PassRow, kw_only=True):
    """At the pass's end, one row per line that deep-copies parameters in a step, and with them data
    that was copied before and has not changed since.
    """

    part = "deep_copies"
    when = "loud, of all steps until then"
    optional = True

    at: At
    n: Annotated[int, doc("copies")] = 0
    again: Annotated[int, doc("of them those after the first")] = 0
    nbytes: Annotated[int, doc("of all tensors, in these")] = 0
    unchanged: Annotated[
        int, doc("of tensors that are no parameters or buffers and did not change, in these")
    ] = 0
    name: Annotated[str, doc("the attribute with the largest of them, where it is one")] = ""
    us: Annotated[float, doc("time of all copies")] = 0.0
    all: Annotated[int, doc("steps until then")] = 0
