"""Rows of one run of ``audit reproduce``: operators in order, what they led to, and what no seed of
the program fixes (docs/reproduce.md).
"""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import MaybeAt, PassRow, doc

Digest = Annotated[
    str, doc("sixteen hexadecimal digits that differ where any bit, shape or dtype does")
]
Inputs = Annotated[list[int], doc("numbers of the operators that made its inputs")]


class ReproduceRow(PassRow, kw_only=True, tag_field="what"):
    """Of a run of `audit reproduce`, from the import of torch on; what comes before the first
    recorded step has the pass `warmup`.
    """

    part = "reproduce"
    when = "reproduce"


class ReproduceOperatorRow(ReproduceRow, kw_only=True, tag="operator"):
    """An operator has run, or a loader has given a batch. Views and reads on the host have no
    row.
    """

    number: Annotated[int, doc("which operator of the run it is, from 0")]
    at: MaybeAt
    name: Annotated[str, doc("`aten::mul`, or `DataLoader` for a batch")]
    digest: Annotated[
        str, doc("of all that it made or wrote; empty where part of that was never written")
    ]
    inputs: Inputs
    numbers: Annotated[str, doc("its arguments that are no tensors")] = ""
    generator: Annotated[
        str, doc("of one that draws: `default`, or `own` for one that it was given")
    ] = ""
    state: Annotated[str, doc("digest of that generator's state before it")] = ""


class ReproduceOutcomeRow(ReproduceRow, kw_only=True, tag="outcome"):
    """What the operators are for."""

    name: Annotated[str, doc("`loss`: a backward begins; `weights`: an optimizer has stepped")]
    at: MaybeAt
    digest: Digest
    inputs: Inputs


class ReproduceSourceRow(ReproduceRow, kw_only=True, tag="source"):
    """Something that may be otherwise in the next run was drawn, set or read."""

    name: Annotated[
        str,
        doc(
            "`random` or `numpy`: drawn from; `clock`: read; `system`: the operating system was asked; "
            "else the function that seeds"
        ),
    ]
    value: Annotated[str, doc("the state that it drew from; the seed; empty without one")] = ""
    at: MaybeAt = None
    before: Annotated[int, doc("the number of the operator that came next")]


class ReproduceValuesRow(ReproduceRow, kw_only=True, tag="values"):
    """The first 4,096 floating-point values of an operator that was asked for."""

    given: Annotated[str, doc("digest of all tensors that it was given")]
    dtype: Annotated[str, doc("of its first result")]
    values: Annotated[list[float | None], doc("null where not finite")]
