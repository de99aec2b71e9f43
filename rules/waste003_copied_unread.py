"""WASTE003: parts of a batch that are moved to the device and never read there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Machine, ThrownWork
from auditor.model import Finding, Remedy, Severity
from auditor.rule import NotLooked, knob

from .wasting import WasteRule


@dataclass(frozen=True)
class CopiedUnread(WasteRule):
    """
    Something is moved to the device and nothing reads it there.

    ## What it finds
    A line that copies a tensor from the host to the device, of which the copy is freed before any
    operator or host read uses it, on each watched step: a batch that is moved whole, of which the
    model takes a part. Silent: copies that a later step reads, and all
    of a program that has threads of its own.

    ## Why it costs
    The bytes go over the bus, and the device holds them; a blocking copy holds the host as well.

    ## Example
    ```python
    # needs: rehearsal
    import torch

    model = torch.nn.Linear(64, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        batch = {"x": torch.randn(32, 64), "meta": torch.randn(32, 64)}
        batch = {key: value.cuda() for key, value in batch.items()}
        optimizer.zero_grad()
        model(batch["x"]).square().mean().backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    # needs: rehearsal
    import torch

    model = torch.nn.Linear(64, 8).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        batch = {"x": torch.randn(32, 64), "meta": torch.randn(32, 64)}
        x = batch["x"].cuda()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    ```

    ## When to ignore
    Another phase of the training reads it, which the audit did not see.

    ## Sources
    CUDA C++ Best Practices Guide, "Data Transfer Between Host and Device": no more than is needed.
    The share is ours.
    """

    code = "WASTE003"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    share: float = knob(
        0.05, "Share of the bytes that a step copies to the device from which it is reported."
    )

    def detect(self, thrown: ThrownWork, machine: Machine) -> Iterator[Finding]:
        if machine.device == "cpu":
            raise NotLooked("nothing is moved to a device on a CPU")
        for each in thrown.of("copy"):
            share = each.nbytes / max(1, thrown.copied)
            if share < self.share:
                continue
            yield Finding(
                each.site,
                f"{each.op} is moved to the device on each step and nothing reads it: "
                f"{amounts.size(each.nbytes)} per step, {amounts.percent(share)} of what is moved",
                steps=each.steps,
                per_step=each.operators,
                seen_on=machine.device,
                facts=(("bytes per step", amounts.size(each.nbytes)),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy("Move only what the step reads, and leave the rest on the host.")
