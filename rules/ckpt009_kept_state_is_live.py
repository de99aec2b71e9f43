"""CKPT009: a state that is kept for later follows the training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import KeptStates, Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class KeptStateIsLive(Rule):
    """
    A kept ``state_dict()`` is not a copy: it follows the training.

    ## What it finds
    A line that keeps ``module.state_dict()`` (also in a ``dict`` of its own, or copied by
    ``.copy()``) over optimizer steps that changed the tensors in it, where the program loads it
    into the module again: seen in the run, or written in the source behind steps that may lie
    between. Of a state that is called the best one, also where it is saved or returned. Silent: a
    state that is saved or loaded at once, a deep copy, copies of the tensors (``clone()``,
    ``cpu()``), and the state of a module that no optimizer steps.

    ## Why it costs
    The tensors in a ``state_dict()`` are the parameters themselves. The best weights are those of
    the last step by the time that they are loaded, and the run that found them is lost.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    best, best_state, count = float("inf"), None, 0

    def step():
        global best, best_state, count
        if best_state is not None and count % 10 == 0:
            model.load_state_dict(best_state)
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        if count % 10 == 1:
            best_state = model.state_dict()
        count += 1
    ```

    ## Use instead
    ```python
    import copy

    import torch

    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    best, best_state, count = float("inf"), None, 0

    def step():
        global best, best_state, count
        if best_state is not None and count % 10 == 0:
            model.load_state_dict(best_state)
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        if count % 10 == 1:
            best_state = copy.deepcopy(model.state_dict())
        count += 1
    ```

    ## When to ignore
    The state is written over before it is loaded, in a place that the source does not show.

    ## Sources
    PyTorch tutorial "Saving and Loading Models": ``best_model_state = model.state_dict()`` "returns
    a reference to the state and not its copy". The number of steps is ours.
    """

    code = "CKPT009"
    severity = Severity.WARNING
    since = "0.1"

    fewest: int = knob(
        2, "Optimizer steps over which the state must have been kept before anything is reported."
    )

    def detect(self, states: KeptStates, machine: Machine) -> Iterator[Finding]:
        for each in states.brought_back(self.fewest):
            done = (
                f"it was loaded at {each.back}, {each.loads} times"
                if each.loads
                else f"{each.back} brings it back"
            )
            yield Finding(
                each.site,
                f"the state of {each.module} that is kept here is no copy: {each.steps} optimizer "
                f"steps changed the tensors in it, and {done}",
                steps=each.steps,
                per_step=1.0,
                seen_on=machine.device,
                facts=(("brought back at", str(each.back)),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Keep copy.deepcopy(model.state_dict()), or {name: value.clone() for name, value in "
            "model.state_dict().items()}."
        )
