"""Rows about settings of the program that its data does not fit."""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import MaybeAt, PassRow, doc


class ConvSizesRow(PassRow, kw_only=True):
    """Convolutions of a step on the rehearsed device, and how many of them met a size for the first
    time since the warm-up began.
    """

    part = "conv_sizes"
    when = "loud, of a rehearsal"

    at: MaybeAt
    n: Annotated[int, doc("calls")]
    new: Annotated[int, doc("sizes (of input and weight, with stride and the like) not met before")]
    shape: Annotated[list[int], doc("of the input, at the first of them, which is at `at`")]
    benchmark: Annotated[
        bool, doc("`torch.backends.cudnn.benchmark` was on at all of them, and cuDNN")
    ]
