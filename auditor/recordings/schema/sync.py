"""Rows about what makes the host wait for the device: reads, copies, calls."""

from __future__ import annotations

from typing import Annotated

import msgspec

from auditor.recordings.row import At, Item, MaybeAt, N, PassRow, Row, doc, older


class ReadRow(PassRow, kw_only=True):
    """Reads of a tensor's value on the host: one row per step, place and kind."""

    part = "reads"
    when = "loud, origin; a rehearsal: loud"

    at: At
    kind: Annotated[
        str,
        doc(
            "`item` (scalar read), `check` (whether a linalg function worked), `cpu`, `numpy`, `tolist`, `to_cpu`, `print`, `nonzero`, "
            "`masked_select`, `mask_index`, "
            "`mask_put`, `unique`, `equal`, `bincount`, `repeat_interleave`"
        ),
    ]
    n: N
    us: Annotated[float, doc("host time inside (us)")] = older(0.0)
    span_us: Annotated[float, doc("from the first of them to the last (us)")] = 0.0
    grad: Annotated[
        int, doc("how many of the n had requires_grad (so they certainly came from the model)")
    ] = older(0)
    tensor_device: Annotated[str, doc("where the tensor lay")] = older("")
    lib: Annotated[str, doc("`loader` inside a data loader, else empty")] = older("")
    derived: Annotated[
        int | None,
        doc(
            "in `origin`: how many of the n were computed from parameters or from tensors moved to "
            "the training device; left out where none was asked about"
        ),
    ] = None


class CopyRow(PassRow, kw_only=True):
    """Copies from the host to the device, one row per step, place and kind. Copies to the host are
    `reads`.
    """

    part = "copies"
    when = "CUDA, a rehearsal: loud"

    at: At
    lib: Annotated[str, doc("`loader` inside a data loader, else empty")] = older("")
    pinned: Annotated[bool, doc("the host's side is page-locked")] = older(value=False)
    blocking: Annotated[bool, doc("the host waits")] = older(value=False)
    constant: Annotated[bool, doc("numbers written in Python")] = older(value=False)
    index: Annotated[bool, doc("an array or tensor of the host that indexes one of the device")] = (
        older(value=False)
    )
    loader: Annotated[int | None, doc("number of the loader whose batch it was, or null")] = older(
        None
    )
    rewritten: Annotated[
        bool, doc("a loader's batch was written to on the host after it was copied")
    ] = older(value=True)
    n: N
    bytes: Annotated[int, doc("of all n")]


class DeviceUseRow(PassRow, kw_only=True):
    """How much of a step ran on the shadow device."""

    part = "device_use"
    when = "a rehearsal: loud"

    n: Annotated[int, doc("operators that ran there in the step")]
    tf32_matmul: Annotated[bool, doc("matrix products of float32 may run in TF32")] = older(
        value=False
    )
    tf32_conv: Annotated[bool, doc("convolutions of float32 may run in TF32")] = older(value=True)


class OperandItem(Item, kw_only=True):
    """A tensor that an operator was given or made, or a list of tensors."""

    dtype: Annotated[str, doc("torch's name of its type: `bfloat16`")] = ""
    shape: Annotated[list[int] | None, doc("of a single tensor")] = None
    strides: Annotated[list[int] | None, doc("of a single tensor, in elements")] = None
    sizes: Annotated[list[int] | None, doc("of a list: the elements of each of its tensors")] = None
    host: Annotated[bool, doc("it lies on the host")] = False


class OperatorRow(PassRow, kw_only=True):
    """Operators that ran on the shadow device and start kernels on CUDA: one row per step and
    different call.

    The first row with an `id` describes the call; later ones have `id` and `n` alone.
    """

    part = "operators"
    when = "a rehearsal: loud"

    id: Annotated[int, doc("number of the call; -1: there were too many different ones")]
    n: N
    name: Annotated[
        str,
        doc(
            "with its namespace (`aten::addmm`); of recurrent layers the function (`aten::lstm`), "
            "with `n` operators of the CPU's that it came to; `torch.compile` where the program "
            "gives something to it"
        ),
    ] = ""
    inputs: Annotated[list[OperandItem | None], doc("by position; null for what is no tensor")] = (
        msgspec.field(default_factory=list)
    )
    values: Annotated[
        list[bool | int | list[int] | None],
        doc(
            "by the same positions, of convolutions, norms and attention: whole numbers, flags and "
            "lists of them"
        ),
    ] = msgspec.field(default_factory=list)
    outputs: Annotated[list[OperandItem], doc("what it made; none where it wrote an argument")] = (
        msgspec.field(default_factory=list)
    )


class OperatorOrderRow(PassRow, kw_only=True):
    """The operators of a step in the order in which they ran, and the user's lines they ran for."""

    part = "operator_order"
    when = "a rehearsal: loud"

    ids: Annotated[list[int], doc("numbers of calls in the part `operators`, in order")]
    at: Annotated[
        list[int], doc("the line of each (numbers in `sites`); -1 where no line of the user's is")
    ]
    cut: Annotated[bool, doc("the lists end before the step did")] = False


class LimitRow(Row, kw_only=True):
    """What the shadow device cannot do; the rehearsal ended there."""

    part = "limits"
    when = "a rehearsal"

    at: MaybeAt
    operator: Annotated[str, doc("what was called")]
    reason: Annotated[str, doc("a sentence")]


class CallRow(PassRow, kw_only=True):
    """Calls from user code of functions that manage or wait for the device's memory and queue, per
    step and line.

    `reset_peak_memory_stats`, `reset_accumulated_memory_stats`, `empty_cache`, `synchronize`,
    `memory_stats`, `memory_summary`, `memory_snapshot`, `mem_get_info`, `max_memory_allocated`,
    `memory_allocated`, `memory_reserved`, `max_memory_reserved`, `ipc_collect`, `gc.collect`, and
    `Event.synchronize`, `Stream.synchronize` where the host has something to wait for.
    """

    part = "calls"
    when = "quiet and loud"

    at: At
    name: Annotated[str, doc("of the function")]
    n: N
    us: Annotated[float, doc("host time inside the calls, without waiting for a processor")]
