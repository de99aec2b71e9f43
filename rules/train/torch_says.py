"""TRAIN014 to 18: layers and losses that torch warns do something else than they seem to."""

from auditor.model import Severity

from ..torch_says import TorchSays


class KlDivAveragedOverClasses(TorchSays):
    """A KL divergence is averaged over classes, too."""

    code = "TRAIN014"
    severity = Severity.NOTE
    warning = "mean of kl_div"
    defect = (
        "kl_div with reduction='mean' also divides by the number of classes, so the loss is smaller "
        "than the KL divergence by that factor"
    )
    advice = "Pass reduction='batchmean'."


class SoftmaxWithoutDim(TorchSays):
    """A softmax is called without its dimension."""

    code = "TRAIN015"
    severity = Severity.NOTE
    warning = "softmax without dim"
    defect = (
        "softmax without dim: for a tensor with three dimensions torch takes the first, which "
        "is the batch"
    )
    advice = "Pass dim=-1, or the dimension that is meant."


class DropoutOfOneLayer(TorchSays):
    """The dropout of a recurrent layer does nothing."""

    code = "TRAIN016"
    severity = Severity.NOTE
    warning = "dropout of one layer"
    defect = "dropout in a recurrent module with one layer does nothing: it works between layers"
    advice = "Use num_layers=2 or more, or put nn.Dropout after the module."


class DimensionsReversed(TorchSays):
    """All dimensions of a tensor are reversed."""

    code = "TRAIN017"
    severity = Severity.NOTE
    warning = "reversed dimensions"
    defect = "reverses all dimensions of a tensor that is not 2-D, including the batch"
    advice = "Use .mT or .transpose(-2, -1) for matrices, .permute(...) to reverse all dimensions."


class Dropout2dOfThreeDimensions(TorchSays):
    """Dropout2d is given three dimensions."""

    code = "TRAIN018"
    severity = Severity.NOTE
    warning = "dropout2d of 3-D"
    defect = (
        "dropout2d takes a 3-D tensor as (sample, channel, length) and drops whole "
        "channels of its second dimension"
    )
    advice = "Use nn.Dropout for single values, nn.Dropout1d for whole channels."
