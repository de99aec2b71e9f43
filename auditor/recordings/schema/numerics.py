"""Rows about numbers: precision, delicate operators, float64, non-finite values, origins."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal

import msgspec

from auditor.recordings.row import At, Item, LineRow, MaybeAt, N, PassRow, doc, older
from auditor.recordings.schema.graph import Parameter


class AmpRow(LineRow, kw_only=True):
    """Autocast and GradScaler, per step and place; at the end a row per `GradScaler.update()`."""

    part = "amp"
    when = "loud"

    passes = ("loud",)

    us: Annotated[float, doc("not measured")] = 0.0
    what: Annotated[
        str,
        doc(
            "`autocast` (entered, `dtype` its own; `autocast_no_grad` where gradients are off), "
            "`scale` (of an enabled GradScaler), `made` (such a GradScaler, in the step), "
            "`clip_scaled` (`clip_grad_norm_` of gradients that were still scaled), `clamp_scaled` "
            "and `mul_scaled` (their own `clamp_` or `mul_`, by the user's code), `step_again` (an "
            "optimizer stepped twice and no backward ran in between), `update_early` (one scaler "
            "updated before it stepped another optimizer of the step), `step_scaled` (an optimizer "
            "stepped by itself after backwards that all began at scaled losses, and nobody asked "
            "for the scale), `backward` (under autocast), `backward_unscaled` (after float16 "
            "autocast, where nothing scaled the loss: neither a scaler nor a product at its end), "
            "`old_autocast` and `old_scaler` (of a class of `torch.cuda.amp`, enabled or not), "
            "`update`, `growth` (of a scaler, `before` is its growth_interval)"
        ),
    ]
    dtype: Annotated[str | None, doc("of autocast, or empty; left out of an `update`")] = None
    n: Annotated[int, doc("how often; left out of an `update`")] = 0
    before: Annotated[float | None, doc("the scale before an `update`")] = None
    after: Annotated[float | None, doc("the scale after it")] = None

    @property
    def scale(self) -> tuple[float | None, float | None]:
        """Before and after an `update`."""
        return self.before, self.after


class ModeRow(PassRow, kw_only=True):
    """Backward calls under anomaly mode."""

    part = "modes"
    when = "warmup, quiet, anomaly_off, trace, loud"

    what: Annotated[str, doc("`anomaly`")]
    at: Annotated[int | None, doc("where it was switched on (null: earlier)")] = older(None)
    n: N


class NumericRow(PassRow, kw_only=True):
    """At the pass's end, one row for each kind of delicate call and place.

    All but a `gradient` look at the forward and the optimizer only.
    """

    part = "numerics"
    when = "numbers"

    at: At
    what: Annotated[
        str,
        doc(
            "`epsilon` (a positive number below 0.01 was added to a tensor or is its lower bound), "
            "`function` (a logarithm, an exponential or a loss function with a gradient), `output` "
            "(what a product or another growing operator with a gradient gave in float16), `loss` "
            "(a backward for all leaves began there) or `gradient` (its derivative is infinite at "
            "a value that it was given: in the backward a finite gradient became non-finite there, "
            "and a parameter's was not finite afterwards)"
        ),
    ]
    op: Annotated[str, doc("the operator")]
    dtype: Annotated[str, doc("the one that ran")]
    scalar: Annotated[
        float, doc("of an `epsilon` the number; of a `gradient` the exponent of a `pow`")
    ] = 0.0
    feed: Annotated[
        str, doc("what made the input: `sigmoid`, `softmax`, `exp`, `sum of exp` or empty")
    ] = ""
    guarded: Annotated[bool, doc("an epsilon came in between")] = False
    unasked: Annotated[bool, doc("of a `gradient`: only where the incoming gradient was 0")] = False
    n: Annotated[int, doc("calls")]
    steps: Annotated[int, doc("how many watched steps; of a `gradient` those on which it happened")]
    least: Annotated[
        float | str | None,
        doc("least of the input (of an `output`: of that), as text if not finite, null if empty"),
    ] = msgspec.field(name="low")
    greatest: Annotated[
        float | str | None,
        doc(
            "greatest of the input (of an `output`: of that), as text if not finite, null if empty"
        ),
    ] = msgspec.field(name="high")
    overflowed: Annotated[
        int,
        doc(
            "calls (of an `output`) that gave an infinity though all they were given was finite; of "
            "a `loss` those that were not finite"
        ),
    ] = 0
    into: Annotated[list[str], doc("operators that an epsilon's result was given to")]
    loss: Annotated[bool, doc("a backward began at what was made of it, with no product between")]

    @property
    def low(self) -> float | None:
        """The least."""
        return None if self.least is None else float(self.least)

    @property
    def high(self) -> float | None:
        """The greatest."""
        return None if self.greatest is None else float(self.greatest)

    @property
    def library(self) -> str:
        """The file and function of a library below the line; empty if the line itself calls."""
        return self.home.via(self.at)

    @property
    def half(self) -> bool:
        """True in float16 or bfloat16."""
        return self.dtype in ("float16", "bfloat16")

    @property
    def in_optimizer(self) -> bool:
        """True if torch's optimizer code made the call."""
        return self.library.startswith("torch/optim/")


class BadTensor(Parameter, kw_only=True):
    """A parameter that is not finite, or whose gradient is not."""

    value: Annotated[str, doc("`nan` or `inf`")]


class NormBufferRow(PassRow, kw_only=True):
    """A running statistic of a batch norm that was not finite at the end of a step: the first."""

    part = "buffers"
    when = "loud"
    optional = True

    at: Annotated[int, doc("where the module ran: a number in `sites`")]
    owner: Annotated[str, doc("its class")]
    buffer: Annotated[str, doc("`running_mean` or `running_var`")]
    value: Annotated[str, doc("`nan` or `inf`")]


class NonfiniteRow(PassRow, kw_only=True):
    """One row, at the first step after which a parameter, or a gradient that an optimizer stepped
    with, was not finite; another, at the first one after which a batch norm's statistics were not,
    while these were finite.

    The part is absent until an optimizer has stepped.
    """

    part = "nonfinite"
    when = (
        "warmup, quiet, anomaly_off, eager_held, compiled_again, loud, values, replay; "
        "CUDA: loud and replay"
    )

    global_step: Annotated[int, doc("steps of all passes before it")]
    last_good: Annotated[int, doc("the last after which all was seen to be finite (-1: unknown)")]
    what: Annotated[str, doc("`gradient`, `parameter` or `buffer`")]
    tensors: Annotated[list[BadTensor], doc("the first five")]
    n: Annotated[int, doc("how many")]

    @classmethod
    def first(cls, rows: Iterable[NonfiniteRow]) -> NonfiniteRow | None:
        """The one of parameters and gradients where there is one, else that of statistics."""
        return min(rows, key=lambda row: row.what == "buffer", default=None)


Phase = Literal["forward", "backward", "optimizer", "input", "parameter", "state"]


class BirthInput(Item, kw_only=True):
    """An input of the operator that made a non-finite value."""

    dtype: Annotated[str, doc("its type")]
    shape: Annotated[list[int], doc("its sizes")] = older([])
    min: Annotated[float | None, doc("of the finite part before the call, null if there is none")]
    max: Annotated[float | None, doc("greatest finite value before the call, null without one")]
    share_nonfinite: Annotated[float | None, doc("0 to 1; null if the operator wrote over it")]


class BirthRow(PassRow, kw_only=True):
    """What the bad step's gradients or parameters inherited, five at most. `step`: when born."""

    part = "births"
    when = "replay"

    at: MaybeAt = older(None)
    entered: Annotated[
        int | None, doc("of `input`: where the outermost module that ran was called, in `sites`")
    ] = older(None)
    dataset: Annotated[str, doc("of `input` that a DataLoader gave: class of the dataset")] = older(
        ""
    )
    op: Annotated[str, doc("the operator")]
    phase: Annotated[
        Phase,
        doc(
            "`forward`, `backward` (`at` = the forward line that made the autograd `node`, or the "
            "line of the user's own backward), `optimizer`; or not made by an operator: `input`, "
            "`parameter`, `state` (of the optimizer; `at` = where it was used first)"
        ),
    ]
    value: Annotated[str, doc("`nan`, `inf` or `-inf`")]
    dtype: Annotated[str, doc("of the output")] = older("")
    node: Annotated[str, doc("name of the autograd node, in a backward")] = older("")
    module: Annotated[str, doc("whose forward ran")] = older("")
    fill: Annotated[bool, doc("meant (`masked_fill(-inf)`) or never written")] = older(value=False)
    constants: Annotated[list[str], doc("non-finite numbers among the arguments, as text")] = older(
        []
    )
    inputs: Annotated[list[BirthInput], doc("its inputs")] = older([])
