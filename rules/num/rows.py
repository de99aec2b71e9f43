"""What probes of NUM rules write, and these rules read."""

from typing import Annotated

from auditor.model import Site
from auditor.recordings.row import MaybeAt, PassRow, doc, older


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
            "before clipping where they were clipped; as text if not finite"
        ),
    ]
    clipped: Annotated[bool, doc("they were clipped")]
    rate: Annotated[float, doc("its highest learning rate; 0 of a tensor, or if none")] = older(0.0)
    base: Annotated[float, doc("what a scheduler found (`initial_lr`); 0 without one")] = older(0.0)


class UpdateRow(PassRow, kw_only=True):
    """At the pass's end, one row for each of torch's own optimizers that stepped weights in half
    precision, and one for each line that updates averages of weights in it.

    Of a sample of these weights over its first steps.
    """

    part = "updates"
    when = "loud, numbers"
    of_values = True

    at: MaybeAt
    cast_at: Annotated[int | None, doc("the only line that cast the weights, as `at`")] = None
    optimizer: Annotated[str, doc("its class; empty of averages")]
    dtype: Annotated[str, doc("of the weights")]
    rate: Annotated[float, doc("the highest of its groups; of averages the weight of the update")]
    steps: Annotated[int, doc("steps that were looked at")]
    asked: Annotated[int, doc("had a gradient that asks for a change which float32 would keep")]
    kept: Annotated[int, doc("of these, bit for bit what they were")]

    @property
    def share(self) -> float:
        """Share of the updates that were lost."""
        return self.kept / self.asked if self.asked else 0.0

    @property
    def cast(self) -> Site | None:
        """Where the weights became half precision, if one line did it."""
        return self.site_of(self.cast_at)
