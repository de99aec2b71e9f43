"""Rows about optimizers: clearing, stepping, norms of gradients, updates that half precision
loses.
"""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import At, N, PassRow, doc, older


class ZeroGradRow(PassRow, kw_only=True, tag_field="call", tag="zero_grad"):
    """Clearing gradients, per step and line."""

    part = "optimizer"
    when = "loud"

    at: At
    set_to_none: Annotated[bool, doc("else they are filled with zeros")] = older(value=True)
    n: N
    us: Annotated[float, doc("host time inside (us)")] = older(0.0)
    owner: Annotated[
        str,
        doc(
            "`Optimizer` or `Module`, or `Tensor` for `grad.zero_()` of the user's own that the "
            "next backward adds to"
        ),
    ] = older("Optimizer")
