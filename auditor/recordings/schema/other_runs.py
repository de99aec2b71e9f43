"""Rows of further runs: trials that `audit verify` compares, drills, `audit plan`, `audit reproduce`."""

from typing import Annotated, Literal

from msgspec import field

from auditor.recordings.row import MaybeAt, PassRow, doc, older

Digest = Annotated[
    str, doc("sixteen hexadecimal digits that differ where any bit, shape or dtype does")
]
Inputs = Annotated[list[int], doc("numbers of the operators that created its inputs")]


class ReproduceRow(PassRow, kw_only=True, tag_field="what"):
    """Of a run of `audit reproduce`, from torch's import on; the pass `warmup` before the steps."""

    part = "reproduce"
    when = "reproduce"


class ReproduceOperatorRow(ReproduceRow, kw_only=True, tag="operator"):
    """An operator has run, or a loader has given a batch. Views and host reads have no row."""

    number: Annotated[int, doc("which operator of the run it is, from 0")]
    at: MaybeAt
    name: Annotated[str, doc("`aten::mul`, or `DataLoader` for a batch")]
    digest: Annotated[str, doc("of all it made or wrote; empty if part of that was never written")]
    inputs: Inputs
    numbers: Annotated[str, doc("its arguments that are no tensors")] = ""
    generator: Annotated[str, doc("of one that draws: `default`, or `own` if it was given")] = ""
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

    given: Annotated[str, doc("digest of all its input tensors")]
    dtype: Annotated[str, doc("of its first result")]
    values: Annotated[list[float | None], doc("null if not finite")]


class PlannedRow(PassRow, kw_only=True, tag_field="what"):
    """What a run of ``audit plan`` saw."""

    part = "planned"
    when = "warmup and loud of a run of `audit plan`"


class PlannedInputRow(PlannedRow, kw_only=True, tag="input"):
    """The outermost module was called with gradients on: the first calls of each step."""

    module: Annotated[str, doc("its class")]
    shapes: Annotated[list[list[int]], doc("of its first eight input tensors")]
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
    off: Annotated[list[str], doc("which of them are off there; torch decides on the others")]
    at: MaybeAt


class PlannedChangeRow(PlannedRow, kw_only=True, tag="changed"):
    """What was changed by the end of the step."""

    name: Annotated[str, doc("`batch`, `largest`, `checkpointed`, `autocast` or `optimizer`")]
    n: Annotated[int, doc("loaders, batches, module calls, forwards or optimizers, so far")]


class DrillRow(PassRow, kw_only=True):
    """A moment of a drill: before the first optimizer step of the process (`start`), the fault
    (`planted`), and the end of each step.
    """

    part = "drill"
    when = "drill"

    what: Annotated[Literal["start", "planted", "end"], doc("which moment")]
    weights: Annotated[str, doc("of a `start`: a digest of all weights")] = ""
    bad: Annotated[
        list[str], doc("parameters, optimizer state and buffers that are not finite; 200 at most")
    ] = field(default_factory=list)
    n: Annotated[int, doc("how many there are")] = 0


class LossRow(PassRow, kw_only=True, tag_field="what", tag="loss"):
    """One row for each tensor that a backward was called on, in their order."""

    part = "results"
    when = "trials of `audit verify`: warmup and quiet; a rehearsal: loud"

    value: Annotated[str, doc("the number as `float.hex()` (of several elements: their sum)")]
    dtype: Annotated[str, doc("its type")]


class ParameterRow(PassRow, kw_only=True, tag_field="what", tag="parameter"):
    """At the end one row for each parameter of an optimizer that stepped."""

    part = "results"
    when = "trials of `audit verify`: warmup and quiet; a rehearsal: loud"

    place: Annotated[str, doc("`optimizer 0, group 0, parameter 3`")]
    name: Annotated[str, doc("`Model.body.weight`, where a module holds it")] = older("")
    value: Annotated[str, doc("its norm in float64, as `float.hex()`")]
    bits: Annotated[int | None, doc("sum of the bit patterns as whole numbers, null if unknown")]
