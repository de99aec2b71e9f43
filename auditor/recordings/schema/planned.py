"""Rows of a run of ``audit plan``: what the program's step is made of, and what was changed in it
(docs/plan.md).
"""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import MaybeAt, PassRow, doc


class PlannedRow(PassRow, kw_only=True, tag_field="what"):
    """What a run of ``audit plan`` saw."""

    part = "planned"
    when = "warmup and loud of a run of `audit plan`"


class PlannedInputRow(PlannedRow, kw_only=True, tag="input"):
    """The outermost module was called with gradients on: the first calls of each step."""

    module: Annotated[str, doc("its class")]
    shapes: Annotated[list[list[int]], doc("of the first eight tensors that it was given")]
    autocast: Annotated[bool, doc("whether the program's own autocast was on, or came on inside")]
    halvable: Annotated[bool, doc("whether it has parameters in float32")]


class PlannedBlocksRow(PlannedRow, kw_only=True, tag="blocks"):
    """Modules of one class that follow each other in a `ModuleList` or `Sequential`."""

    name: Annotated[str, doc("module and qualified name of the class, with a colon between")]
    n: Annotated[int, doc("how many")]
    bytes: Annotated[int, doc("parameters of the largest")]
    at: MaybeAt


class PlannedOptimizerRow(PlannedRow, kw_only=True, tag="optimizer"):
    """An optimizer that was made."""

    name: Annotated[str, doc("its class")]
    takes: Annotated[list[str], doc("`foreach`, `fused`: which of them it has")]
    on: Annotated[list[str], doc("which of them are on, in its first group")]
    off: Annotated[list[str], doc("which of them are off there; others are left to torch")]
    at: MaybeAt


class PlannedChangeRow(PlannedRow, kw_only=True, tag="changed"):
    """What was changed by the end of the step."""

    name: Annotated[str, doc("`batch`, `largest`, `checkpointed`, `autocast` or `optimizer`")]
    n: Annotated[
        int, doc("loaders, batches looked at, calls of modules, forwards or optimizers, so far")
    ]
