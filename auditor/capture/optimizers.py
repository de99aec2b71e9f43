"""The optimizers of the program, also those that step seldom."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim.optimizer import Optimizer


def live_optimizers() -> list[Optimizer]:
    """All optimizers that exist. Slow: asks all live objects."""
    return [each for each in gc.get_objects() if issubclass(type(each), Optimizer)]


def groups_of(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Its parameter groups; none of one that is half made."""
    return list(getattr(optimizer, "param_groups", ()))


def tensors_of(optimizer: Optimizer) -> Iterator[torch.Tensor]:
    """What it steps."""
    return (tensor for group in groups_of(optimizer) for tensor in group["params"])
