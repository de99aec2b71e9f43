"""Rows by which `audit verify` compares two trials: losses, parameters, and how far these moved."""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import PassRow, doc, older


class LossRow(PassRow, kw_only=True, tag_field="what", tag="loss"):
    """One row for each tensor that a backward was called on, in their order."""

    part = "results"
    when = "trials of `audit verify`: warmup and quiet; a rehearsal: loud"

    value: Annotated[
        str, doc("the number as `float.hex()` (of a loss with several elements their sum)")
    ]
    dtype: Annotated[str, doc("its type")]


class ParameterRow(PassRow, kw_only=True, tag_field="what", tag="parameter"):
    """At the end one row for each parameter of an optimizer that stepped."""

    part = "results"
    when = "the same"

    place: Annotated[str, doc("`optimizer 0, group 0, parameter 3`")]
    name: Annotated[str, doc("`Model.body.weight`, where a module holds it")] = older("")
    value: Annotated[str, doc("its norm in float64, as `float.hex()`")]
    bits: Annotated[
        int | None, doc("sum of the bit patterns as whole numbers, null where torch cannot tell")
    ]
