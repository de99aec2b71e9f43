"""What probes of KERN rules write, and these rules read."""

from typing import Annotated

from auditor.recordings.row import At, PassRow, doc, older


class PiecewiseRow(PassRow, kw_only=True):
    """Per step, a row per Python loop over pieces of a tensor, its values, or parameters."""

    part = "piecewise"
    when = "numbers"

    at: At
    op: Annotated[str, doc("the operator that is given the pieces")]
    n: Annotated[int, doc("turns")]
    operators: Annotated[int, doc("from the first to the last of these")]
    all: Annotated[int, doc("operators of the step outside the backward")]
    elements: Annotated[int, doc("of a piece at most")]
    kind: Annotated[str, doc("`pieces`, `masks` or `parameters`")] = older("pieces")
    cut: Annotated[int | None, doc("the user's own line that cut the pieces")] = older(None)


class ModuleLoopRow(PassRow, kw_only=True):
    """Per step, a row for calls of one module by one line, each with a piece of one tensor."""

    part = "turns"
    when = "numbers"

    lines: Annotated[list[int], doc("lines inside the calling module, outermost first, in `sites`")]
    module: Annotated[str, doc("its class")]
    recurrent: Annotated[
        bool, doc("a cell of torch's, and its state was what the call before returned")
    ] = older(value=False)
    n: Annotated[int, doc("calls")]
    elements: Annotated[int, doc("of the largest tensor that a call was given")]
    us: Annotated[float, doc("time inside the calls, under the pass's watches")]
    step_us: Annotated[float, doc("time of the step outside its backward calls, under these")]
