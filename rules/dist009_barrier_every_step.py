"""DIST009: the ranks wait for one another on each step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Collectives, Machine, Source
from auditor.model import Edit, Finding, Remedy, Severity
from auditor.permit import Permit
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class BarrierEveryStep(Rule):
    """
    All ranks wait for one another on each step, by a call of barrier

    ## What it finds
    A line that calls `torch.distributed.barrier` on at least half of the instrumented steps, where
    there are several ranks. Barriers now and then, as before and after a checkpoint, are silent.

    ## Why it costs
    Every rank waits for the slowest one, and on GPUs the host waits for the device as well, so that
    no rank can prepare the next kernels. Collectives need none: each of them waits for the tensors
    of all ranks by itself.

    ## Example
    ```python
    # needs: ranks
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(64, 64, device="cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 64, device="cuda")).square().mean().backward()
        optimizer.step()
        dist.barrier()
    ```

    ## Use instead
    ```python
    # needs: ranks
    import torch
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(torch.nn.Linear(64, 64, device="cuda"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 64, device="cuda")).square().mean().backward()
        optimizer.step()
    ```

    ## When to ignore
    Something outside of torch must not begin before all ranks have come there, such as a file that
    one of them writes.

    ## Sources
    PyTorch documentation of ``torch.distributed.barrier`` and of synchronous collectives. The
    thresholds are ours.
    """

    code = "DIST009"
    severity = Severity.WARNING
    since = "0.1"
    edits = (Permit("drop_statement", ("torch.distributed.barrier", ".barrier", "barrier")),)

    share: float = knob(0.5, "Share of the steps from which it is reported.")
    ranks: int = knob(2, "Ranks below which nobody waits.")

    def detect(
        self, collectives: Collectives, machine: Machine, source: Source
    ) -> Iterator[Finding]:
        for each in collectives.each:
            if each.what != "barrier" or each.ranks < self.ranks:
                continue
            if not each.pattern.usual(self.share):
                continue
            yield Finding(
                each.site,
                f"{each.ranks} ranks wait for one another on {each.pattern}",
                steps=len(each.pattern.seen),
                per_step=each.per_step,
                seen_on=machine.device,
                facts=()
                if each.us is None
                else (("host time inside, instrumented", f"{amounts.duration(each.us)} per step"),),
                hints=Alone(source.stands_alone(each.site, "barrier")),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        text = (
            "Remove it: collectives wait for all ranks by themselves. To time a step, use "
            "torch.cuda.Event or this audit."
        )
        if finding.site is None or not finding.hints_as(Alone).is_so:
            return Remedy(text)
        reason = "what happens between the ranks outside of torch (files) may rely on it"
        return Remedy(text, (Edit(finding.site, "drop_statement", call="barrier", reason=reason),))


@dataclass(frozen=True)
class Alone:
    """Whether the call is a statement by itself."""

    is_so: bool
