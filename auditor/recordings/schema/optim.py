"""Rows about optimizers: clearing, stepping, norms of gradients, updates that half precision
loses.
"""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import LineRow, doc, older


class ZeroGradRow(LineRow, kw_only=True, tag_field="call", tag="zero_grad"):
    """Clearing gradients, per step and line."""

    part = "optimizer"
    when = "loud"

    passes = ("loud",)

    set_to_none: Annotated[bool, doc("else they are filled with zeros")] = older(value=True)
    owner: Annotated[
        str,
        doc(
            "`Optimizer` or `Module`, or `Tensor` for `grad.zero_()` of the user's own that the "
            "next backward adds to"
        ),
    ] = older("Optimizer")
