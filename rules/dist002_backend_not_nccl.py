"""DIST002: a job on GPUs communicates with a backend of the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.trace.distributed import Job
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class BackendOfTheHost(Rule):
    """
    Ranks with GPUs communicate over a backend of the host.

    ## What it finds
    A trace of a rank whose device computes, whose process group says ``gloo`` or ``mpi``, and on
    whose device no collective ran. It is a note where the trace shows no operator of the process
    group at all. A job without GPU work is silent.

    ## Why it costs
    Gloo copies each bucket of gradients to the host, reduces it there and copies it back, and the
    copies wait for the device.

    ## Example
    ```python
    # needs: ranks
    import os
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517", RANK="0", WORLD_SIZE="1")
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    model = torch.nn.Linear(512, 512, device="cuda")
    x = torch.ones(64, 512, device="cuda")

    def step():
        model(x).mean().backward()
        dist.all_reduce(model.weight.grad)
    ```

    ## Use instead
    ```python
    # needs: ranks
    import torch

    model = torch.nn.Linear(512, 512, device="cuda")
    x = torch.ones(64, 512, device="cuda")

    def step():
        model(x).mean().backward()
    ```
    With several ranks: ``dist.init_process_group("nccl")``, or ``"cpu:gloo,cuda:nccl"`` where
    tensors of the host are sent too.

    ## When to ignore
    Only small control messages go over this group, or the devices cannot reach one another.

    ## Sources
    torch_tb_profiler warns of a backend other than NCCL from compute capability 3.5 on.
    """

    code = "DIST002"
    severity = Severity.WARNING
    since = "0.1"

    least: int = knob(1, "Operators of process groups in the trace below which it is a note.")

    def detect(self, job: Job) -> Iterator[Finding]:
        host_only = job.backend in ("gloo", "mpi")
        if not host_only or not job.kernels or job.collectives or job.world_size < 2:
            return
        loud = job.operators >= self.least
        yield Finding(
            None,
            f"{job.world_size} ranks with GPUs communicate over {job.backend}: gradients go "
            "through the host's memory",
            steps=job.steps if job.marked else 0,
            per_step=job.operators / job.steps if job.marked else 0.0,
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=(
                ("operators of process groups", f"{job.operators:,}"),
                ("kernels on the device", f"{job.kernels:,}"),
            ),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            'Call torch.distributed.init_process_group("nccl") (RCCL answers to that name on AMD).'
        )
