"""ZeRO by arithmetic: what a rank of N would hold if optimizer state, gradients and parameters were
split. Estimates; nothing is run for them.
"""

from __future__ import annotations

from dataclasses import dataclass

from auditor.extensions.plan.measured import Measured

PARAMETERS, GRADIENTS, STATE = "parameters", "gradients", "optimizer state"
"""Purposes as the memory at the peak is split into them."""

GATHERED = 2
"""Blocks whose whole parameters a rank of ZeRO-3 holds at once: the one that runs, and the next one,
which is fetched meanwhile.
"""


@dataclass(frozen=True)
class Stage:
    """One way to split. ``also`` are bytes that a rank holds besides."""

    name: str
    split: tuple[str, ...]
    change: str
    also: int = 0

    def peak(self, base: Measured, world: int) -> int:
        """The peak of a rank, where all of the peak but what is split stays."""
        saved = sum(base.purpose(name) for name in self.split)
        return base.allocated - saved + -(-saved // world) + self.also


def stages(base: Measured, world: int) -> tuple[Stage, ...]:
    """The ways that can be estimated; none where the peak's purposes are not known. ZeRO-3 needs
    blocks that repeat: else nobody knows how much is gathered at once.
    """
    if not base.purpose(PARAMETERS):
        return ()
    found = [
        Stage(
            "ZeRO-1",
            (STATE,),
            "torch.distributed.optim.ZeroRedundancyOptimizer(params, optimizer_class=...)",
        ),
        Stage(
            "ZeRO-2",
            (STATE, GRADIENTS),
            "fully_shard(model, reshard_after_forward=False)",
            -(-base.purpose(PARAMETERS) // world),  # the shard, beside the whole
        ),
    ]
    if base.blocks is not None:
        name = base.blocks.name.rpartition(":")[2]
        also = (GATHERED + 1) * base.blocks.bytes  # and the gradients of one, before they are split
        found.append(
            Stage(
                "ZeRO-3",
                (STATE, GRADIENTS, PARAMETERS),
                f"fully_shard(block) for each {name}, then fully_shard(model)",
                also,
            )
        )
    return tuple(found)
