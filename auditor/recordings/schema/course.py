"""Rows that a rehearsal and a run on the null device have alike: which way a step went, and what
the device was asked for on each line.
"""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import MaybeAt, N, PassRow, doc


class CourseRow(PassRow, kw_only=True):
    """The way that a step took, by the lines whose operators ran on the device.

    Written by a rehearsal and by the run on the null device beside it, so that they can be
    compared.
    """

    part = "course"
    when = "a rehearsal with a null device beside it: loud; null device: all"

    global_step: Annotated[int, doc("of the run, warm-up included")]
    places: Annotated[
        list[int], doc("lines in order (numbers in `sites`), each once for operators in a row")
    ]
    read_at: Annotated[list[int], doc("lines of scalar reads in order")]
    read: Annotated[list[str], doc("what they gave, as Python writes it")]
    sized: Annotated[
        list[int], doc("lines of operators whose result has a size that depends on values")
    ]
    answered: Annotated[int, doc("null device: reads that got the rehearsal's value")] = 0
    cut: Annotated[bool, doc("the lists end before the step did")] = False


class DeviceWorkRow(PassRow, kw_only=True):
    """What the null device was asked for on a line in a step, by its own log."""

    part = "device_work"
    when = "null device: loud"

    at: MaybeAt
    n: N
    launches: Annotated[int, doc("kernels, those of libraries included")]
    waits: Annotated[int, doc("calls that made the host wait for the device")]
    calls: Annotated[list[str], doc("their names, each once: `cudaStreamSynchronize`")]
