"""CFG010: an evaluation runs in train mode."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Machine, TrainModeForwards
from auditor.evidence.recorded.train_mode_forwards import Evaluated
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class EvaluatedInTrainMode(Rule):
    """
    An evaluation runs in train mode.

    ## What it finds
    A line that calls a module while gradients are off and compares the result with a target (a
    loss, an accuracy, ``==``), where an optimizer trains the module, and it is in train mode with
    dropout or running statistics in it. The evaluation runs beside a part of the training steps
    alone, or a name at the line says what it is (``evaluate``, ``val_loader``). Silent: results
    that no target is compared with (samples of a generator, statistics of batch norm made anew,
    targets of another forward), the same input several times (Monte Carlo dropout), the batch that
    is trained on, a block that asks for train mode, modules that nothing trains (averages of
    weights), and programs that compile.

    ## Why it costs
    Dropout drops in the evaluation too, and batch norm scales by the statistics of the batch: the
    score is noisy and too low, and the best checkpoint is chosen by it. The running statistics take
    the held-out data in, without an error.

    ## Example
    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    held_out, wanted = torch.ones(4, 8), torch.ones(4, 1)
    count = 0

    @torch.no_grad()
    def validate():
        return torch.nn.functional.mse_loss(model(held_out), wanted)

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
    held_out, wanted = torch.ones(4, 8), torch.ones(4, 1)
    count = 0

    @torch.no_grad()
    def validate():
        model.eval()
        score = torch.nn.functional.mse_loss(model(held_out), wanted)
        model.train()
        return score

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
    The score is meant to be that of the model as it trains.

    ## Sources
    PyTorch documentation of ``Module.eval``, and its notes on locally disabling gradients: eval
    mode and ``no_grad`` are two things. The share is ours.
    """

    code = "CFG010"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.5,
        "Share of the optimizer's steps beside which it may run at most, where no name says that "
        "it evaluates.",
    )

    def detect(self, forwards: TrainModeForwards, machine: Machine) -> Iterator[Finding]:
        for each in forwards.evaluated:
            if not each.named and each.times > self.share * each.steps:
                continue
            yield Finding(
                each.site,
                f"{each.module} is evaluated here in train mode: {_parts(each)} act as in training",
                steps=each.times,
                seen_on=machine.device,
                facts=(
                    *((name, str(n)) for name, n in each.parts.items()),
                    ("optimizer steps so far", str(each.steps)),
                ),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy("Call eval() on it before the evaluation, and train() when it is over.")


def _parts(each: Evaluated) -> str:
    return " and ".join(f"{name} ({n})" for name, n in each.parts.items())
