"""MEM008: sizes that vary from step to step make the allocator obtain memory again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import LateGrowth, Machine, VaryingSizes
from auditor.evidence.snapshot.varying_sizes import Varying
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .placing import places_of

MIB = 2**20

OWN = 0.75
"""Share of the steps with a size of their own from which few meet one again."""

APART = 2.0
"""The largest size as a multiple of the smallest from which sizes lie far apart."""


@dataclass(frozen=True)
class VaryingSizesReallocate(Rule):
    """
    Sizes that vary from step to step are allocated anew.

    ## What it finds
    The line with which each step begins to have sizes of its own: a batch that is padded to its
    longest sample, a random resize or crop, a mask. It is the first line of the step whose
    allocations differ between steps of the same course, where the rest of the step follows it; if
    that line only moves a batch to the device, the line that pads or cuts it (in the collate
    function, the dataset or the step) is named instead. The recorded steps are replayed through a
    simulation of torch's caching allocator, as they were and in other orders, and with the largest
    size in each step: what is reserved in vain is the difference. A program that needs less than
    1 GiB is replayed with everything in its steps enlarged to 16 GiB, since its steps fit into a
    few of the allocator's 20 MiB segments, which hides what the same code does at the size of a
    training. What is found by enlarging is a note: the program as it ran lost nothing. A part in
    vain that is smaller is enough there where nearly each step has a size of its own, the largest
    twice the smallest, and expandable segments would reserve much less (several scales of images).

    Besides, lines that, in the second half of the allocation history, ask for sizes they never
    asked for before and get them from the device although enough bytes lay free in older blocks.
    Reported only where the reserved memory rose by much more than the tensors needed.

    Silent are a few sizes (lengths rounded up to multiples of something, a last batch, an
    evaluation), sizes that hardly differ, a warm-up that ends, and what grows in each step (MEM003).
    Where a function pads each batch to its own longest part and rounds that to nothing, three sizes
    are enough: the longest of many samples lie close together, and a long run meets the others.

    ## Why it costs
    A cached block serves requests up to its own size: each longer batch gets new memory while the
    blocks of shorter ones stay. Each ``cudaMalloc`` also holds up the host.

    ## Example
    ```python
    # needs: rehearsal
    import torch

    lengths = iter(range(10, 100))

    def step():
        batch = torch.empty(next(lengths) * 2**23, dtype=torch.uint8, device="cuda")
        del batch
    ```

    ## Use instead
    ```python
    # needs: rehearsal
    import torch

    lengths = iter(range(10, 100))
    buffer = torch.empty(100 * 2**23, dtype=torch.uint8, device="cuda")

    def step():
        batch = buffer[: next(lengths) * 2**23]
        del batch
    ```
    Or pad to a few lengths, run the longest batch first, or let segments grow with
    ``expandable_segments:True``.

    ## When to ignore
    The longest batch comes early in a real epoch, and the memory suffices. A small model that stays
    small.

    ## Sources
    PyTorch's performance guide ("Preallocate memory in case of variable input length"). The
    thresholds are ours: seven programs with such sizes reserved 41 to 59 % in vain, enlarged
    to 16 GiB; steps with a single size reserve nothing in vain.
    """

    code = "MEM008"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    native = True

    share: float = knob(
        0.1, "Share of the reserved memory that came in the second half without need."
    )
    least_mib: float = knob(256.0, "The same in MiB.")
    times: int = knob(3, "New sizes that a line must have got from the device to be shown.")
    known: int = knob(
        3,
        "Sizes that it must have asked for before: one whose first half had one size has no "
        "varying input.",
    )

    sizes: int = knob(5, "Sizes among the steps from which they are many.")
    padded: int = knob(
        3,
        "The same where the source pads each batch to its own longest part, and nothing rounds "
        "that: the longest of a batch lie close together, and yet need blocks of their own.",
    )
    grid: int = knob(
        8, "Sizes of a grid that holds all of them up to which they are few (rounded lengths)."
    )
    late: int = knob(3, "Sizes that the second half of the steps must have: a warm-up ends.")
    spread: float = knob(1.1, "The largest size as a multiple of the smallest.")
    small_share: float = knob(
        0.2, "Share of the reserved memory in vain, of a small program that is enlarged."
    )

    wide_share: float = knob(
        0.05,
        "The same where three quarters of the steps have a size of their own, the largest twice "
        "the smallest, and expandable segments would reserve `small_share` less.",
    )

    def detect(
        self, growth: LateGrowth, varying: VaryingSizes, machine: Machine
    ) -> Iterator[Finding]:
        found = varying.varying
        if found is not None and self._many(found):
            yield self._told(found, varying.steps, machine)
            return
        wasted = growth.wasted_bytes
        if wasted < self.least_mib * MIB or wasted < self.share * growth.peak_reserved:
            return
        for line in growth.lines:
            if len(set(line.new)) < self.times or len(line.known) < self.known:
                continue
            yield Finding(
                line.site,
                f"{len(line.new)} sizes from {amounts.size(line.new[0])} to "
                f"{amounts.size(line.new[-1])} were allocated anew here while "
                f"shorter blocks lay free: the allocator holds {amounts.size(wasted)} more than "
                "the tensors needed more",
                lost_bytes=wasted,
                basis=machine.bytes_basis,
                seen_on="snapshot",
                facts=(
                    ("reserved rose by", amounts.size(growth.reserved)),
                    ("allocated rose by", amounts.size(growth.allocated)),
                    ("sizes before", f"{len(line.known)}, up to {amounts.size(line.known[-1])}"),
                ),
            )

    def _many(self, found: Varying) -> bool:
        """Whether the sizes are many, differ, and cost."""
        scaled = found.outcomes.scale != 1.0
        least = self.share
        if scaled:
            least = self.wide_share if self._wide(found) else self.small_share
        if found.grows or found.outcomes.share < least:
            return False
        if found.unrounded and found.distinct >= self.padded and found.late > 1:
            return found.outcomes.share >= self.small_share
        return (
            found.distinct >= self.sizes
            and found.late >= self.late
            and found.grid > self.grid
            and found.spread >= self.spread
        )

    def _wide(self, found: Varying) -> bool:
        """Few steps meet a size again, and the sizes lie far apart: a longer run meets more."""
        came = found.outcomes
        apart = found.spread >= APART and found.distinct >= OWN * len(found.sizes)
        return apart and came.reserved - came.expandable >= self.small_share * came.reserved

    def _told(self, found: Varying, steps: int, machine: Machine) -> Finding:
        came, size = found.outcomes, amounts.size
        scaled = came.scale != 1.0
        where = f"enlarged to {size(came.peak)} these steps" if scaled else "they"
        line = f"{found.site.file}:{found.site.line}"
        moved = f" ({line} moves them to the device)" if found.made_at else ""
        return Finding(
            found.made_at or found.site,
            f"each step has its own sizes from here on, {found.distinct} from "
            f"{size(min(found.sizes))} to {size(max(found.sizes))} in {steps} steps{moved}: {where} "
            f"reserve {size(came.reserved)}, with one size {size(came.fixed)}",
            steps=steps,
            per_step=1.0,
            lost_bytes=None if scaled else came.extra,
            basis="none" if scaled else "estimated",
            seen_on=machine.device,
            severity=Severity.NOTE if scaled else None,
            places=places_of(found.made_at, found.site),
            facts=(
                ("first on the device", line),
                *([("enlarged", f"{came.scale:.0f} times")] if scaled else []),
                ("needed by tensors", size(came.peak)),
                ("reserved, as it is", size(came.reserved)),
                ("with the largest size in each step", size(came.fixed)),
                ("with four sizes", size(came.bucketed)),
                ("with expandable_segments:True", size(came.expandable)),
            ),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Pad batches to a few lengths, run the longest once before the loop, or write into a "
            "buffer that is allocated once; "
            "expandable_segments:True lets blocks grow instead.",
            config={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
        )
