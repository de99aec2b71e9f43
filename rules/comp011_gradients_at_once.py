"""COMP011: gradients of a data parallel module that all come at the end of one compiled backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import DataParallel, Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class GradientsAtOnce(Rule):
    """
    All gradients come from one compiled backward, and are sent when it has ended

    ## What it finds
    A `DistributedDataParallel` of two ranks or more whose gradients need several buckets, where on
    nearly all steps every one of them came from one compiled graph. It is read from the autograd
    graph. The usual reason is a model that ran compiled before it was wrapped (a trial call, a
    summary of its layers): that code is used on. Silent: `torch.compile(DDP(model))` and
    `DDP(torch.compile(model))`, which are alike (the first forward beneath DDP is compiled in one
    graph for each bucket), layers that are compiled one by one, and gradients that fit one bucket.

    ## Why it costs
    DDP sends a bucket as soon as its gradients are there, while the backward goes on. A compiled
    graph hands over all of its gradients when it ends, so the ranks compute first and send then:
    no communication is hidden behind the backward.

    ## Example
    ```python
    # needs: ranks
    import torch
    from torch.nn.parallel import DistributedDataParallel

    layers = [torch.nn.Linear(512, 512) for _ in range(6)]
    compiled = torch.compile(torch.nn.Sequential(*layers), backend="aot_eager")
    compiled(torch.randn(8, 512))
    model = DistributedDataParallel(compiled, bucket_cap_mb=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 512)).square().mean().backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    # needs: ranks
    import torch
    from torch.nn.parallel import DistributedDataParallel

    layers = [torch.nn.Linear(512, 512) for _ in range(6)]
    compiled = torch.compile(torch.nn.Sequential(*layers), backend="aot_eager")
    model = DistributedDataParallel(compiled, bucket_cap_mb=2)
    model(torch.randn(8, 512))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 512)).square().mean().backward()
        optimizer.step()
    ```

    ## When to ignore
    The ranks are so near to one another that sending takes no time worth hiding.

    ## Sources
    PyTorch documentation of ``torch.compile`` with DDP (``DDPOptimizer``). The numbers of steps and
    buckets are ours. There is no price: what could be hidden depends on the network. With traces,
    DIST003 measures what is not hidden.
    """

    code = "COMP011"
    severity = Severity.WARNING
    since = "0.1"

    least: int = knob(5, "Steps of an optimizer whose backward passes must have been like this.")
    share: float = knob(0.9, "Share of the backward passes that must have been like this.")
    buckets: int = knob(2, "Buckets below which there is nothing to hide.")

    def detect(self, modules: DataParallel, machine: Machine) -> Iterator[Finding]:
        for module in modules.each:
            steps = sum(1 for n in module.at_once if n)
            passes = sum(module.averaged)
            if module.ranks < 2 or module.buckets < self.buckets or steps < self.least:
                continue
            if sum(module.at_once) < self.share * passes:
                continue
            yield Finding(
                module.made_at,
                f"all gradients of `{module.what}` come from one compiled backward: nothing is "
                "sent to the other ranks before it has ended",
                steps=steps,
                seen_on=machine.device,
                facts=(
                    ("backward passes like this", f"{sum(module.at_once)} of {passes}"),
                    ("buckets", f"{module.buckets} or more"),
                    ("gradients", amounts.size(module.nbytes)),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Let compiled code of the module run for the first time beneath the forward of DDP, "
            "which is compiled in one graph for each bucket: no trial call before it is wrapped, or "
            "torch.compiler.reset() behind that; and leave torch._dynamo.config.optimize_ddp on."
        )
