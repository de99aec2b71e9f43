"""CKPT008: names of a compiled module in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Checkpoints
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule

PREFIX = "_orig_mod"
"""The name under which ``torch.compile(module)`` holds the module that it was given."""


@dataclass(frozen=True)
class CompiledPrefix(Rule):
    """
    The weights have the names of a compiled module

    ## What it finds
    Weights whose names have a part `_orig_mod`: what was saved is the `state_dict()` of
    `torch.compile(model)`, not that of the model.

    ## Why it costs
    `load_state_dict` of the plain model refuses such a file, or with `strict=False` loads nothing
    of it and says so only in what it returns. Evaluation and export scripts, which compile nothing,
    find out first.

    ## Example
    ```python
    import torch

    model = torch.nn.Linear(4, 1)
    compiled = torch.compile(model, backend="eager")

    def step():
        torch.save({"model": compiled.state_dict()}, "last.pt")
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Linear(4, 1)
    compiled = torch.compile(model, backend="eager")

    def step():
        torch.save({"model": model.state_dict()}, "last.pt")
    ```

    ## When to ignore
    Whoever loads the file compiles the model first, or takes the prefix off.

    ## Sources
    PyTorch documentation of ``torch.nn.Module.compile``: in place, it leaves the names alone.
    """

    code = "CKPT008"
    severity = Severity.NOTE
    since = "0.1"

    def detect(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            named = [each for each in checkpoint.weights if PREFIX in each.name.split(".")]
            if not named:
                continue
            yield Finding(
                None,
                f"{checkpoint.name}: {amounts.count(len(named), 'weight')} of "
                f"{len(checkpoint.weights)} named as in a compiled module, such as {named[0].name}",
                steps=1,
                seen_on="source",
                facts=(("file", checkpoint.scan.path),),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Save model.state_dict() of the module that was given to torch.compile, or compile in "
            "place with model.compile(); of a file that is there, take '_orig_mod.' out of the keys."
        )
