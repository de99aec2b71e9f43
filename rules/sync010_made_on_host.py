"""SYNC010: a tensor is made on the host only to be moved to the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Copies, Source
from auditor.evidence.source.files import Span
from auditor.model import Finding, Remedy, Severity, Site

from .copying import ON_DEVICE, CopyRule, made_on_device


@dataclass(frozen=True)
class Hints:
    """The calls that move it, and the function of torch that makes it."""

    moves: tuple[tuple[Site, str, Span | None], ...]
    makes: str  # empty where the line moves something else


@dataclass(frozen=True)
class TensorMadeOnHostThenMoved(CopyRule):
    """
    A tensor is made on the host and moved to the device, every step.

    ## What it finds
    ``torch.zeros(...).to(device)``, ``torch.randn(...).cuda()`` and their kin on most steps. Seen
    in a rehearsal of the GPU path.

    ## Why it costs
    The host fills the tensor, copies it over the bus and waits until it is there, where one kernel
    could have filled it.

    ## Example
    ```python
    # needs: rehearsal
    import torch

    model = torch.nn.Linear(8, 1, device="cuda")

    def step():
        noise = torch.randn(64, 8).to("cuda")
        model(noise).mean().backward()
    ```

    ## Use instead
    ```python
    # needs: rehearsal
    import torch

    model = torch.nn.Linear(8, 1, device="cuda")

    def step():
        noise = torch.randn(64, 8, device="cuda")
        model(noise).mean().backward()
    ```

    ## When to ignore
    The random numbers must be those of the host's generator.

    ## Sources
    PyTorch performance tuning guide, "Create tensors directly on the target device". The threshold
    is ours.
    """

    code = "SYNC010"
    severity = Severity.WARNING
    since = "0.1"
    edits = (ON_DEVICE,)
    leads = 4

    def detect(self, copies: Copies, source: Source) -> Iterator[Finding]:
        for place in self.usual(copies.sites("made on the host", blocking=True)):
            message = (
                f"a tensor of {place.amount} is made on the host and moved to the device on "
                f"{place.pattern}: {copies.host_waits}"
            )
            hints = Hints(place.moves, source.makes_at(place.site))
            yield self.report(copies, place, place.site, message, hints=hints)

    def remedy(self, finding: Finding) -> Remedy | None:
        text = (
            "Make it where it is used: pass device= to the function that makes it. Random numbers "
            "then come from the "
            "device's generator and differ."
        )
        hints = finding.hints_as(Hints)
        return Remedy(text, tuple(made_on_device(hints.moves, hints.makes)))
