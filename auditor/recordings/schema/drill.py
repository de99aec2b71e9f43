"""Rows of a drill: what became of a planted fault, one row for each event in order
(docs/drill.md).
"""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import PassRow, doc, older

Digest = Annotated[
    str, doc("sixteen hexadecimal digits that differ where any bit, shape or dtype does")
]
Rates = Annotated[list[float | None], doc("the learning rate of each parameter group")]
Handling = Annotated[bool, doc("inside an `except` block that holds an out-of-memory error")]


class DrillRow(PassRow, kw_only=True, tag_field="what"):
    """An event of a drill."""

    part = "drill"
    when = "drill"


class DrillStartRow(DrillRow, kw_only=True, tag="start"):
    """Just before the first optimizer step of the process."""

    weights: Digest
    state: Digest
    states: Annotated[int, doc("tensors in the optimizers' state")]
    rates: Rates


class DrillOptimizerRow(DrillRow, kw_only=True, tag="optimizer"):
    """An optimizer is about to step."""

    bad: Annotated[list[str], doc("the first 200 parameters whose gradient is not finite")]
    n: Annotated[int, doc("how many there are")]
    fed: Annotated[int, doc("parameters that have a gradient")]
    rates: Rates


class DrillSkippedRow(DrillRow, kw_only=True, tag="scaler skipped"):
    """GradScaler skipped a step."""

    scale: Annotated[float | None, doc("its scale")]


class DrillForwardRow(DrillRow, kw_only=True, tag="forward"):
    """The outermost module was entered with gradients on."""

    input: Digest
    handling: Handling


class DrillBackwardRow(DrillRow, kw_only=True, tag="backward"):
    """A backward is about to run."""

    loss: Annotated[
        str | None, doc("the number as text; null where no tensor of one element was given")
    ]
    held: Annotated[int, doc("gradients that hold anything")]
    gradients: Digest
    handling: Handling


class DrillBatchRow(DrillRow, kw_only=True, tag="batch"):
    """A loader yielded a batch."""

    content: Digest


class DrillInjectedRow(DrillRow, kw_only=True, tag="injected"):
    """The fault was planted."""

    where: Annotated[str, doc("`batch`, `activation` or `gradient`")]
    place: Annotated[str, doc("in words")]
    shape: Annotated[
        list[int] | None, doc("of the poisoned tensor; left out of an error or a kill")
    ] = None
    dtype: Annotated[str | None, doc("the same")] = None


class DrillSaveRow(DrillRow, kw_only=True, tag="save"):
    """A `torch.save` into a file."""

    path: Annotated[str, doc("relative to the working directory where below it")]
    tensors: Annotated[int, doc("how many it holds")]
    bad: Annotated[list[str], doc("the first 200 that are not finite")]
    n: Annotated[int, doc("how many there are")]


class DrillLoadRow(DrillRow, kw_only=True, tag="load"):
    """A `torch.load` of a file."""

    path: Annotated[str, doc("relative to the working directory where below it")]


class DrillStateRow(DrillRow, kw_only=True):
    """What a step left."""

    parameters: Annotated[int, doc("trainable tensors of all optimizers")]
    weights: Digest
    state: Digest
    states: Annotated[int, doc("tensors in the optimizers' state")]
    rates: Rates
    random: Annotated[str, doc("digest of torch's random state")]
    bad: Annotated[
        dict[str, list[str]],
        doc("the first 200 tensors that are not finite, of `parameters`, `state`, `buffers`"),
    ]
    counts: Annotated[dict[str, int], doc("how many there are of each")] = older({})


class DrillEndRow(DrillStateRow, kw_only=True, tag="end"):
    """What a completed step left."""


class DrillBrokenRow(DrillStateRow, kw_only=True, tag="broken"):
    """What a step left that raised."""
