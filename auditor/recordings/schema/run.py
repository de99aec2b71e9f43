"""Rows about the run itself: places, steps and times, whether it trains, compilers, probes."""

from typing import Annotated, TypedDict

import msgspec
from msgspec import UNSET, UnsetType

from auditor.recordings.row import At, MaybeAt, N, PassRow, Row, Us, doc, older


class CompileRow(PassRow, kw_only=True):
    """One thing that the compiler said of its work."""

    part = "compiles"
    when = "all passes"

    what: Annotated[
        str,
        doc(
            "`compile`: a frame was compiled; `backward`: its backward was compiled; `break`: its "
            "graph was broken; `recompile`: a guard failed and the frame is compiled again; "
            "`limit`: the frame is not compiled any more and runs eagerly"
        ),
    ]
    at: MaybeAt = None
    function: Annotated[str, doc("the function that is compiled, or goes on after a break")] = ""
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
    """What became in a pass of something given to ``torch.compile``, if known."""

    part = "region_runs"
    when = "all passes"

    number: Annotated[int, doc("that of its row in `regions`")]
    steps: Annotated[int, doc("steps of the pass in which it ran")] = 0
    trained: Annotated[bool, doc("it is a module whose parameters were written in place")] = False
    called: Annotated[bool, doc("it has run since it was created, in a step or outside")] = False
    dropped: Annotated[bool, doc("the result of `torch.compile` is not kept")] = False


class SiteRow(Row, kw_only=True):
    """A place in the source: the innermost user frame of an event."""

    part = "sites"

    id: Annotated[int, doc("its number, which rows of other parts name")]
    file: Annotated[str, doc("absolute")]
    line: Annotated[int, doc("from 1")]
    function: Annotated[str, doc("qualified name")]
    opcode: Annotated[
        str | None,
        doc(
            "name of the bytecode instruction at that moment (`CALL`, `POP_JUMP_IF_FALSE` …), "
            "empty if unknown"
        ),
    ] = None
    first_line: Annotated[int | None, doc("span of the instruction, if known (3.11+)")] = None
    end_line: Annotated[int | None, doc("end of the span")] = None
    col: Annotated[int | None, doc("0-based UTF-8 byte offset, as in `ast`")] = None
    end_col: Annotated[int | None, doc("0-based UTF-8 byte offset of the end")] = None
    via: Annotated[
        str | None, doc("library frame between: `torch/nn/utils/clip_grad.py:clip_grad_norm_`")
    ] = None


class Counters(TypedDict, total=False):
    """Counters of the device's allocator, as a step's row has them; none where it keeps none."""

    allocated: int
    reserved: int
    peak_allocated: int
    peak_reserved: int
    retries: int
    ooms: int


Counter = int | UnsetType
"""A number that is there or left out, and never null."""


def known(counter: Counter) -> int | None:
    """The number; None if the row leaves it out."""
    return None if isinstance(counter, UnsetType) else counter


class StepRow(PassRow, kw_only=True):
    """One completed step. Counters of CUDA's allocator, or of the simulated one if rehearsed."""

    part = "steps"
    when = "all passes"

    us: Annotated[float, doc("the step's time; by the host clock (see `device_times`)")]
    host_us: Annotated[float, doc("the step's time by the host clock")] = older(0.0)
    start_us: Annotated[float, doc("since the recording began")] = older(0.0)
    unix_us: Annotated[float, doc("since the epoch: the clock of memory snapshots")] = older(0.0)
    gc_us: Annotated[float, doc("time in garbage collections in the step, all kinds")] = older(0.0)
    queued_us: Annotated[
        float,
        doc(
            "time that the step's thread was ready to run while something else had the processor "
            "(Linux; else 0), never more than `host_us` (in recordings of version 0.1 it could be)"
        ),
    ] = older(0.0)
    rss: Annotated[Counter, doc("resident host memory after the step (bytes)")] = UNSET
    allocated: Annotated[Counter, doc("device memory in tensors after the step (bytes)")] = UNSET
    reserved: Annotated[Counter, doc("bytes reserved after the step, cache included")] = UNSET
    peak_allocated: Annotated[Counter, doc("the most so far that was allocated")] = UNSET
    peak_reserved: Annotated[Counter, doc("the most so far that was reserved")] = UNSET
    retries: Annotated[Counter, doc("times so far that cache went back to the device")] = UNSET
    ooms: Annotated[Counter, doc("out-of-memory errors so far")] = UNSET
    compiles: Annotated[int, doc("frames, and their backwards, compiled in the step")] = 0


class DeviceTimeRow(PassRow, kw_only=True):
    """The time between the device events at the step's boundaries, written at the pass's end."""

    part = "device_times"
    when = "CUDA"

    us: Annotated[float, doc("replaces `us` of `steps`, which is the host's until then")]


class TrainingRow(PassRow, kw_only=True):
    """One row at the end: whether the target trains. Warm-up is watched only without a sign."""

    part = "training"

    sign: Annotated[
        str,
        doc(
            "the first sign that the target trains: `optimizer` (it stepped), `backward` (a call "
            "into the autograd engine), `parameters` (one changed or was replaced since the "
            "warm-up, or a CUDA graph lives); empty if none was seen"
        ),
    ]
    watched: Annotated[int, doc("steps that were watched")] = older(0)
    operators: Annotated[int, doc("operators of torch that ran in the watched steps")] = older(0)
    graphs: Annotated[int, doc("operators with gradients on, of inputs that need them")] = older(0)


class LapseRow(PassRow, kw_only=True):
    """One row for each probe that failed, when it did.

    A rule that found nothing in these parts is *skipped*, not *clean*. The part is absent where
    none failed.
    """

    part = "lapses"

    probe: Annotated[str, doc("its name")]
    parts: Annotated[list[str], doc("what it did not see all of")]
    error: Annotated[str, doc("what happened")]


class TorchWarningRow(PassRow, kw_only=True):
    """A warning of torch's own, per step, line and text."""

    part = "torch_warnings"
    when = "warmup, quiet, loud"
    optional = True

    at: At
    name: Annotated[str, doc("which: a name of `auditor.capture.probes.step.torch_warnings.TEXTS`")]
    text: Annotated[str, doc("its text, at most 400 characters")]
    n: N


class ModuleRow(PassRow, kw_only=True):
    """When the pass is over: one row for each module that was called, without those inside it; the
    one without a name is all that no module does.
    """

    part = "modules"
    when = "loud, numbers"

    name: Annotated[str, doc("class of the outermost module and the path below: `Net.layers.0`")]
    kind: Annotated[str, doc("its class")] = ""
    at: Annotated[int | None, doc("its `forward`, else what calls it: a number in `sites`")] = None
    steps: Annotated[int, doc("steps that were followed; counts are of all of them")] = 0
    us: Annotated[float, doc("(loud, CPU) its forward, median of all steps but the first")] = 0.0
    backward_us: Annotated[float, doc("(loud, CPU) of its backward, likewise")] = 0.0
    saved_bytes: Annotated[int, doc("(loud) storages kept for a backward of the first step")] = 0
    tokens: Annotated[
        int, doc("(loud) ids of two dimensions whose embeddings it reads one by one")
    ] = 0
    flops: Annotated[int, doc("(numbers) operations by `torch.utils.flop_counter`")] = 0
    backward_flops: Annotated[int, doc("(numbers) those of the backward")] = 0
    types: Annotated[dict[str, int], doc("(numbers) both by the type they were computed in")] = (
        msgspec.field(default_factory=dict)
    )
