"""Rows about what makes the host wait for the device: reads, copies, calls."""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import LineRow, MaybeAt, PassRow, Row, doc, older

BURST = 10
"""Times in one step from which it may be a phase (a rollout, an evaluation): a log reads fewer."""


class ReadRow(LineRow, kw_only=True):
    """Reads of a tensor's value on the host: one row per step, place and kind."""

    part = "reads"
    when = "CUDA, a rehearsal: loud"

    passes = ("loud",)

    kind: Annotated[
        str,
        doc(
            "`item` (scalar read), `check` (whether a linalg function worked), `cpu`, `numpy`, `tolist`, `to_cpu`, `print`, `nonzero`, "
            "`masked_select`, `mask_index`, "
            "`mask_put`, `unique`, `equal`, `bincount`, `repeat_interleave`"
        ),
    ]
    span_us: Annotated[float, doc("from the first of them to the last (us)")] = 0.0
    lib: Annotated[str, doc("`loader` inside a data loader, else empty")] = older("")


class CopyRow(LineRow, kw_only=True):
    """Copies from the host to the device, one row per step, place and kind. Copies to the host are
    `reads`.
    """

    part = "copies"
    when = "CUDA, a rehearsal: loud"

    passes = ("loud",)

    us: Annotated[float, doc("not measured")] = 0.0
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
    bytes: Annotated[int, doc("of all n")]


class DeviceUseRow(PassRow, kw_only=True):
    """How much of a step ran on the shadow device."""

    part = "device_use"
    when = "a rehearsal: loud"

    n: Annotated[int, doc("operators that ran there in the step")]


class LimitRow(Row, kw_only=True):
    """What the shadow device cannot do; the rehearsal ended there."""

    part = "limits"
    when = "a rehearsal"

    at: MaybeAt
    operator: Annotated[str, doc("what was called")]
    reason: Annotated[str, doc("a sentence")]


class CallRow(LineRow, kw_only=True):
    """Calls from user code of functions that manage or wait for the device's memory and queue, per
    step and line.

    `reset_peak_memory_stats`, `reset_accumulated_memory_stats`, `empty_cache`, `synchronize`,
    `memory_stats`, `memory_summary`, `memory_snapshot`, `mem_get_info`, `max_memory_allocated`,
    `memory_allocated`, `memory_reserved`, `max_memory_reserved`, `ipc_collect`, `gc.collect`, and
    `Event.synchronize`, `Stream.synchronize` where the host has something to wait for. Waiting for a
    processor is not in their time.
    """

    part = "calls"
    when = "quiet and loud"

    name: Annotated[str, doc("of the function")]
