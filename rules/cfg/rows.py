"""What probes of CFG rules write, and these rules read."""

from collections.abc import Mapping
from typing import Annotated

from auditor.recordings.row import At, MaybeAt, PassRow, doc, older


class ConvSizesRow(PassRow, kw_only=True):
    """Convolutions of a step on the rehearsed device, and how many met a size the first time."""

    part = "conv_sizes"
    when = "loud, of a rehearsal"

    at: MaybeAt
    n: Annotated[int, doc("calls")]
    new: Annotated[int, doc("sizes (of input and weight, with stride and the like) not met before")]
    shape: Annotated[list[int], doc("of the input, at the first of them, which is at `at`")]
    benchmark: Annotated[bool, doc("`cudnn.benchmark` and cuDNN were on at all of them")]


class DoubleBirthRow(PassRow, kw_only=True, tag_field="what", tag="birth"):
    """At the pass's end, one row per line that brought float64 into what has gradients on."""

    part = "doubles"
    when = "numbers"

    at: At
    how: Annotated[
        str,
        doc(
            "`cast` (asked for), `mixed` (a float64 tensor met a narrower one), `made` (by a "
            "factory), `given` (from outside) or `narrowed` (from outside, and only cast to a "
            "narrower dtype here)"
        ),
    ]
    op: Annotated[str, doc("the operator")]
    n: Annotated[int, doc("operators that gave float64 because of it")]
    elements: Annotated[
        int, doc("elements these went through (of each the largest operand or result)")
    ]
    largest: Annotated[int, doc("the most elements at once")]
    products: Annotated[int, doc("how many were products of matrices")]
    graph: Annotated[bool, doc("a gradient flows back")]
    steps: Annotated[int, doc("on how many")]
    all: Annotated[int, doc("elements of all operators on floating-point numbers")]

    @property
    def share(self) -> float:
        """Share of all floating-point elements that the forward's operators went through."""
        return self.elements / max(1, self.all)

    def in_a_step(self, number: float) -> float:
        """A number of all watched steps for one of them."""
        return number / max(1, self.steps)


class DoubleParametersRow(PassRow, kw_only=True, tag_field="what", tag="parameters"):
    """The last row: parameters of optimizers."""

    part = "doubles"
    when = "numbers"

    elements: Annotated[int, doc("elements in float64")]
    all: Annotated[int, doc("all elements")]


class SwitchedRow(PassRow, kw_only=True):
    """At the pass's end, one row per line that put a module into eval mode in which an optimizer
    then stepped its parameters, or out of which `train()` came: steps of all passes so far.
    """

    part = "switched"
    when = "loud"

    at: At
    module: Annotated[str, doc("its class")]
    parts: Annotated[
        dict[str, int], doc("modules in train mode that act otherwise in it, by class")
    ]
    before: Annotated[int, doc("steps of the optimizer before that, in train mode")]
    steps: Annotated[int, doc("steps of it after that, in eval mode")]
    grads: Annotated[bool, doc("gradients were on when the line ran")]
    backs: Annotated[
        list[int], doc("lines that called `train()` since the first such line, in `sites`")
    ] = older([])


class TrainModeForwardRow(PassRow, kw_only=True):
    """At the end, a row per line that called a trained module in train mode, gradients off."""

    part = "train_mode_forwards"
    when = "loud"

    at: At
    within: Annotated[int, doc("line in the function that turned gradients off, in `sites`")]
    module: Annotated[str, doc("its class")]
    parts: Annotated[
        dict[str, int], doc("modules in train mode that act otherwise in eval mode, by class")
    ]
    times: Annotated[int, doc("between how many pairs of steps of an optimizer it was called")]
    steps: Annotated[int, doc("steps of an optimizer that trains the module, so far")]


def behave(parts: Mapping[str, int]) -> str:
    """``2 BatchNorm2d and 1 Dropout behave``: modules of a row, how many by class."""
    named = " and ".join(f"{n} {name}" for name, n in parts.items())
    return f"{named} behave{'s' * (sum(parts.values()) == 1)}"
