"""Consecutive pieces of one tensor, each the target of a mean of its own: windows of a series,
micro-batches of a batch. All are equally long but the last.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from auditor.capture.instruments.autograd_graph import node_of, walk
from auditor.capture.instruments.storages import storage_bytes, storage_key

from .function_tape import FunctionTape, TapedCall

FEWEST = 3
"""Pieces of a step, at least: of two, the second may be another task."""

WALKED = 64
"""Tensors that are looked at in front of a mean."""


@dataclass(frozen=True)
class Piece:
    """Where a tensor lies in its storage."""

    storage: int
    room: int
    """Numbers of the tensor that it was cut from, or that the storage has room for."""
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def follows(self, other: "Piece", axis: int) -> bool:
        """It is the same but in this dimension, in which it begins where the other ends, or behind."""
        if (self.storage, self.strides) != (other.storage, other.strides):
            return False
        stride, behind = self.strides[axis], self.offset - other.offset
        sizes = (each.shape[:axis] + each.shape[axis + 1 :] for each in (self, other))
        return len({*sizes}) == 1 and behind >= stride * other.shape[axis] and not behind % stride


def pieces_in(tape: FunctionTape, call: TapedCall, numbers: int) -> tuple[Piece, ...]:
    """Data that went into a mean over so many numbers, number by number."""
    found: dict[Piece, None] = {}
    seen: set[int] = set()
    waiting = list(call.parents)
    while waiting and len(seen) < WALKED:
        tensor, number = waiting.pop()
        if tensor.numel() != numbers or id(tensor) in seen:
            continue
        seen.add(id(tensor))
        made = None if number is None else tape.calls.get(number)
        waiting += () if made is None else made.parents
        storage, room = storage_key(tensor), storage_bytes(tensor)
        if storage is None or room is None or tensor.requires_grad or 0 in tensor.stride():
            continue
        room //= tensor.element_size()
        for each, _ in () if made is None else made.parents:
            if each.numel() > numbers and storage_key(each) == storage:
                room = each.numel()
        place = Piece(
            storage, room, int(tensor.storage_offset()), tuple(tensor.shape), tensor.stride()
        )
        found[place] = None
    return tuple(found)


def is_cut(means: Sequence[tuple[Piece, ...]]) -> bool:
    """One tensor was cut, in this order, into pieces that are equally long but for the last, which is
    shorter. Of rows these must be all: the last micro-batch of an epoch may be smaller.
    """
    return len(means) >= FEWEST and any(
        _is_cut(first, means[1:], axis) for first in means[0] for axis in range(len(first.shape))
    )


def _is_cut(first: Piece, means: Sequence[tuple[Piece, ...]], axis: int) -> bool:
    chain = [first]
    for pieces in means:
        following = next((each for each in pieces if each.follows(chain[-1], axis)), None)
        if following is None:
            return False
        chain.append(following)
    *equal, last = (each.shape[axis] for each in chain)
    whole = axis > 0 or sum(math.prod(each.shape) for each in chain) == first.room
    return whole and len({*equal}) == 1 and 0 < last < equal[0]


def one_model_each(losses: Sequence[torch.Tensor]) -> bool:
    """The same parameters, or some of them, are applied for each loss anew: these are no slices of
    one result, and come from no heads of their own.
    """
    before: set[object] = set()
    applied: list[frozenset[int]] = []
    for loss in losses:
        walked = walk([node_of(loss)])
        if walked.capped:
            return False
        fresh = [node for node in walked.nodes if node not in before]
        before.update(fresh)
        used = {after for node in fresh for after, _ in node.next_functions}
        applied.append(parameters_of(leaf.variable for leaf in walked.leaves if leaf in used))
    return all(nested(applied[0], each) for each in applied)


def parameters_of(leaves: Iterable[torch.Tensor]) -> frozenset[int]:
    """Identities of the parameters among them: not those of inputs that require a gradient."""
    return frozenset(id(each) for each in leaves if isinstance(each, torch.nn.Parameter))


def nested(one: frozenset[int], two: frozenset[int]) -> bool:
    """One of them has all of the other's, which has some."""
    return bool(one and two) and (one <= two or two <= one)
