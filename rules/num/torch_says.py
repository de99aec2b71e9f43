"""NUM016 and 17: numbers that torch warns are lost."""

from __future__ import annotations

from auditor.model import Severity

from ..torch_says import TorchSays


class StdOfTooFew(TorchSays):
    """A standard deviation of one number is taken."""

    code = "NUM016"
    severity = Severity.NOTE
    warning = "too few for std"
    defect = "std() or var() of a single number is NaN: it divides by the count minus one"
    advice = "Pass correction=0, or drop batches of one sample (drop_last=True)."


class ImaginaryPartDropped(TorchSays):
    """A complex tensor becomes a real one."""

    code = "NUM017"
    severity = Severity.NOTE
    warning = "imaginary part"
    defect = "a complex tensor becomes real: its imaginary part is dropped"
    advice = "Say which part is meant: .real, .abs(), or torch.view_as_real()."
