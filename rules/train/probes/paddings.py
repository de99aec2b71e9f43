"""Targets that are padding, as a mask, lengths or an embedding say, in a loss that counts them."""

from __future__ import annotations

import dataclasses
import sys
from collections import UserDict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from auditor.capture.instruments.object_search import frame_locals
from auditor.capture.probes.base import Context

from .broadcasts import is_only_summed
from .function_tape import FunctionTape, TapedCall, replaced, version
from .second_gradient import Again, Change, Tail

NAMES = frozenset({"cross_entropy", "nll_loss"})
COMPARING = frozenset({"mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "sub"})
"""What compares sequences of numbers."""

MASKS = ("attention_mask", "padding_mask", "pad_mask", "mask", "padding")
LENGTHS = ("lengths", "lens", "seq_lens", "seq_lengths", "lengths_", "length", "num_tokens")
HELD = 256
"""Variables of a frame that are looked at."""

NEAR = 3
"""The user's frames around the loss that are looked at."""

SEGMENTS = 3
"""Kinds of segments that tokens may belong to."""

IGNORED = -100
"""What torch leaves out by default."""


@dataclass(frozen=True)
class Beside:
    """A variable beside the loss that may say which targets are padding."""

    name: str
    tensor: torch.Tensor
    is_mask: bool
    named: bool = True
    """It is called a mask or lengths; else it is bool and has the form of a mask."""


def beside(context: Context) -> list[Beside]:
    """Masks and lengths in the user's frames around a loss or attention, also inside a batch."""
    found: list[Beside] = []
    for frame in context.frames.user_frames(sys._getframe(1), NEAR):
        for name, value in islice(frame_locals(frame).items(), HELD):
            for key, each in _fields(value) or [(name, value)]:
                if isinstance(each, torch.Tensor) and isinstance(key, str):
                    found.extend(_mask_candidates(key, each))
    return found


def _fields(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, (dict, UserDict)):
        return list(value.items())[:HELD]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return list(zip(value._fields, value, strict=False))
    held = getattr(value, "__dict__", {}) if dataclasses.is_dataclass(value) else {}
    return list(held.items())


def _mask_candidates(name: str, tensor: torch.Tensor) -> Iterator[Beside]:
    whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.requires_grad)
    low = name.lower()
    if tensor.dim() == 3 and 1 in tensor.shape[1:] and not tensor.requires_grad:
        flat = tensor.squeeze(1 if tensor.shape[1] == 1 else 2)  # it is multiplied with a sequence
        if flat.dim() == 2 and flat.numel() > 1:
            yield Beside(name, flat, is_mask=True, named=False)
    named = any(low.endswith(each) for each in MASKS)
    if tensor.dim() == 2 and (named or tensor.dtype is torch.bool) and tensor.numel() > 1:
        yield Beside(name, tensor, is_mask=True, named=named)
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


def may_be_padded(name: str, given: tuple[torch.Tensor, ...]) -> bool:
    """True of a loss over classes, and of a comparison of what the model gave with constants."""
    if name not in COMPARING or len(given) < 2:
        return name in NAMES
    one, two = given[:2]
    return one.dim() > 1 and one.shape == two.shape and one.requires_grad != two.requires_grad


def padding_of(tape: FunctionTape, call: TapedCall) -> Padded | None:
    """The padding among a loss's targets; None if there is none, or nothing says what it is."""
    target = call.argument(1, "target")
    if call.name not in NAMES or call.at is None or not isinstance(target, torch.Tensor):
        return None
    if target.is_floating_point() or target.numel() < 2 or call.result.dim():
        return None
    if call.argument(2, "weight") is not None or bool((target == ignored_by(call)).any()):
        return None
    for each in (*call.beside, *_embedded(tape, target)):
        real = is_real(each, target) if each.named else None
        if real is None:
            continue
        pads = target.flatten()[~real]
        if not 1 < pads.numel() < target.numel() or bool((pads != pads[0]).any()):
            continue
        value = int(pads[0])
        apart = not bool((target.flatten()[real] == value).any())
        # the lengths may be another sequence's, such as those of the source of a translation
        rows = real.view(each.tensor.shape[0], -1)
        if int(rows.sum(1).min()) == int(rows.sum(1).max()):  # what ends every row
            continue
        if not apart and _is_text_there(tape, rows):
            continue
        if not apart and each.name.lower() == "mask":  # of something else, among many alike
            continue
        return Padded(
            _left_out(real), pads.numel(), target.numel(), value if apart else None, each.name
        )
    return None


def _is_text_there(tape: FunctionTape, real: torch.Tensor) -> bool:
    """Some tokens in the form of ``real`` differ where it says padding. The first of each row is left
    out: where targets are the next tokens, the input ends one later.
    """
    behind = ~real
    behind[:, 1:] &= ~real[:, :-1]
    if not bool(behind.any()):  # one in a row may be what ends each text
        return True
    for call in tape.embeddings:
        tokens = call.argument(0, "input")
        if tokens.shape == real.shape and tokens.unique().numel() > SEGMENTS:
            pads, each_row_alike = tokens[behind], bool((tokens == tokens[:1]).all())
            if not each_row_alike and bool((pads != pads[0]).any()):
                return True
    return False


def _embedded(tape: FunctionTape, target: torch.Tensor) -> Iterator[Beside]:
    """The padding of tokens that an embedding with a padding index was given: where targets are
    that index as well, the tokens that follow; or where the tokens are, of a class for each.
    """
    for call in tape.calls.values():
        tokens, index = call.argument(0, "input"), call.argument(2, "padding_idx")
        if call.name != "embedding" or index is None or version(tokens) != call.versions[0]:
            continue
        if tokens.dim() == 2 and tokens.numel() == target.numel():
            pads, real = tokens == index, target.view(tokens.shape) != index
            if bool(pads.any()) and not bool((pads & real).any()):
                yield Beside("padding_idx", real, is_mask=True)
            if bool(pads.any()):
                yield Beside("padding_idx", ~pads, is_mask=True)


def compared_padding(tail: Tail, call: TapedCall) -> Padded | None:
    """The padding of sequences of numbers that a call compares, along their second or last
    dimension; None if a mask follows. 0 are ``padded`` where the model's output is right there.
    """
    if call.name not in COMPARING or not call.beside:
        return None
    one, two = (each for each, _ in call.parents[:2])
    if min(one.dim(), two.dim()) < 2:
        return None
    shape, target = one.shape, two if one.requires_grad else one
    for axis in (1, -1):
        for each in call.beside:
            rows = target.movedim(axis, 1)
            first = rows.reshape(*rows.shape[:2], -1)[..., 0]
            real = is_real(each, first) if each.named else None
            if real is None:
                continue
            real = real.view(rows.shape[:2])
            pads = rows[~real].flatten()
            if not pads.numel() or bool((pads != pads[0]).any()):
                continue
            if call.result.dim() and not is_only_summed(tail, call, real.numel() - 1):
                return None

            def picked(tensor: torch.Tensor, axis: int = axis, real: Any = real) -> torch.Tensor:
                return tensor.movedim(axis, 1)[real] if tensor.shape == shape else tensor

            def change(again: Again, picked: Any = picked) -> Any:
                return again.function(
                    *replaced(again.args, picked), **replaced(again.kwargs, picked)
                )

            wrong = bool((one - two).detach().movedim(axis, 1)[~real].any())
            return Padded(change, wrong * int((~real).sum()), real.numel(), None, each.name)
    return None


def ignored_by(call: TapedCall) -> int:
    """The target that a loss leaves out."""
    index = call.argument(4, "ignore_index", IGNORED)
    return index if isinstance(index, int) else IGNORED


def is_real(held: Beside, target: torch.Tensor) -> torch.Tensor | None:
    """For each target whether it is padding; None if the variable does not describe these targets.

    Padding lies at the end of a row, or at its beginning. Targets may be one shorter than the mask,
    which is then the mask of the tokens that they are the next ones of.
    """
    rows = held.tensor.shape[0]
    if not rows or target.numel() % rows or (target.dim() > 1 and target.shape[0] != rows):
        return None
    alike = held.tensor.numel() == target.numel()
    if alike and bool((held.tensor.flatten() == target.flatten()).all()):
        return None  # a segmentation's mask is what it predicts
    if target.dim() > 2 or (target.dim() == 1 and rows == target.numel()):
        return None
    long = target.numel() // rows
    if not held.is_mask:
        real = torch.arange(long, device=held.tensor.device) < held.tensor[:, None]
    else:
        flags = (held.tensor == 0) | (held.tensor == 1)
        if held.tensor.shape[1] - long not in (0, 1) or not bool(flags.all()):
            return None
        real = held.tensor[:, held.tensor.shape[1] - long :].bool()
        if ("pad" in held.name.lower() or not held.named) and not bool(
            real[:, 0].all() or real[:, -1].all()
        ):
            real = ~real
    changes = (real[:, 1:] != real[:, :-1]).sum(1)
    if bool((changes > 1).any()) or not bool(real.any(1).all()):
        return None
    if not (bool(real[:, 0].all()) or bool(real[:, -1].all())):
        return None
    return real.flatten().to(target.device)


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
