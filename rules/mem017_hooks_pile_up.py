"""MEM017: a hook that is registered on each step and never removed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Machine
from auditor.evidence.recorded.kept_hooks import KeptHooks
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class HooksPileUp(Rule):
    """
    A hook is registered on every step and never removed

    ## What it finds
    A line in the step that calls `register_forward_hook`, `register_hook` or another of torch's
    functions that register hooks, on the same module, tensor or optimizer each time, where the
    hooks of the steps before are still registered. Silent: hooks that are removed, hooks on tensors
    that live for one step, and hooks that a library registers.

    ## Why it costs
    After n steps each call runs n hooks, and each hook keeps alive what it refers to, often
    activations with their graph. The step becomes slower and memory grows, both without an end.

    ## Example
    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        features = []
        model[1].register_forward_hook(lambda module, inputs, output: features.append(output))
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean() + features[-1].mean()
        loss.backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        features = []
        keep = lambda module, inputs, output: features.append(output)
        optimizer.zero_grad()
        with model[1].register_forward_hook(keep):
            loss = model(torch.ones(4, 8)).square().mean() + features[-1].mean()
        loss.backward()
        optimizer.step()
    ```

    ## When to ignore
    The program removes them later than in the steps that were audited, and does so often enough.

    ## Sources
    PyTorch documentation of ``torch.nn.Module.register_forward_hook``: the handle's ``remove()``.
    The thresholds are ours.
    """

    code = "MEM017"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    share: float = knob(0.9, "Share of the steps that must leave a hook behind.")
    fewest: int = knob(5, "Steps below which nothing is reported.")

    def detect(self, hooks: KeptHooks, machine: Machine) -> Iterator[Finding]:
        for line in hooks.usual(self.share, self.fewest):
            yield Finding(
                line.site,
                f"`{line.way}` adds a hook to the same {line.owner} on {line.added} of "
                f"{line.steps} steps and none is removed: {amounts.count(line.n, 'hook')} of this "
                "line by then, and all of them run each time",
                steps=line.added,
                per_step=line.n / line.steps,
                seen_on=machine.device,
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Register it once, before the loop; or keep the handle and remove it in the same step: "
            "`with module.register_forward_hook(hook):` does."
        )
