"""CFG009: a model stays in eval mode after an evaluation and is trained on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import EvalModeSteps, Machine
from auditor.evidence.recorded.eval_mode_steps import Switch
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class TrainedInEvalMode(Rule):
    """
    A model stays in eval mode after an evaluation, and is trained on in it.

    ## What it finds
    A line that puts a module into eval mode for an evaluation (gradients are off there), after an
    optimizer trained it in train mode, where nothing puts it back and the optimizer goes on
    training it. Told only of modules with dropout or running statistics. Silent: modules that are
    in eval mode from the first step on, single layers that are frozen (batch norm), parts of a
    model that is in train mode, and a line that no evaluation follows.

    ## Why it costs
    From the first evaluation on dropout does nothing and batch norm no longer follows the data. The
    model is trained in another way than before, without an error, and is most often worse.

    ## Example
    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    count = 0

    def validate():
        model.eval()
        with torch.no_grad():
            model(torch.ones(4, 8))

    def step():
        global count
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
        count += 1
        if count % 4 == 0:
            validate()
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    count = 0

    def validate():
        model.eval()
        with torch.no_grad():
            model(torch.ones(4, 8))
        model.train()

    def step():
        global count
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()
        count += 1
        if count % 4 == 0:
            validate()
    ```

    ## When to ignore
    The rest of the training is meant to run without dropout and with fixed statistics.

    ## Sources
    PyTorch documentation of ``Module.eval`` and ``Module.train``. The number of steps is ours.
    """

    code = "CFG009"
    severity = Severity.WARNING
    since = "0.1"

    fewest: int = knob(3, "Steps in eval mode before anything is reported.")

    def detect(self, switched: EvalModeSteps, machine: Machine) -> Iterator[Finding]:
        for each in switched.after_evaluating(self.fewest):
            yield Finding(
                each.site,
                f"{each.module} was put into eval mode here, after {each.before} steps in train "
                f"mode, and {each.steps} steps trained it on in eval mode, where its {_parts(each)} "
                "act in another way",
                steps=each.steps,
                per_step=1.0,
                seen_on=machine.device,
                facts=tuple((name, str(n)) for name, n in each.parts.items()),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Call train() on it when the evaluation is over, or before the training goes on."
        )


def _parts(each: Switch) -> str:
    return " and ".join(f"{name} ({n})" for name, n in each.parts.items())
