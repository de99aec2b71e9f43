"""What probes of TRAIN rules write, and these rules read."""

from typing import Annotated

from auditor.model import Site
from auditor.recordings.row import At, PassRow, doc, older

ANGLE = doc("between the step's gradient and the repaired one, in degrees")
RATIO = doc("norm of the step's gradient over that of the repaired one")
OVER = doc("what the gradients are of: `parameters`, or `outputs` (the model's outputs)")

RECURRENT = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
"""Functions of recurrent layers, as rows name them."""

NORMS = frozenset({"batch_norm", "group_norm", "instance_norm"})
"""Functions that normalize by statistics over positions."""

LARGEST = frozenset({"amax", "max"})
"""Padding is seldom the largest of many values: a note."""


class RepairRow(PassRow, kw_only=True):
    """A loss of the step that was computed a second time with one thing changed."""

    part = "repairs"
    when = "gradients"
    of_values = True

    at: At
    angle: Annotated[float, ANGLE]
    ratio: Annotated[float, RATIO]
    over: Annotated[str, OVER]
    defect: Annotated[str, doc("`broadcast`, `activation`, `padding` or `shift`")]
    function: Annotated[str, doc("what was called at the line: `mse_loss`, `sub`")]
    loss: Annotated[float, doc("what the backward began at")]
    repaired: Annotated[float, doc("the loss with the change")]
    given: Annotated[list[int], doc("broadcast: sizes of what the model gave")] = older([])
    other: Annotated[list[int], doc("broadcast: sizes of what it met")] = older([])
    second: Annotated[bool, doc("broadcast: that is the second argument")] = older(False)
    activation: Annotated[str, doc("activation: `softmax`, `sigmoid`; else empty")] = older("")
    made_at: Annotated[int | None, doc("activation: its line, a number in `sites`")] = older(None)
    padded: Annotated[int, doc("padding: targets that are padding")] = older(0)
    targets: Annotated[int, doc("padding: all targets; shift: those that were compared")] = older(0)
    value: Annotated[int | None, doc("padding: the target of padding alone, or null")] = older(None)
    by: Annotated[str, doc("padding: the variable that says which, or `padding_idx`")] = older("")
    distance: Annotated[int, doc("shift: positions from an input to its target, 0 or 2")] = older(0)


class PaddingReadRow(PassRow, kw_only=True):
    """A call that reads positions of a batch, some of which are padding."""

    part = "padding_reads"
    when = "gradients"
    of_values = True

    at: At
    function: Annotated[
        str,
        doc(
            "`scaled_dot_product_attention`, `softmax`, `mean`, `lstm`; `backward lstm` or `flipped "
            "lstm` if this direction comes to the padding first"
        ),
    ]
    share: Annotated[
        float,
        doc(
            "in one row that has padding, the part of the gradient at what the call reads that lies "
            "on padding, of its result at real positions, 0 to 1: of attention the mean share of "
            "its weights, of a maximum that of its values"
        ),
    ]
    padded: Annotated[int, doc("positions of the batch that are padding")]
    tokens: Annotated[int, doc("all positions of the batch")]
    by: Annotated[str, doc("the variable that says which they are, or `padding_idx`")]
    zero: Annotated[bool, doc("a mean whose input is zero at padding: it is counted")] = False


class DependenceRow(PassRow, kw_only=True):
    """The first call whose result depends on what it must not."""

    part = "dependence"
    when = "gradients"
    of_values = True

    at: At
    kind: Annotated[
        str,
        doc(
            "`samples`: the last sample's row, on rows of other samples; `statistics`: each row, on one "
            "number that is made of the whole batch; `documents`: a token of a packed row, on the "
            "document before its own; `future`: a position of a "
            "language model, on the tokens behind it, the next of which is its target; `added`: a causal "
            "mask of ones and zeros that is added to scores; `order`: a "
            "call that exchanges the sizes of two dimensions and not their numbers; `target`: a "
            "target that is made of the network's own output, on its parameters; `advantage`: one "
            "that weighs log-probabilities, on the values it is made of; `soft`: the target of a "
            "divergence, on the network; `axis`: probabilities over one dimension, whose targets sum "
            "to 1 over another; `weights`: weights of "
            "samples, after their mean; `single`: a softmax over one value; `itself`: a tensor, on none of its values; `backward`: an "
            "`autograd.Function` whose backward is not the derivative of its forward; `sorted`: rows of "
            "a batch, compared with targets in the original order; `ratio`: old log-probabilities, picked for "
            "other actions than the new ones; `cancelled`: a difference or ratio, on no parameter, as the gradients "
            "of both sides cancel; `self`: similarities of rows with themselves, among the "
            "candidates of a contrastive loss; `void`: targets that one part of a loss ignores, made into others; `sample`: "
            "of a distribution, without a gradient for its parameters; `derivative`: by data, "
            "the same; `readout`: shares over the rows of all samples, in front of sums for each of them; `neighbors`: a search, on rows of other "
            "samples; `horizon`: a statistic that scales the input, on targets; `prompt`: tokens of "
            "prompts among the targets of "
            "rows that are padded on the left; `feature`: a channel of the input, on values behind its "
            "window, which are targets; `bias`: a softmax, on nothing of what was added to its scores"
        ),
    ]
    function: Annotated[str, doc("`lstm`, `softmax`, `view`; of the future, the loss: unknown")]
    n: Annotated[int, doc("on how many; `order`: the first; `backward`: percent; `feature`: steps")]
    of: Annotated[int, doc("how many there are; `order`: the second; `feature`: its number")]


class UnreadRow(PassRow, kw_only=True):
    """A tensor that the step is given and does not read, or a write into a copy."""

    part = "unread"
    when = "gradients"

    at: At
    kind: Annotated[
        str,
        doc(
            "`parameter` of a function; `constant`: a floor division that gives one number for "
            "different values; `copy`: an indexed tensor that is written in place"
        ),
    ]
    name: Annotated[str, doc("the parameter; of a copy, the indexed tensor")]
    function: Annotated[str, doc("whose it is; of a copy, the function that writes")]


class TokenWeightsRow(PassRow, kw_only=True):
    """A step's gradient of several means that weigh the same, each over another number of tokens."""

    part = "token_weights"
    when = "gradients"
    of_values = True

    at: At
    angle: Annotated[float, ANGLE]
    ratio: Annotated[float, RATIO]
    over: Annotated[str, OVER]
    tokens: Annotated[list[int], doc("over how many tokens each loss is the mean")]
    function: Annotated[str, doc("what made the mean: `cross_entropy`, `div`")]
    pieces: Annotated[bool, doc("their targets are pieces of one tensor, the last one shorter")] = (
        False
    )


class GeneratorRow(PassRow, kw_only=True):
    """A line that draws from a generator of the program's own numbers from which something with a
    gradient is computed. Written at the end of the precision pass.
    """

    part = "generators"
    when = "numbers"
    optional = True

    at: At
    name: Annotated[str, doc("the operator that draws: `randn`, `bernoulli`")]
    steps: Annotated[int, doc("steps in which it drew")]
    states: Annotated[int, doc("different states in which the generator was at the first draw")]


class SeedRow(PassRow, kw_only=True):
    """What came again because a generator was seeded at this line again: random numbers of steps, or
    orders of a loader. Written at the end of a pass, over all passes until then.
    """

    part = "seeds"
    when = "quiet and loud"

    at: At
    generator: Annotated[str, doc("`torch`, `random` or `numpy`")]
    seed: Annotated[str, doc("what it was given; empty for something else than a number or text")]
    calls: Annotated[int, doc("seeds after which something came again")]
    times: Annotated[int, doc("steps that drew what an earlier one drew, or such epochs")]
    number: Annotated[int, doc("the first of these steps, over all passes")]
    first: Annotated[int, doc("the earlier step")]
    drew: Annotated[int, doc("steps that drew from the generator")]
    steps: Annotated[int, doc("all steps of which that is known")]
    loader_at: Annotated[int | None, doc("of a shuffling loader: its `made_at`, or null")] = None
    within: Annotated[bool, doc("each step was seeded itself, and drew after that")] = False
    evaluates: Annotated[bool, doc("steps seeded without gradients, before the first, too")] = False

    @property
    def loader(self) -> Site | None:
        """The ``DataLoader(...)`` call; None of steps."""
        return self.site_of(self.loader_at)


class LayerRow(PassRow, kw_only=True):
    """A layer's input, or over all batches that were seen, what its activation gave."""

    part = "layers"
    when = "gradients"
    of_values = True

    at: At
    kind: Annotated[
        str,
        doc(
            "`input`, `dead`, `saturated`, or `zero`: a product of two zeros, each of which a "
            "parameter makes"
        ),
    ]
    layer: Annotated[
        str, doc("input, dead: its weight; saturated: `sigmoid` or `tanh`; zero: both parameters")
    ]
    given: Annotated[float, doc("input: its root mean square")] = older(0.0)
    least: Annotated[float, doc("input: that of its smallest column or channel")] = older(0.0)
    most: Annotated[float, doc("input: that of its largest column or channel")] = older(0.0)
    made: Annotated[float, doc("input: that of the layer's result")] = older(0.0)
    ratio: Annotated[
        float | None,
        doc(
            "input: how far a small change of the parameters moves the outputs, over that with "
            "columns of mean 0 and standard deviation 1; null: not computed"
        ),
    ] = older(None)
    units: Annotated[int, doc("dead: units of the layer")] = older(0)
    dead: Annotated[int, doc("dead: those that gave 0 and got no gradient throughout")] = older(0)
    steps: Annotated[int, doc("dead, zero: backwards that gave the weight its gradient")] = older(0)
    samples: Annotated[int, doc("dead: results of each unit; saturated: all results")] = older(0)
    edge: Annotated[float, doc("saturated: 95% of the results lie so near to an end")] = older(0.0)
