"""Rows about optimizers: clearing, stepping, norms of gradients, updates that half precision
loses.
"""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import LineRow, MaybeAt, PassRow, doc, older


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


class CensusRow(PassRow, kw_only=True):
    """State of modules and optimizers that is lost, or that changes although it should not, or does
    not although it should: one row for each line, once that is known.
    """

    part = "census"
    when = "all"

    at: MaybeAt
    kind: Annotated[
        str,
        doc(
            "`remade` (an optimizer over what an equal one had stepped), `unread` (a loaded state "
            "that no step reads), `untied` (two weights that were one), `norm` (a frozen batch norm "
            "whose statistics move), `dropout` (in an evaluation in eval mode), `alias` (a network "
            "that is the trained one), `stale` (an optimizer beside the one whose rate a scheduler "
            "sets, which no longer steps)"
        ),
    ]
    name: Annotated[str, doc("the class, function or name of what it is of")]
    other: Annotated[
        str, doc("`untied`: the other weight; `alias`: the trained name; `stale`: the optimizer")
    ] = older("")
    n: Annotated[int, doc("how often, or how many tensors")] = older(0)
    steps: Annotated[int, doc("on how many steps")] = older(0)
    other_at: Annotated[
        int | None,
        doc(
            "`untied`: where they were tied; `unread`: where it was loaded; `norm`: where it runs; "
            "`stale`: where the scheduler steps"
        ),
    ] = older(None)
    meant: Annotated[bool, doc("it may be on purpose")] = older(value=False)
