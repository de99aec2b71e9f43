"""WASTE001: gradients that are computed and cleared before any optimizer reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Machine, ThrownWork
from auditor.evidence.recorded.thrown_work import Thrown
from auditor.model import Finding, Remedy, Severity
from auditor.rule import knob

from .wasting import WasteRule, worth

NAMED = 3
"""Parameters that the message names; the rest are counted."""

REMEDIES = {
    "gradient": "Keep the backward out of them: requires_grad_(False) on their module before the "
    "forward and requires_grad_(True) after the backward, or "
    "backward(inputs=list(other.parameters())).",
    "detach": "End the graph here: give the call x.detach() instead of x, or make x under "
    "torch.no_grad() where nothing else needs its graph.",
}


@dataclass(frozen=True)
class Hints:
    """Which way: a key of ``REMEDIES``."""

    kind: str


@dataclass(frozen=True)
class GradientsClearedUnread(WasteRule):
    """
    Gradients are computed that no optimizer reads.

    ## What it finds
    A backward that writes gradients of parameters which an optimizer holds, and which are dropped,
    zeroed or overwritten before anything reads them, on each watched step, or on each that has it
    where steps alternate (up to every fifth, seen twice): a generator's loss that
    goes on into the discriminator's weights; a discriminator's loss that goes back into the
    generator because ``fake`` was not detached (then the line where the graph could end is named);
    an actor's loss that fills the critic. Silent where an optimizer, a clip or a log reads them and
    where they are added up over several steps.

    ## Why it costs
    The gradient of a layer's weights is a third of its work in a training step, and that of a whole
    network that should have stood outside is two thirds. Nothing of it changes any weight.

    ## Example
    ```python
    import torch

    g, d = torch.nn.Linear(8, 64), torch.nn.Linear(64, 1)
    g_opt = torch.optim.SGD(g.parameters(), lr=0.1)
    d_opt = torch.optim.SGD(d.parameters(), lr=0.1)

    def step():
        fake = g(torch.randn(32, 8))
        d_opt.zero_grad()
        (d(fake.detach()).mean() - d(torch.randn(32, 64)).mean()).backward()
        d_opt.step()
        g_opt.zero_grad()
        (-d(fake).mean()).backward()
        g_opt.step()
    ```

    ## Use instead
    ```python
    import torch

    g, d = torch.nn.Linear(8, 64), torch.nn.Linear(64, 1)
    g_opt = torch.optim.SGD(g.parameters(), lr=0.1)
    d_opt = torch.optim.SGD(d.parameters(), lr=0.1)

    def step():
        fake = g(torch.randn(32, 8))
        d_opt.zero_grad()
        (d(fake.detach()).mean() - d(torch.randn(32, 64)).mean()).backward()
        d_opt.step()
        g_opt.zero_grad()
        d.requires_grad_(False)
        (-d(fake).mean()).backward()
        d.requires_grad_(True)
        g_opt.step()
    ```

    ## When to ignore
    Another phase of the training, which the audit did not see, reads these gradients.

    ## Sources
    PyTorch documentation of ``Tensor.backward`` (``inputs``) and of ``Tensor.detach``. The share is
    ours.
    """

    code = "WASTE001"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.01, "Share of the step's work from which it is reported.")

    def detect(self, thrown: ThrownWork, machine: Machine) -> Iterator[Finding]:
        for each in thrown.of("gradient", "detach"):
            if each.share >= self.share:
                yield self.report(thrown, each, machine, _said(each), hints=Hints(each.what))

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(REMEDIES[finding.hints_as(Hints).kind])


def _said(each: Thrown) -> str:
    names = ", ".join(each.names[:NAMED])
    more = f" and {each.n - NAMED} more" if each.n > NAMED else ""
    whose = f"{each.n} parameters of {each.owner} ({names}{more})"
    if each.what == "detach":
        return (
            f"through this call the backward at {each.other} goes on into {whose}, whose gradients "
            f"are cleared before any optimizer reads them: {worth(each)}"
        )
    return (
        f"the gradients that this backward computes for {whose} are cleared before any optimizer "
        f"reads them: {worth(each)}"
    )
