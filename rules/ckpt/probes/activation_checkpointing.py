"""Activation checkpoints whose variant was not chosen, and those of the old variant that lose
gradients.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType, FunctionType, MethodType
from typing import Any

import torch
from torch.utils import checkpoint as torch_checkpoint

from auditor.capture.instruments.plain_tensor import tensors
from auditor.capture.instruments.torch_files import TORCH
from auditor.capture.instruments.user_frames import OWN
from auditor.capture.probes.base import Context, Probe

from ..rows import RecomputeRow

NAMES = {"checkpoint": None, "checkpoint_sequential": 3}
"""Functions that take ``use_reentrant``, and its place where it may be given without its name."""


class ActivationCheckpointingProbe(Probe):
    """Writes ``recompute``. The functions' code is swapped in place, so that names taken before are
    seen too.
    """

    name = "recompute"
    parts = ("recompute",)
    passes = frozenset({"loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._seen: Counter[tuple[int, str, str, bool]] = Counter()

    def start(self) -> None:
        """Swap the functions, below what torch wraps around them."""
        super().start()
        for name, place in NAMES.items():
            function = inspect.unwrap(getattr(torch_checkpoint, name))
            if isinstance(function, FunctionType) and not function.__code__.co_freevars:
                self._patches.code(function, self._hook(name, place))

    def step_end(self) -> None:
        for (at, name, library, lost), n in self._seen.items():
            self.context.add(RecomputeRow(at=at, name=name, library=library, lost=lost, n=n))
        self._seen.clear()

    def _hook(self, name: str, place: int | None) -> Callable[..., Any]:
        def hook(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            given = (
                args[place]
                if place is not None and len(args) > place
                else kwargs.get("use_reentrant")
            )
            at = self.context.frames.here() if given is None and self.context.in_step else None
            result = original(*args, **kwargs)
            if at is not None:
                with contextlib.suppress(Exception):  # what goes in and out is the user's
                    lost = _lost(args[0] if args else kwargs["function"], result)
                    self._seen[at, name, self._library(sys._getframe(0)), lost] += 1
            return result

        return hook

    def _library(self, frame: FrameType | None) -> str:
        """The library whose code makes the call; empty where it is the user's."""
        while frame is not None and frame.f_code.co_filename.startswith((*OWN, TORCH, "<")):
            frame = frame.f_back
        theirs = frame is None or self.context.frames.is_user(frame.f_code.co_filename)
        return "" if theirs or frame is None else self.context.frames.library_name(frame)


def _lost(function: Any, result: Any) -> bool:
    """True if nothing that came out has a gradient, though the module that ran has parameters to
    train.
    """
    module = function.__self__ if isinstance(function, MethodType) else function
    if not torch.is_grad_enabled() or not isinstance(module, torch.nn.Module):
        return False
    came = [tensor for tensor in tensors((result,)) if tensor.is_floating_point()]
    return (
        bool(came)
        and not any(each.requires_grad for each in came)
        and any(p.requires_grad for p in module.parameters())
    )
