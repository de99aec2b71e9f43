"""Rows of a drill: the planted fault, and what each step leaves (docs/drill.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import field

from auditor.recordings.row import PassRow, doc


class DrillRow(PassRow, kw_only=True):
    """A moment of a drill: before the first optimizer step of the process (`start`), the fault
    (`planted`), and the end of each step.
    """

    part = "drill"
    when = "drill"

    what: Annotated[Literal["start", "planted", "end"], doc("which moment")]
    weights: Annotated[str, doc("of a `start`: a digest of all weights")] = ""
    place: Annotated[str, doc("of a `planted`: where in the step")] = ""
    bad: Annotated[
        list[str], doc("parameters, optimizer state and buffers that are not finite; 200 at most")
    ] = field(default_factory=list)
    n: Annotated[int, doc("how many there are")] = 0
