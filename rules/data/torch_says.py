"""DATA013: arrays that torch warns of."""

from __future__ import annotations

from auditor.model import Severity

from ..torch_says import TorchSays


class ArrayNotWritable(TorchSays):
    """A tensor shares memory that must not be written."""

    code = "DATA013"
    severity = Severity.NOTE
    warning = "array not writable"
    defect = (
        "a tensor shares the memory of a read-only array: an in-place operation would write to it"
    )
    advice = "Copy it first: torch.from_numpy(array.copy())."
