"""COMP008: a hook on a part of a module that was compiled before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import LateHooks, Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class HookNeverRuns(Rule):
    """
    A hook is registered on a compiled module and never runs

    ## What it finds
    A line that registers hooks (`register_forward_hook`, `register_forward_pre_hook`,
    `register_full_backward_hook`) on a module when it has run compiled, where Python called none of
    them in the timing pass, and called them with compiled functions held eager. Followed are
    lambdas and inner functions. Silent: hooks that were there before the first call, hooks that run
    between two graphs, and where anything was compiled since.

    ## Why it costs
    Compiled code does not ask whether its modules have new hooks
    (`torch._dynamo.config.skip_nnmodule_hook_guards`): what the hook should have collected, changed
    or checked is missing, without a word.

    ## Example
    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    compiled(torch.randn(8, 16))
    means = []
    model[0].register_forward_hook(lambda module, inputs, output: means.append(output.mean()))

    def step():
        means.clear()
        optimizer.zero_grad()
        compiled(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU())
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    means = []
    model[0].register_forward_hook(lambda module, inputs, output: means.append(output.mean()))
    compiled(torch.randn(8, 16))

    def step():
        means.clear()
        optimizer.zero_grad()
        compiled(torch.randn(8, 16)).square().mean().backward()
        optimizer.step()
    ```

    ## When to ignore
    The hook is for a part of the program that runs without the compiler, later.

    ## Sources
    PyTorch documentation of ``torch.compile``: ``nn.Module`` hooks support. The number of steps is
    ours.
    """

    code = "COMP008"
    severity = Severity.WARNING
    since = "0.1"

    least: int = knob(5, "Steps of each of the two passes that must have had the hook.")
    share: float = knob(0.9, "Share of the steps held eager in which it must have been called.")

    def detect(self, hooks: LateHooks, machine: Machine) -> Iterator[Finding]:
        for each in hooks.each:
            if each.ran or each.again or min(each.steps, each.eager_steps) < self.least:
                continue
            if not each.eager_ran or each.eager_ran < self.share * each.eager_steps:
                continue
            yield Finding(
                each.site,
                f"this hook of a `{each.what}` never runs: the module had been compiled before, and "
                "compiled code does not look for new hooks",
                steps=each.steps,
                seen_on=machine.device,
                facts=(
                    ("called in compiled steps", f"0 of {amounts.count(each.steps, 'step')}"),
                    (
                        "called with compiled functions held eager",
                        f"{each.eager_ran} of {amounts.count(each.eager_steps, 'step')}",
                    ),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Register it before the compiled module is called for the first time, or call "
            "torch.compiler.reset() afterwards; torch._dynamo.config.skip_nnmodule_hook_guards = "
            "False makes compiled code look."
        )
