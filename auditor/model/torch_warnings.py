"""Warnings of torch that name a defect of a training step: how their texts begin, as torch 2.8 to
2.15 have them (docs/decisions/0037-torch-says.md lists those that were left).
"""

from __future__ import annotations

import re

TEXTS = {
    "scheduler first": r"Detected call of `lr_scheduler\.step\(\)` before `optimizer\.step\(\)`",
    "scheduler epoch": r"The epoch parameter in `scheduler\.step\(\)` was not necessary",
    "empty clipping": r"`parameters` is an empty generator, no gradient clipping will occur",
    "parameter twice": r"optimizer contains a parameter group with duplicate parameters",
    "grad of non-leaf": r"The \.grad attribute of a Tensor that is not a leaf Tensor is being acc",
    "tensor of tensor": r"To copy construct from a tensor, it is recommended to use sourceTensor",
    "too few for std": r"(std|var)\w*\(\): degrees of freedom is <= 0",
    "imaginary part": r"Casting complex values to real discards the imaginary part",
    "mean of kl_div": r"reduction: 'mean' divides the total loss by both the batch size and the",
    "softmax without dim": r"Implicit dimension choice for \w+ has been deprecated",
    "dropout of one layer": r"dropout option adds dropout after all but last recurrent layer",
    "reversed dimensions": r"The use of `x\.(T|mT|H|mH)` on tensors of dimension other than 2",
    "dropout2d of 3-D": r"dropout2d: Received a 3D input to dropout2d and assuming",
    "array not writable": r"The given (NumPy array|buffer) is not writable",
    "slow vmap": r"There is a performance drop because we have not yet implemented the batching",
    "search copies": r"torch\.searchsorted\(\): .* tensor is non-contiguous, this will lower the",
    "checkpoint variant": r"torch\.utils\.checkpoint.*: [Tt]he use_reentrant parameter should be",
}
"""Regular expressions by the name that a rule asks for."""

_EACH = {name: re.compile(text, re.DOTALL) for name, text in TEXTS.items()}

ANY = re.compile("|".join(f"(?:{text})" for text in TEXTS.values()), re.DOTALL)
"""Matches each of them."""


def name_of(text: str) -> str | None:
    """The name of the warning that begins so; None of another one."""
    return next((name for name, begins in _EACH.items() if begins.match(text)), None)
