"""What probes of OPT rules write, and these rules read."""

from typing import Annotated

from auditor.model import Site
from auditor.recordings.row import At, MaybeAt, PassRow, doc, older

TOGETHER = 1.75
"""By how much the passes of a step together must count a mean: those of smoothed labels, of which
0.9 are one, are told of from two passes on.
"""


class SingleTensorStepRow(PassRow, kw_only=True, tag_field="call", tag="step"):
    """One of torch's optimizers that is set to step parameter by parameter."""

    part = "optimizer"
    when = "a rehearsal: loud"

    at: MaybeAt
    made_at: Annotated[int | None, doc("the line that made it")]
    name: Annotated[str, doc("its class")]
    n: Annotated[int, doc("calls of its `step()`")]
    operators: Annotated[int, doc("in its `n` calls")]

    @property
    def made(self) -> Site | None:
        """The line that made it."""
        return self.site_of(self.made_at)


class UnclearedRow(PassRow, kw_only=True):
    """At the pass's end, one row per optimizer that stepped: whether gradients pile up."""

    part = "uncleared"
    when = "loud"

    at: MaybeAt
    backward_at: Annotated[int | None, doc("the last backward that added to such gradients")]
    optimizer: Annotated[str, doc("its class")]
    steps: Annotated[int, doc("its steps")]
    piled: Annotated[
        int, doc("steps before which a backward added to gradients left by the step before")
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
    n: Annotated[int, doc("those of them before which this line clipped without effect")]
    absent: Annotated[
        bool, doc("none of its parameters had a gradient then; else only those it had stepped with")
    ]
    stepped_at: Annotated[int | None, doc("the line of these steps, in `sites`")] = older(None)
    again: Annotated[
        bool, doc("it clipped a sum of gradients, to which a backward added, again")
    ] = older(False)


class MaskedRow(PassRow, kw_only=True):
    """At the pass's end, one row per parameter that has a hook and weight decay."""

    part = "masked_rows"
    when = "loud"

    at: MaybeAt
    optimizer: Annotated[str, doc("its class")]
    name: Annotated[str, doc("of the parameter")] = ""
    n: Annotated[int, doc("rows that had no gradient on all steps, and changed")] = 0
    of: Annotated[int, doc("how many it has")]
    steps: Annotated[int, doc("steps of the optimizer")] = 0


class SchedulerRow(PassRow, kw_only=True):
    """At the pass's end, one row per scheduler stepped twice or more: of all passes so far."""

    part = "schedulers"
    when = "loud"

    at: At
    name: Annotated[str, doc("its class")]
    calls: Annotated[int, doc("of its `step()`, after the optimizer's first")]
    steps: Annotated[int, doc("steps of its optimizer between the first and the last of them")]
    in_pass: Annotated[int, doc("steps of its optimizer in the pass")]
    apart: Annotated[int, doc("the fewest of these steps between two calls")]
    epoch: Annotated[int, doc("its `last_epoch`: calls since it was made")]
    epoch_of: Annotated[int | None, doc("`OneCycleLR`: its `steps_per_epoch`, if given")] = None
    period: Annotated[int | None, doc("calls in which its rate falls and rises: 2 `T_max`")] = None
    gone: Annotated[int | None, doc("calls after which its rate is 1/1000 of the first")] = None
    repeated: Annotated[int, doc("`ReduceLROnPlateau`: calls with the same number")] = older(0)

    @property
    def each_step(self) -> bool:
        """Whether it is stepped with its optimizer: one step between any two calls, no more."""
        return self.apart == 1 and self.steps == self.calls - 1


class MicroBatchRow(PassRow, kw_only=True):
    """An optimizer stepped on gradients that backward passes of one line added up."""

    part = "micro_batches"
    when = "loud"

    at: At
    optimizer: Annotated[str, doc("its class")]
    n: Annotated[int, doc("these passes, since the gradients were cleared or stepped on")]
    means: Annotated[int, doc("of these, passes of a mean over the batch, or a sum of such")] = 0
    weight: Annotated[float, doc("the least by which one of them counts such a mean")] = 1.0
    uneven: Annotated[bool, doc("one of them counts more than another")] = False
    batches: Annotated[int, doc("batches that one loader gave meanwhile")] = 0
    stepped: Annotated[At | None, doc("where the optimizer stepped")] = None
    begins: Annotated[bool, doc("its first batch is an epoch's first")] = False
    crosses: Annotated[bool, doc("a later one is")] = False
    changed: Annotated[bool, doc("the gradients were written to after the last pass")] = False

    @property
    def undivided(self) -> bool:
        """All of them were means over batches of a loader, and nothing divided them enough."""
        together = self.means == self.n <= self.batches and not self.changed
        return together and self.n * self.weight >= TOGETHER


class AverageRow(PassRow, kw_only=True):
    """At the pass's end, one row per line that averages trained weights into tensors that no
    optimizer holds, or writes trained weights onto themselves.
    """

    part = "averages"
    when = "numbers"

    at: At
    steps: Annotated[int, doc("steps on which it did")]
    watched: Annotated[int, doc("steps of the pass")]
    n: Annotated[int, doc("tensors that it writes per step")]
    itself: Annotated[int, doc("of these, trained weights averaged with an alias of themselves")]
    copies: Annotated[bool, doc("it copies")]
    weight: Annotated[float, doc("share of the new weights in each update; 0 if it varies")]
