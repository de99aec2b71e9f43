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
    """At the pass's end, one row per line whose `copy.deepcopy` copied modules inside of another
    object in a step, and data beside them.
    """

    part = "deep_copies"
    when = "loud, of all steps until then"
    optional = True

    at: At
    name: Annotated[str, doc("class of the object")]
    n: Annotated[int, doc("such calls")] = 0
    us: Annotated[float, doc("time of these calls")] = 0.0
    state: Annotated[int, doc("bytes of the modules' parameters and buffers")] = 0
    bytes: Annotated[int, doc("bytes of tensors and arrays of other shapes than these")]
    all: Annotated[int, doc("steps until then")] = 0
