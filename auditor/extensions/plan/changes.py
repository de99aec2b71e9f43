"""What can be changed in a program without a rewrite, which of it applies, and the line to write."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from auditor.extensions.plan.measured import UPDATE, Measured
from auditor.extensions.plan.reruns import ALLOCATOR, with_setting
from auditor.runs.plan import Change

SEGMENTS = "expandable_segments:True"

CHECKPOINTED, AUTOCAST, ONE_BY_ONE, FUSED, EXPANDABLE = (
    "activation checkpointing",
    "bf16 autocast",
    "optimizer foreach=False",
    "optimizer fused=True",
    "expandable_segments",
)
EPOCH = "largest of an epoch"
TOGETHER = "checkpointing and bf16"

BELOW = 0.98
"""Share of the peak that the optimizer's step must reach for another way to step to lower it."""

BEYOND = 1.02
"""How many times what tensors hold must be reserved for a setting of the allocator to matter."""


@dataclass(frozen=True)
class Option:
    """One thing to change: what the re-run does and the user writes. With ``why`` it is not one."""

    name: str
    text: str = ""
    change: Change = field(default_factory=Change)
    allocator: str = ""
    why: str = ""
    needed: str = ""
    """What the re-run must say that it changed."""


def options(base: Measured, allocator: str) -> Iterator[Option]:
    """All of them, in the order of the table; ``allocator`` are the environment's settings."""
    yield _largest(base)
    checkpointed, autocast = _checkpointed(base), _autocast(base)
    yield checkpointed
    yield autocast
    if not checkpointed.why and not autocast.why:
        both = msgspec.structs.replace(checkpointed.change, autocast=autocast.change.autocast)
        yield Option(TOGETHER, "both of the above", both, needed="checkpointed")
    yield _optimizer(base, ONE_BY_ONE, "foreach", wanted=False)
    yield _optimizer(base, FUSED, "fused", wanted=True)
    if "expandable_segments" in allocator:
        yield Option(EXPANDABLE, why="the environment sets it already")
    elif base.reserved < BEYOND * base.allocated:
        yield Option(EXPANDABLE, why="hardly more is reserved than tensors hold")
    else:
        setting = f"{ALLOCATOR[-1]}={with_setting(SEGMENTS)} in the environment"
        yield Option(EXPANDABLE, setting, allocator=SEGMENTS)


def _largest(base: Measured) -> Option:
    """The largest batch of an epoch in the place of one of the first, which may be short ones."""
    why = ""
    if not base.loaders:
        why = "no DataLoader made the batches"
    elif all(each.even for each in base.loaders):
        why = "the samples of all batches seen are of one size"
    return Option(EPOCH, change=Change(largest=True), why=why, needed="largest")


def _checkpointed(base: Measured) -> Option:
    blocks = base.blocks
    if blocks is None:
        return Option(
            CHECKPOINTED, why="no ModuleList or Sequential of blocks of one class was called"
        )
    name = blocks.name.rpartition(":")[2]
    where = ""
    if base.blocks_at is not None:
        where = f" ({base.blocks_at.file}:{base.blocks_at.line})"
    text = (
        f"call each of the {blocks.n} {name} as torch.utils.checkpoint.checkpoint(block, x, "
        f"use_reentrant=False){where}"
    )
    return Option(CHECKPOINTED, text, Change(checkpointed=blocks.name), needed="checkpointed")


def _autocast(base: Measured) -> Option:
    why = ""
    if base.autocast:
        why = "the program uses autocast already"
    elif not base.float32:
        why = "no parameter to train is in float32"
    text = 'with torch.autocast("cuda", dtype=torch.bfloat16): around forward and loss'
    return Option(AUTOCAST, text, Change(autocast="bfloat16"), why=why, needed="autocast")


def _optimizer(base: Measured, name: str, setting: str, *, wanted: bool) -> Option:
    taking = [each for each in base.optimizers if setting in each.takes]
    free = [each for each in taking if setting not in (each.on if wanted else each.off)]
    if not wanted:  # fused runs without lists of tensors already
        free = [each for each in free if "fused" not in each.on]
    if not free:
        made = ", ".join(dict.fromkeys(each.name for each in base.optimizers)) or "no optimizer"
        return Option(name, why=f"it has that already, or takes no {setting} ({made})")
    peak = max(base.phases.values(), default=0)
    if base.phases.get(UPDATE, peak) < BELOW * peak:
        return Option(name, why="the peak is not in the optimizer's step")
    at = base.optimizer_at
    where = f" ({at.file}:{at.line})" if at is not None else ""
    text = f"{free[0].name}(..., {setting}={wanted}){where}"
    return Option(name, text, Change(optimizer={setting: wanted}), needed="optimizer")


# -- sharding --------------------------------------------------------------------------------------
# ZeRO by arithmetic: what a rank of N would hold if optimizer state, gradients and parameters were
# split. Estimates; nothing is run for them.


PARAMETERS, GRADIENTS, STATE = "parameters", "gradients", "optimizer state"
"""Purposes as the memory at the peak is split into them."""

GATHERED = 2
"""Blocks that a rank of ZeRO-3 holds whole at once: the running one and the next, fetched."""


class Stage(NamedTuple):
    """One way to split, and the peak of a rank: all of the peak but what is split stays whole."""

    name: str
    change: str
    peak: int


def stages(base: Measured, world: int) -> Iterator[Stage]:
    """The ways that can be estimated; none where the peak's purposes are not known. ZeRO-3 needs
    blocks that repeat: else the size gathered at once is unknown.
    """
    parameters, state = base.purpose(PARAMETERS), base.purpose(STATE)
    if not parameters:
        return

    def without(split: int) -> int:
        return base.allocated - split + -(-split // world)

    optimizer = "torch.distributed.optim.ZeroRedundancyOptimizer(params, optimizer_class=...)"
    yield Stage("ZeRO-1", optimizer, without(state))
    split = state + base.purpose(GRADIENTS)
    shard = -(-parameters // world)  # beside the whole
    yield Stage("ZeRO-2", "fully_shard(model, reshard_after_forward=False)", without(split) + shard)
    if base.blocks is not None:
        name = base.blocks.name.rpartition(":")[2]
        also = (GATHERED + 1) * base.blocks.bytes  # and the gradients of one, before they are split
        change = f"fully_shard(block) for each {name}, then fully_shard(model)"
        yield Stage("ZeRO-3", change, without(split + parameters) + also)
