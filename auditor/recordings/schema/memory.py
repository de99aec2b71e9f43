"""Rows about device memory: whose addresses, and what a step takes with one thing changed."""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import PassRow, doc, older


class OwnerRow(PassRow, kw_only=True):
    """What blocks of device memory are for: at each optimizer's step the addresses of the storages
    of what it owns.

    One row with `what` = `step` stands where a step begins.
    """

    part = "owners"
    when = "a rehearsal: loud; CUDA: memory"

    what: Annotated[
        str, doc("`parameter`, `gradient`, `optimizer state`, `workspace` (cuBLAS), or `step`")
    ]
    time_us: Annotated[
        int, doc("since 1970, as in snapshots: an address serves many purposes one after another")
    ]
    addresses: Annotated[list[int], doc("in ascending order")]


class KeptRow(PassRow, kw_only=True):
    """At the pass's end, one row per variable that held more tensors without a graph, arrays or
    values than at the first step's end, or as many with more bytes.
    """

    part = "kept"
    when = "loud"

    root: Annotated[str, doc("`trainer.py:Trainer.step:self.seen[*]`")]
    file: Annotated[str, doc("where it is filled, absolute")] = older("")
    function: Annotated[str, doc("the function there")] = older("")
    name: Annotated[str, doc("the variable")] = older("")
    path: Annotated[str, doc("from it (`.seen[*]`)")] = older("")
    line: Annotated[int | None, doc("null where not found")] = older(None)
    tensors: Annotated[list[int], doc("held at the end of each step")]
    nbytes: Annotated[list[int], doc("their bytes, likewise")]
    devices: Annotated[list[str], doc("where the last ones lie")] = older([])
    keys: Annotated[
        str,
        doc(
            "of a dictionary whose keys never come again: `tensors`, or `shuffled` for tuples of "
            "the same numbers, put together again each time"
        ),
    ] = older("")
    kind: Annotated[str, doc("`tensors`, `arrays` of NumPy, or `values` (numbers, strings)")] = (
        older("tensors")
    )
