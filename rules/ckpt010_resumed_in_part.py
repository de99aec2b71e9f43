"""CKPT010: of a checkpoint the optimizer is resumed and its scheduler is not, or the other way
round.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Machine, PartialResumes
from auditor.evidence.recorded.partial_resumes import PartialResume
from auditor.evidence.source.statements import shorten
from auditor.model import Finding, FoundAt, Remedy, Severity
from auditor.rule import Rule


@dataclass(frozen=True)
class Hints:
    """What to load: ``scheduler.load_state_dict(state["scheduler"])``."""

    call: str = ""


@dataclass(frozen=True)
class ResumedInPart(Rule):
    """
    A checkpoint holds a state that the resumed run does not load.

    ## What it finds
    A file with the state of one optimizer and of one scheduler, of which the program loads one and
    goes on training without the other. A scheduler counts where the optimizer has one that was made
    as that of the file was, and that stands at its beginning. An optimizer counts where it has as
    many parameters as that of the file, and no state of its own. Silent: a new schedule with other
    settings, a scheduler that is put to its place in another way (``last_epoch``), a file of which
    only the weights are loaded.

    ## Why it costs
    The schedule begins again: warm-up and decay run a second time from a rate that was decayed
    already. An optimizer that begins again forgets its moments; the loss jumps.

    ## Example
    ```python
    import os
    import tempfile

    import torch

    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    model(torch.ones(4, 8)).sum().backward()
    for _ in range(15):
        optimizer.step()
        scheduler.step()
    torch.save({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, path)

    def make():
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)
        state = torch.load(path)
        optimizer.load_state_dict(state["optimizer"])

        def step():
            optimizer.zero_grad()
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
            scheduler.step()

        return step
    ```

    ## Use instead
    ```python
    import os
    import tempfile

    import torch

    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)
    path = os.path.join(tempfile.mkdtemp(), "last.pt")
    model(torch.ones(4, 8)).sum().backward()
    for _ in range(15):
        optimizer.step()
        scheduler.step()
    torch.save({"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}, path)

    def make():
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=10)
        state = torch.load(path)
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])

        def step():
            optimizer.zero_grad()
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
            scheduler.step()

        return step
    ```

    ## When to ignore
    The schedule is to run again on purpose (a restart), from the optimizer's moments.

    ## Sources
    PyTorch tutorial "Saving and Loading a General Checkpoint": what a run needs to go on is saved
    and loaded together.
    """

    code = "CKPT010"
    severity = Severity.WARNING
    since = "0.1"

    def detect(self, resumes: PartialResumes, machine: Machine) -> Iterator[Finding]:
        for each in resumes.each:
            yield Finding(
                each.site,
                _said(each),
                steps=1,
                seen_on=machine.device,
                hints=Hints(_call(each)),
                places=tuple(FoundAt(site, shorten(site.text)) for site in (each.file, each.site)),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(f"Load it here too: {finding.hints_as(Hints).call}.")


def _said(resume: PartialResume) -> str:
    if resume.left_out == "scheduler":
        return (
            f"the optimizer's state is loaded here, and that of its {resume.owner} is not: the file "
            f"has it under {resume.key!r} after {resume.saved} of its steps, and training went on "
            f"with step {resume.now} of the schedule"
        )
    return (
        f"the scheduler's state is loaded here, and that of its {resume.owner} is not: the file has "
        f"it under {resume.key!r}, and training went on without any"
    )


def _call(resume: PartialResume) -> str:
    entry = "".join(f'["{part}"]' for part in resume.key.split("."))
    return f"{resume.left_out}.load_state_dict(checkpoint{entry})"
