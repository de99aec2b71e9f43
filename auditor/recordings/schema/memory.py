"""Rows about device memory: whose addresses, and what a step takes with one thing changed."""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.schema.base import PassRow, doc


class OwnerRow(PassRow, kw_only=True):
    """What blocks of device memory are for: at each optimizer's step the addresses of the storages
    of what it owns.

    One row with `what` = `step` stands where a step begins.
    """

    part = "owners"
    when = "a rehearsal: warmup and loud; CUDA: memory"

    what: Annotated[
        str, doc("`parameter`, `gradient`, `optimizer state`, `workspace` (cuBLAS), or `step`")
    ]
    time_us: Annotated[
        int, doc("since 1970, as in snapshots: an address serves many purposes one after another")
    ]
    addresses: Annotated[list[int], doc("in ascending order")]


class LeanerRow(PassRow, kw_only=True):
    """One row per step, with one thing changed at a time: the peak of the step in the simulated
    allocator.
    """

    part = "leaner"
    when = "a rehearsal: leaner"

    at: Annotated[int | None, doc("the optimizer's step")]
    what: Annotated[
        str,
        doc(
            "what was changed: nothing (empty), `gradients` (cleared before the step, where the "
            "step itself clears them before "
            "its first backward), `foreach` (optimizers step parameter by parameter)"
        ),
    ]
    changed: Annotated[int, doc("tensors concerned")]
    peak_allocated: Annotated[int, doc("bytes")]
