"""DIST011: the ranks call different collectives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import CollectiveOrder, Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .placing import places_of


@dataclass(frozen=True)
class RanksPart(Rule):
    """
    The ranks do not call the same collectives in the same order

    ## What it finds
    The first call of a collective over all ranks (`all_reduce`, `broadcast`, `barrier` and the
    like) that one rank makes where another calls another one, gives a tensor of another size, or
    goes on with its next step. Each call is written down before it is made, so that both lines are
    known when the job hangs. Of ranks that are rehearsed (`--world`) those count too that DDP, FSDP
    and DTensor issue, as an evaluation of a sharded model on one rank does. Silent: groups of a
    part of the ranks, and a rank that died before.

    ## Why it costs
    A collective ends when all ranks have called it: the job hangs until the time-out of its
    backend, ends with an error about another place, or mixes up numbers without one.

    ## Example
    ```python
    # needs: ranks
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(8, 1, device="cuda"))

    def step():
        loss = model(torch.randn(8, 8, device="cuda")).square().mean()
        loss.backward()
        if dist.get_rank() == 0:
            dist.all_reduce(loss.detach())
            print(loss)
    ```

    ## Use instead
    ```python
    # needs: ranks
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(8, 1, device="cuda"))

    def step():
        loss = model(torch.randn(8, 8, device="cuda")).square().mean()
        loss.backward()
        dist.all_reduce(loss.detach())
        if dist.get_rank() == 0:
            print(loss)
    ```

    ## When to ignore
    Never, for ranks of one group.

    ## Sources
    PyTorch documentation of ``torch.distributed``: collectives must be called by all ranks in the
    same order.
    """

    code = "DIST011"
    severity = Severity.ERROR
    since = "0.1"

    sizes: bool = knob(True, "Whether tensors of different sizes are reported, too.")

    def detect(self, order: CollectiveOrder, machine: Machine) -> Iterator[Finding]:
        parting = order.parting
        if parting is None:
            return
        one, other = parting.one, parting.other
        if other is None:
            there = f"rank {parting.other_rank} goes on to its next step without it"
        elif other.what != one.what or other.numbers == one.numbers:
            there = f"rank {other.rank} calls {other.what} at {other.site}"
        elif self.sizes:
            there = f"rank {other.rank} gives {amounts.count(other.numbers, 'number')}"
            there += f" and rank {one.rank} {one.numbers:,}"
        else:
            return
        before = (other.site,) if other is not None and other.site != one.site else ()
        yield Finding(
            one.site,
            f"rank {one.rank} calls {one.what} here, and {there}: the ranks wait for different "
            "collectives",
            steps=1,
            seen_on=machine.device,
            facts=(
                ("collectives before it that all call", f"{parting.number:,}"),
                ("steps that rank had begun", f"{one.step:,}"),
            ),
            places=places_of(one.site, *before),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Call it on every rank, outside of `if rank == 0` and of branches on values that differ "
            "between ranks; only what is written or printed belongs there."
        )
