"""CFG001: cuDNN tries its algorithms on every step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Source
from auditor.evidence.trace.patterns import Structure
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.permit import Permit
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class Hints:
    """The only line that sets ``cudnn.benchmark = True``."""

    set_at: Site | None


@dataclass(frozen=True)
class AutotuningEveryStep(Rule):
    """
    cuDNN's benchmark mode tries its algorithms again on step after step.

    ## What it finds
    Waits for events inside cuDNN's convolutions, which only ``torch.backends.cudnn.benchmark =
    True`` makes, on most steps of a trace: the shapes change all the time, and each new shape is
    measured again. On the first steps that is normal, and not reported. A trace does not show that
    benchmark mode is *off*, so that is never reported.

    ## Why it costs
    For each new shape cuDNN runs every algorithm it has, some of them ten times slower than the one
    it takes in the end, and the host waits for each.

    ## Example
    ```python
    # needs: cuda
    import itertools
    import torch

    torch.backends.cudnn.benchmark = True
    model = torch.nn.Conv2d(16, 32, 3, device="cuda")
    sizes = itertools.count(64)

    def step():
        size = next(sizes)
        model(torch.ones(8, 16, size, size, device="cuda")).mean().backward()
    ```

    ## Use instead
    ```python
    # needs: cuda
    import torch

    torch.backends.cudnn.benchmark = True
    model = torch.nn.Conv2d(16, 32, 3, device="cuda")

    def step():
        model(torch.ones(8, 16, 128, 128, device="cuda")).mean().backward()
    ```
    Pad or bucket the inputs to a few shapes; where that cannot be, switch benchmark mode off.

    ## When to ignore
    The run is so long that the shapes will repeat soon: record a later part of it.

    ## Sources
    PyTorch's performance tuning guide advises benchmark mode for fixed shapes. The share of steps
    is ours.
    """

    code = "CFG001"
    severity = Severity.WARNING
    since = "0.1"
    edits = (Permit("set_constant", ("torch.backends.cudnn.benchmark",), "benchmark", "False"),)

    share: float = knob(0.5, "Share of the trace's steps on which algorithms must be tried.")

    def detect(self, structure: Structure, source: Source) -> Iterator[Finding]:
        tuning, often = structure.tuning, structure.tuned
        if (
            tuning is None
            or not structure.marked
            or not often.usual(self.share)
            or max(often.seen) < structure.steps // 2
        ):
            return
        yield Finding(
            None,
            f"cuDNN tries its algorithms on {often}: "
            f"{amounts.digits(tuning.times / structure.steps)} waits per step, "
            f"{amounts.duration(tuning.us / structure.steps)}",
            steps=len(often.seen),
            per_step=tuning.times / structure.steps,
            lost_us_per_step=tuning.us / structure.steps,
            basis="estimated",
            seen_on="trace",
            hints=Hints(source.only_flag("cudnn.benchmark", value=True)),
        )

    def remedy(self, finding: Finding) -> Remedy | None:
        text = (
            "Bring the inputs to a few fixed shapes, or set torch.backends.cudnn.benchmark = False."
        )
        site = finding.hints_as(Hints).set_at
        if site is None:
            return Remedy(text)
        reason = (
            "cuDNN then takes algorithms by its heuristics: they may be slower for shapes that "
            "repeat, and round otherwise"
        )
        return Remedy(
            text, (Edit(site, "set_constant", keyword="benchmark", value="False", reason=reason),)
        )
