"""Clipping of gradients, by whatever name the user has ``clip_grad_norm_`` and ``clip_grad_value_``."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.nn.utils import clip_grad

from auditor.capture.patching import Patches

_INNER = "_clip_grads_with_norm_"
"""What ``clip_grad_norm_`` calls with the norm that it computed."""

Clips = Callable[[Sequence[torch.Tensor], torch.Tensor], None]


def watch_clipping(patches: Patches, clips: Clips) -> None:
    """Call ``clips`` with the parameters and their norm before they are clipped, until ``patches`` are undone.

    An infinite bound clips nothing: programs use it to ask for the norm. A bound that is a tensor is not read.
    """

    def before(parameters: Any, max_norm: Any, total_norm: torch.Tensor, *_: Any, **__: Any) -> None:
        if not (isinstance(max_norm, float) and math.isinf(max_norm)):
            clips([parameters] if isinstance(parameters, torch.Tensor) else parameters, total_norm)

    if hasattr(clip_grad, _INNER):
        patches.around(clip_grad, _INNER, before=before)


def watch_clipping_by_value(patches: Patches, clips: Callable[[Sequence[torch.Tensor]], None]) -> None:
    """Call ``clips`` with the parameters before the elements of their gradients are clipped, until ``patches`` are undone."""

    def around(original: Callable[..., None], parameters: Any, *args: Any, **kwargs: Any) -> None:
        clipped = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)  # an iterator is gone through once
        with contextlib.suppress(Exception):
            clips(clipped)
        original(clipped, *args, **kwargs)

    by_value = getattr(clip_grad.clip_grad_value_, "__wrapped__", None)
    if isinstance(by_value, FunctionType):
        patches.code(by_value, around)
