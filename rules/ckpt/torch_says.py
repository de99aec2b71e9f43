"""CKPT002: a variant of checkpointing that torch asks to choose."""

from __future__ import annotations

from auditor.model import Severity

from ..torch_says import TorchSays


class CheckpointVariantNotChosen(TorchSays):
    """Activation checkpointing is not told its variant."""

    code = "CKPT002"
    severity = Severity.NOTE
    warning = "checkpoint variant"
    defect = (
        "checkpoint() without use_reentrant is the old variant, which gives no gradient if "
        "no input has one; torch will refuse the call"
    )
    advice = "Pass use_reentrant=False."
