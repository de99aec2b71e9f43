"""CKPT001: a checkpoint that cannot be read without importing and calling what it names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Checkpoints
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule

NAMED = 5
"""Names that the message gives; the rest are counted."""


@dataclass(frozen=True)
class CheckpointNeedsCode(Rule):
    """
    A checkpoint cannot be loaded without running code.

    ## What it finds
    Classes and functions that the file asks its reader to import and call, beyond the tensors and plain containers that
    ``torch.load(weights_only=True)`` admits: numpy arrays and numbers, ``argparse.Namespace``, whole modules. Names that run
    commands (``os.system``, ``builtins.eval``) are an error: no trainer saves them.

    ## Why it costs
    ``torch.load`` refuses such a file since torch 2.6, and with ``weights_only=False`` it runs whatever the file says. A
    module saved whole also breaks when its class is renamed or moved.

    ## Example
    ```python
    import argparse
    import torch

    model = torch.nn.Linear(4, 1)
    args = argparse.Namespace(lr=0.1)

    def step():
        torch.save({"model": model.state_dict(), "args": args}, "last.pt")
    ```

    ## Use instead
    ```python
    import argparse
    import torch

    model = torch.nn.Linear(4, 1)
    args = argparse.Namespace(lr=0.1)

    def step():
        torch.save({"model": model.state_dict(), "args": vars(args)}, "last.pt")
    ```

    ## When to ignore
    You wrote the file yourself and load it with ``torch.serialization.add_safe_globals``.

    ## Sources
    PyTorch documentation of ``torch.load``, "Security"; its list of admitted names as of torch 2.13.
    """

    code = "CKPT001"
    severity = Severity.WARNING
    since = "0.1"

    def detect(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            names = checkpoint.scan.foreign
            if not names:
                continue
            hostile = checkpoint.hostile
            what = "runs commands when it is loaded: it calls" if hostile else "is only loaded with weights_only=False: it needs"
            yield Finding(
                None,
                f"{checkpoint.name} {what} {_listed(hostile or names)}",
                steps=1,
                seen_on="source",
                severity=Severity.ERROR if hostile else None,
                facts=(("file", checkpoint.scan.path), *(("needs", name) for name in names[:20])),
                hints={"hostile": bool(hostile)},
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        if finding.hints.get("hostile"):
            return Remedy("Do not load it. None of its code was run here; find out where it came from.")
        return Remedy("Save plain values: state_dict() of a module, vars() of a namespace, float() and tolist() of numpy values.")


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - NAMED
    return ", ".join(name[:80] for name in names[:NAMED]) + (f" and {more} more" if more > 0 else "")
