"""TRAIN014 to 18: layers and losses that torch warns do something else than they seem to."""

from __future__ import annotations

from auditor.model import Severity

from ..torch_says import TorchSays


class KlDivAveragedOverClasses(TorchSays):
    """A KL divergence is averaged over classes, too."""

    code = "TRAIN014"
    severity = Severity.NOTE
    warning = "mean of kl_div"
    defect = (
        "kl_div with reduction='mean' divides by the number of classes, too: it is smaller "
        "than the KL divergence by that factor"
    )
    advice = "Give reduction='batchmean'."


class SoftmaxWithoutDim(TorchSays):
    """A softmax is not told its dimension."""

    code = "TRAIN015"
    severity = Severity.NOTE
    warning = "softmax without dim"
    defect = (
        "softmax without dim: of a tensor with three dimensions torch takes the first, which "
        "is the batch"
    )
    advice = "Give dim=-1, or the dimension that is meant."


class DropoutOfOneLayer(TorchSays):
    """The dropout of a recurrent layer does nothing."""

    code = "TRAIN016"
    severity = Severity.NOTE
    warning = "dropout of one layer"
    defect = "dropout of a recurrent module with one layer does nothing: it works between layers"
    advice = "Give num_layers=2 or more, or put nn.Dropout behind the module."


class DimensionsReversed(TorchSays):
    """All dimensions of a tensor are reversed."""

    code = "TRAIN017"
    severity = Severity.NOTE
    warning = "reversed dimensions"
    defect = "reverses all dimensions of a tensor that has not two, the batch's too"
    advice = (
        "Use .mT or .transpose(-2, -1) for matrices, .permute(...) where all shall be reversed."
    )


class Dropout2dOfThreeDimensions(TorchSays):
    """Dropout2d is given three dimensions."""

    code = "TRAIN018"
    severity = Severity.NOTE
    warning = "dropout2d of 3-D"
    defect = (
        "dropout2d takes three dimensions as (sample, channel, length), and drops whole "
        "channels of the second dimension"
    )
    advice = "Use nn.Dropout for single numbers, nn.Dropout1d where whole channels are meant."
