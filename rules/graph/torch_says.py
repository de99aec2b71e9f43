"""GRAPH009 and 10: gradients that torch warns are not there."""

from __future__ import annotations

from auditor.model import Severity

from ..torch_says import TorchSays


class GradOfNonLeaf(TorchSays):
    """The gradient of a tensor that is no leaf is read."""

    code = "GRAPH009"
    severity = Severity.NOTE
    warning = "grad of non-leaf"
    defect = "reads .grad of a tensor that is the result of an operation: it is None"
    advice = (
        "Call retain_grad() on it before the backward, or read .grad of the leaf: .to(), "
        ".cuda() and arithmetic create a new tensor."
    )


class TensorMadeOfATensor(TorchSays):
    """torch.tensor() is given a tensor."""

    code = "GRAPH010"
    severity = Severity.NOTE
    warning = "tensor of tensor"
    defect = "torch.tensor() of a tensor copies it and cuts its graph: no gradient passes"
    advice = "Use the tensor itself, or tensor.detach().clone() for a copy without a graph."
