"""DIST015: every rank saves the same state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Machine, RankSaves
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class SavedByAll(Rule):
    """
    Every rank saves the same state

    ## What it finds
    A line on which all ranks call `torch.save` with the same tensors, into files of their own or,
    worse, into one. The full state of a sharded model counts, gathered on each rank
    (`full_state_dict=True`). Silent: files below 256 KiB, shards, ranks whose tensors differ, and
    jobs with one rank on each machine, whose disks may be their own.

    ## Why it costs
    The state is gathered, held and written as many times as there are ranks. All of them stand
    still for it, and share the storage's bandwidth. Ranks that write one file at the same time may
    leave a damaged one.

    ## Example
    ```python
    # needs: ranks
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(512, 512, device="cuda"))

    def step():
        model(torch.randn(8, 512, device="cuda")).square().mean().backward()
        torch.save(model.module.state_dict(), f"last-{dist.get_rank()}.pt")
    ```

    ## Use instead
    ```python
    # needs: ranks
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(512, 512, device="cuda"))

    def step():
        model(torch.randn(8, 512, device="cuda")).square().mean().backward()
        if dist.get_rank() == 0:
            torch.save(model.module.state_dict(), "last.pt")
    ```

    ## When to ignore
    Each process has a storage of its own and must find the file there.

    ## Sources
    PyTorch documentation: "Getting Started with Distributed Data Parallel" (save in one process);
    ``torch.distributed.checkpoint`` and ``StateDictOptions``, where ``full_state_dict`` with
    ``cpu_offload`` gathers on rank 0 alone. The thresholds are ours.
    """

    code = "DIST015"
    severity = Severity.WARNING
    since = "0.1"

    least: int = knob(1 << 18, "Bytes of the file from which it is reported.")

    def detect(self, saves: RankSaves, machine: Machine) -> Iterator[Finding]:
        for each in saves.each:
            if each.nbytes < self.least:
                continue
            where = "into one file" if each.one_file else "into a file of its own"
            yield Finding(
                each.site,
                f"each of {each.ranks} ranks saves the same tensors, "
                f"{amounts.size(each.nbytes)}, {where}",
                steps=each.saves,
                seen_on=machine.device,
                facts=(
                    ("saves that were alike", str(each.saves)),
                    ("written for nothing", f"{_extra(each.nbytes, each.ranks)} each time"),
                    ("a save of another rank took", amounts.duration(each.us)),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Save on rank 0 alone (`if dist.get_rank() == 0:`; what gathers the state stays on all "
            "ranks). Of a sharded model, let torch.distributed.checkpoint save each rank's part, "
            "or gather with StateDictOptions(full_state_dict=True, cpu_offload=True)."
        )


def _extra(nbytes: int, ranks: int) -> str:
    return amounts.size(nbytes * (ranks - 1))
