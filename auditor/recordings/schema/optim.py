"""Rows about optimizers: clearing, stepping, norms of gradients, updates that half precision
loses.
"""

from __future__ import annotations

from typing import Annotated

from auditor.recordings.row import At, MaybeAt, N, PassRow, doc, older


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


class SingleTensorStepRow(PassRow, kw_only=True, tag_field="call", tag="step"):
    """One of torch's optimizers that was told to step parameter by parameter."""

    part = "optimizer"
    when = "a rehearsal: loud"

    at: MaybeAt
    made_at: Annotated[int | None, doc("the line that made it")]
    name: Annotated[str, doc("its class")]
    n: Annotated[int, doc("calls of its `step()`")]
    operators: Annotated[int, doc("in its `n` calls")]


class NormRow(PassRow, kw_only=True):
    """How large the gradients are: one row per optimizer and step that was looked at, written at
    the pass's end.

    Looked at is every fifth step of the quiet pass, and every one of the others. No row for a step
    that GradScaler skipped. The part is absent until an optimizer has stepped.
    """

    part = "norms"
    when = "warmup, quiet, loud, values; CUDA: loud"

    global_step: Annotated[int, doc("steps of all passes before it")]
    optimizer: Annotated[int, doc("its number in the run")]
    at: MaybeAt
    norm: Annotated[
        float | str,
        doc(
            "Euclidean norm of all its gradients as it stepped, divided by GradScaler's scale "
            "where they still carried it, or "
            "before clipping where they were clipped; as text where not finite"
        ),
    ]
    clipped: Annotated[bool, doc("they were clipped")]
    rate: Annotated[
        float, doc("its highest learning rate; 0 where that is a tensor, or it has none")
    ] = older(0.0)
    base: Annotated[float, doc("what a scheduler found it at (`initial_lr`); 0 without one")] = (
        older(0.0)
    )


class UnclearedRow(PassRow, kw_only=True):
    """At the pass's end, one row per optimizer that stepped: whether gradients pile up."""

    part = "uncleared"
    when = "loud"

    at: MaybeAt
    backward_at: Annotated[int | None, doc("the last backward that added to such gradients")]
    optimizer: Annotated[str, doc("its class")]
    steps: Annotated[int, doc("its steps")]
    piled: Annotated[
        int,
        doc(
            "steps before which a backward had added to gradients that nothing had dropped or "
            "written since the step before"
        ),
    ]


class ClippingRow(PassRow, kw_only=True):
    """At the pass's end, one row per line that clipped before the backward or after the optimizer's
    step, and optimizer: steps of it whose gradients nothing else clipped.
    """

    part = "clippings"
    when = "loud"

    at: At
    optimizer: Annotated[str, doc("its class")]
    steps: Annotated[int, doc("its steps, without the first")]
    n: Annotated[int, doc("those of them before which this line clipped in vain")]
    absent: Annotated[
        bool,
        doc(
            "none of its parameters had a gradient then; else they had those that it had stepped "
            "with, and no backward ran in between"
        ),
    ]


class SchedulerRow(PassRow, kw_only=True):
    """At the pass's end, one row per scheduler of learning rates that was stepped at least twice:
    of all passes so far.
    """

    part = "schedulers"
    when = "loud"

    at: At
    name: Annotated[str, doc("its class")]
    calls: Annotated[int, doc("of its `step()`, behind the optimizer's first")]
    steps: Annotated[int, doc("steps of its optimizer between the first and the last of them")]
    in_pass: Annotated[int, doc("steps of its optimizer in the pass")]
    apart: Annotated[int, doc("the fewest of these steps between two calls")]
    epoch: Annotated[int, doc("its `last_epoch`: calls since it was made")]
    epoch_of: Annotated[
        int | None, doc("`OneCycleLR`: its `steps_per_epoch`, where that was given")
    ] = None
    period: Annotated[
        int | None, doc("calls in which its rate falls to the least and rises again: 2 `T_max`")
    ] = None
    gone: Annotated[
        int | None, doc("calls after which its rate is at most a thousandth of the first")
    ] = None


class UpdateRow(PassRow, kw_only=True):
    """At the pass's end, one row for each of torch's own optimizers that stepped weights in half
    precision.

    Of a sample of these weights over its first steps.
    """

    part = "updates"
    when = "loud"

    at: MaybeAt
    optimizer: Annotated[str, doc("its class")]
    dtype: Annotated[str, doc("of the weights")]
    rate: Annotated[float, doc("the highest of its groups")]
    steps: Annotated[int, doc("steps that were looked at")]
    asked: Annotated[int, doc("had a gradient that asks for a change which float32 would keep")]
    kept: Annotated[int, doc("of these, bit for bit what they were")]


class MicroBatchRow(PassRow, kw_only=True):
    """An optimizer stepped on gradients that several backward passes of one line added up."""

    part = "micro_batches"
    when = "loud"

    at: At
    optimizer: Annotated[str, doc("its class")]
    n: Annotated[int, doc("these passes, since the gradients were cleared or stepped on")]
    means: Annotated[int, doc("of these, passes of a mean over the batch, or a sum of such")] = 0
    batches: Annotated[int, doc("batches that one loader gave meanwhile")] = 0
    changed: Annotated[
        bool, doc("the gradients were written to after the last pass, before the step")
    ] = False


class SwitchedRow(PassRow, kw_only=True):
    """At the pass's end, one row per line that put a module into eval mode in which an optimizer
    then stepped its parameters: steps of all passes so far.
    """

    part = "switched"
    when = "loud"

    at: At
    module: Annotated[str, doc("its class")]
    parts: Annotated[
        dict[str, int],
        doc("modules in it that act otherwise in train mode, and were in it: how many by class"),
    ]
    before: Annotated[int, doc("steps of the optimizer before that, in train mode")]
    steps: Annotated[int, doc("steps of it after that, in eval mode")]
    grads: Annotated[bool, doc("gradients were on when the line ran")]


class TrainModeForwardRow(PassRow, kw_only=True):
    """At the pass's end, one row per line that called a trained module in train mode while
    gradients were off: of all passes so far.
    """

    part = "train_mode_forwards"
    when = "loud"

    at: At
    within: Annotated[
        int, doc("the line in the function that turned gradients off: a number in `sites`")
    ]
    module: Annotated[str, doc("its class")]
    parts: Annotated[
        dict[str, int],
        doc("modules in it that act otherwise in eval mode, and are in train mode, by class"),
    ]
    times: Annotated[int, doc("between how many pairs of steps of an optimizer it was called")]
    steps: Annotated[int, doc("steps of an optimizer that trains the module, so far")]
