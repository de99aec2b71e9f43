"""Clipping of gradients, by any name for ``clip_grad_norm_`` and ``clip_grad_value_``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import torch
from torch.nn.utils import clip_grad

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.training import CLIP_BY_NORM, clips_by_norm

Clips = Callable[[Sequence[torch.Tensor], torch.Tensor], None]


def watch_clipping(patches: Patches, clips: Clips) -> None:
    """Call ``clips`` with the parameters and their norm before they are clipped, until ``patches``
    are undone.

    An infinite bound clips nothing: programs use it to ask for the norm. A bound that is a tensor
    is not read.
    """

    def before(
        parameters: Any, max_norm: Any, total_norm: torch.Tensor, *_: Any, **__: Any
    ) -> None:
        if not (isinstance(max_norm, float) and math.isinf(max_norm)):
            clips([parameters] if isinstance(parameters, torch.Tensor) else parameters, total_norm)

    if clips_by_norm is not None:
        patches.around(clip_grad, CLIP_BY_NORM, before=before)


def watch_clipping_by_value(
    patches: Patches, clips: Callable[[Sequence[torch.Tensor]], None]
) -> None:
    """Call ``clips`` with the parameters before the elements of their gradients are clipped, until
    ``patches`` are undone.
    """
    told = patches.guarded(clips)

    def around(original: Callable[..., None], parameters: Any, *args: Any, **kwargs: Any) -> None:
        # an iterator is gone through once
        clipped = [parameters] if isinstance(parameters, torch.Tensor) else list(parameters)
        told(clipped)
        original(clipped, *args, **kwargs)

    by_value = getattr(clip_grad.clip_grad_value_, "__wrapped__", None)
    if isinstance(by_value, FunctionType):
        patches.code(by_value, around)
