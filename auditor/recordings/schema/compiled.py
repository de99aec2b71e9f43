"""Rows about ``torch.compile``."""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import MaybeAt, PassRow, Us, doc, older


class CompileRow(PassRow, kw_only=True):
    """One thing that the compiler said of its work."""

    part = "compiles"
    when = "all passes"

    what: Annotated[
        str,
        doc(
            "`compile`: a frame was compiled; `backward`: the backward of one; `break`: its graph "
            "was broken; `recompile`: it is compiled anew, since a guard failed; `limit`: it is "
            "compiled no more, and runs eagerly"
        ),
    ]
    at: MaybeAt = None
    function: Annotated[
        str, doc("the function that is compiled; of one that goes on after a break, that function")
    ] = ""
    frame: Annotated[str, doc("the compiler's number of the frame")] = ""
    attempt: Annotated[int, doc("how often the frame was compiled before")] = 0
    reason: Annotated[str, doc("of a break why, of a recompile the guard that failed")] = ""
    resumed: Annotated[
        int | None,
        doc(
            "of a break the line of the compiled function at which its graph ends, of a function "
            "that goes on after one that line: a number in `sites`"
        ),
    ] = None
    lost: Annotated[
        bool, doc("of a break: no graph can end there, and the whole function is left to Python")
    ] = False
    gb: Annotated[str, doc("of a break: the compiler's code of the reason, as `gb0059`")] = ""
    own: Annotated[bool, doc("the place that the compiler named is in the user's source")] = False
    us: Us = 0.0


class RegionRow(PassRow, kw_only=True):
    """A call of ``torch.compile`` by the user's program, also before the first step."""

    part = "regions"
    when = "all passes"

    number: Annotated[int, doc("how many calls were before it")] = older(-1)
    at: MaybeAt = None
    what: Annotated[str, doc("name of the function or class that is compiled")] = ""
    in_step: Annotated[bool, doc("it was called inside a step")] = False
    options: Annotated[str, doc("its keyword arguments, as they would be written")] = ""
    method: Annotated[bool, doc("`Module.compile()`: the module calls the compiler itself")] = False
    torchs: Annotated[bool, doc("the `forward` of the module is one of torch's own")] = False
    us: Us = 0.0


class RegionRunRow(PassRow, kw_only=True):
    """What became in a pass of something that was given to ``torch.compile``. Only written where it
    is known whether it ran.
    """

    part = "region_runs"
    when = "all passes"

    number: Annotated[int, doc("that of its row in `regions`")]
    steps: Annotated[int, doc("steps of the pass in which it ran")] = 0
    trained: Annotated[
        bool, doc("it is a module, whose parameters were written to in place in the pass")
    ] = False
    called: Annotated[bool, doc("it ran since it was made, in a step or outside of one")] = False
    dropped: Annotated[bool, doc("nobody holds what `torch.compile` gave")] = False
