"""Targets that are padding, as a mask or lengths of the batch say, in a loss that leaves nothing
out.
"""

from __future__ import annotations

import sys
from collections import UserDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from types import FrameType
from typing import Any

import torch

from auditor.capture.instruments.object_search import frame_locals
from auditor.capture.probes.base import Context

from .function_tape import Call
from .second_gradient import Change

NAMES = frozenset({"cross_entropy", "nll_loss"})
MASKS = ("attention_mask", "padding_mask", "pad_mask", "mask")
LENGTHS = ("lengths", "lens", "seq_lens", "seq_lengths", "lengths_", "length", "num_tokens")
HELD = 256
"""Variables of a frame that are looked at."""

NEAR = 3
"""The user's frames around the loss that are looked at."""

IGNORED = -100
"""What torch leaves out by default."""


@dataclass(frozen=True)
class Beside:
    """A variable beside the loss that may say which targets are padding."""

    name: str
    tensor: torch.Tensor
    is_mask: bool


def beside(context: Context) -> list[Beside]:
    """Masks and lengths that the user's frames around a loss hold, also in the dictionary of a
    batch.
    """
    found: list[Beside] = []
    for frame in context.frames.user_frames(sys._getframe(1), NEAR):
        for name, value in _variables(frame):
            inner = (
                list(value.items())[:HELD]
                if isinstance(value, (dict, UserDict))
                else [(name, value)]
            )
            for key, each in inner:
                if isinstance(each, torch.Tensor) and isinstance(key, str):
                    found.extend(_named(key, each))
    return found


def _variables(frame: FrameType) -> Iterator[tuple[str, Any]]:
    return islice(frame_locals(frame).items(), HELD)


def _named(name: str, tensor: torch.Tensor) -> Iterator[Beside]:
    whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.requires_grad)
    low = name.lower()
    if tensor.dim() == 2 and any(low.endswith(each) for each in MASKS) and tensor.numel() > 1:
        yield Beside(name, tensor, is_mask=True)
    elif whole and tensor.dim() == 1 and any(low.endswith(each) for each in LENGTHS):
        yield Beside(name, tensor, is_mask=False)


@dataclass(frozen=True)
class Padded:
    """Targets that are padding, and a loss without them."""

    change: Change
    padded: int
    targets: int
    value: int | None
    by: str


def padding_of(call: Call) -> Padded | None:
    """The padding among the targets of a loss; None where there is none, the loss leaves some
    targets out, or nothing says what is padding.
    """
    target = call.argument(1, "target")
    if call.name not in NAMES or not call.beside or not isinstance(target, torch.Tensor):
        return None
    if target.is_floating_point() or target.numel() < 2 or not _is_whole(call, target):
        return None
    for each in call.beside:
        real = _real(each, target)
        if real is None:
            continue
        pads = target.flatten()[~real]
        if not 1 < pads.numel() < target.numel() or bool((pads != pads[0]).any()):
            continue
        value = int(pads[0])
        apart = not bool((target.flatten()[real] == value).any())
        if not apart and each.name.lower() == "mask":  # of something else, among many alike
            continue
        return Padded(
            _left_out(real), pads.numel(), target.numel(), value if apart else None, each.name
        )
    return None


def _is_whole(call: Call, target: torch.Tensor) -> bool:
    """The loss is a number, over all targets alike."""
    if call.result.dim() or call.argument(2, "weight") is not None:
        return False
    return not bool((target == ignored_by(call)).any())


def ignored_by(call: Call) -> int:
    """The target that a loss leaves out."""
    index = call.argument(4, "ignore_index", IGNORED)
    return index if isinstance(index, int) else IGNORED


def _real(held: Beside, target: torch.Tensor) -> torch.Tensor | None:
    """For each target whether it is one; None where the variable is no padding of these targets.

    Padding lies at the end of a row, or at its beginning. Targets may be one shorter than the
    mask, which is then the mask of the tokens that they are the next ones of.
    """
    rows = held.tensor.shape[0]
    if target.numel() % rows or (target.dim() > 1 and target.shape[0] != rows):
        return None
    if _is_target(held.tensor, target):
        return None
    if target.dim() > 2 or (target.dim() == 1 and rows == target.numel()):
        return None
    long = target.numel() // rows
    if not held.is_mask:
        real = torch.arange(long, device=held.tensor.device) < held.tensor[:, None]
    else:
        if held.tensor.shape[1] - long not in (0, 1) or not _is_of_zeros_and_ones(held.tensor):
            return None
        real = held.tensor[:, held.tensor.shape[1] - long :].bool()
        if "pad" in held.name.lower() and not bool(real[:, 0].all() or real[:, -1].all()):
            real = ~real
    changes = (real[:, 1:] != real[:, :-1]).sum(1)
    if bool((changes > 1).any()) or not bool(real.any(1).all()):
        return None
    if not (bool(real[:, 0].all()) or bool(real[:, -1].all())):
        return None
    return real.flatten().to(target.device)


def _is_of_zeros_and_ones(mask: torch.Tensor) -> bool:
    return bool(((mask == 0) | (mask == 1)).all())


def _is_target(mask: torch.Tensor, target: torch.Tensor) -> bool:
    """A segmentation's mask is what it predicts."""
    return mask.numel() == target.numel() and bool((mask.flatten() == target.flatten()).all())


def _left_out(real: torch.Tensor) -> Change:
    def change(again: Any) -> Any:
        def without(target: torch.Tensor) -> torch.Tensor:
            return target.masked_fill(~real.view_as(target), IGNORED)

        again.kwargs["ignore_index"] = IGNORED
        args = again.args[:4] + again.args[5:] if len(again.args) > 4 else again.args
        return type(again)(again.function, args, again.kwargs, again.now).with_argument(
            1, "target", without
        )

    return change
