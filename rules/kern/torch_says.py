"""KERN009 and 10: slow paths that torch warns of."""

from __future__ import annotations

from auditor.model import Severity

from ..torch_says import TorchSays


class VmapLoops(TorchSays):
    """vmap runs an operator sample by sample."""

    code = "KERN009"
    severity = Severity.NOTE
    warning = "slow vmap"
    defect = "vmap has no batching rule for an operator and runs it sample by sample"
    advice = "Write that operator with the batch dimension, outside vmap."


class SearchOfACopy(TorchSays):
    """searchsorted copies what it is given."""

    code = "KERN010"
    severity = Severity.NOTE
    warning = "search copies"
    defect = "searchsorted() or bucketize() copies a non-contiguous tensor in each call"
    advice = "Call .contiguous() on it once, before."
