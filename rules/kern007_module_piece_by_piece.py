"""KERN007: a Python loop calls a module with one tensor piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Machine, ModuleLoops
from auditor.evidence.recorded.module_loops import ModuleLoop
from auditor.evidence.source.statements import shorten
from auditor.model import Finding, FoundAt, Remedy, Severity
from auditor.rule import Rule, knob

from .looping import saved_us, timed

SEQUENCES = {"GRUCell": "nn.GRU", "LSTMCell": "nn.LSTM", "RNNCell": "nn.RNN"}


@dataclass(frozen=True)
class Hints:
    """The cell that is called; empty: another module."""

    cell: str


@dataclass(frozen=True)
class ModulePieceByPiece(Rule):
    """
    A loop calls a module once for each piece of a tensor.

    ## What it finds
    A line in a loop that calls the same module eight times or more in each watched step, each time
    with another small piece of one tensor, with nothing handed on from call to call: rows of a
    batch, time steps of an encoder. And torch's recurrent cells (``GRUCell``, ``LSTMCell``,
    ``RNNCell``) that go through a whole sequence, given nothing but its pieces and their own state.
    Silent: modules without parameters (augmentations draw for each sample), modules that keep a
    state or statistics (batch norm that is trained), pieces that the loop itself makes or that
    differ in shape, a state that is changed between two turns, large pieces, a number of turns that
    depends on the data, and loops with a backward in them.

    ## Why it costs
    Each turn pays the host for every operator of the module, forward and backward, and its kernels
    are too small for the device. One call on the whole tensor pays once; ``nn.GRU`` and its like
    run a sequence in a few kernels. On a CPU the loop is timed as for KERN006; its backward is not in
    the price.

    ## Example
    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(32, 4)

    def step():
        optimizer.zero_grad()
        loss = 0
        for row in x:
            loss = loss + model(row).square().sum()
        (loss / len(x)).backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x = torch.randn(32, 4)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    ```
    Where a module takes one sample only, ``torch.vmap`` takes all.

    ## When to ignore
    What the module does with a piece depends on earlier turns in a way that does not show: a list
    or a file that its forward writes.

    ## Sources
    PyTorch's performance tuning guide; documentation of ``nn.GRU`` (cuDNN). Eight turns, the sizes
    and the share are ours.
    """

    code = "KERN007"
    severity = Severity.WARNING
    since = "0.1"

    turns: int = knob(8, "Calls in each watched step from which a loop is reported.")
    share: float = knob(
        0.05,
        "Share of the precision pass's time outside backward, inside the calls, from which it is "
        "reported.",
    )
    elements: int = knob(
        8192, "Numbers in a piece above which a loop may be there to save memory (not of cells)."
    )

    def detect(self, loops: ModuleLoops, machine: Machine) -> Iterator[Finding]:
        for each in loops.worth(self.turns, self.share, self.elements):
            yield Finding(
                each.site,
                _said(each),
                steps=each.steps,
                per_step=float(each.turns),
                seen_on=machine.device,
                places=_places(each),
                lost_us_per_step=saved_us(each.us, each.turns),
                basis="none" if each.us is None else "estimated",
                facts=(("numbers in a piece", f"{each.elements:,}"), *timed(each.us)),
                hints=Hints(each.module if each.recurrent else ""),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        cell = finding.hints_as(Hints).cell
        if cell:
            return Remedy(
                f"Give the whole sequence to {SEQUENCES[cell]} of the same sizes, which keeps the "
                "state itself; torch.nn.utils.rnn.pack_padded_sequence takes lengths that differ."
            )
        return Remedy(
            "Call the module once with the whole tensor (its first dimensions joined, if need be), "
            "and cut the result; torch.vmap helps where it takes one sample only."
        )


def _said(each: ModuleLoop) -> str:
    loop = f"the loop at {each.head}"
    if each.recurrent:
        did = f"{each.module} goes through a sequence of {each.turns} pieces or more in {loop}"
        return f"{did}, one call for each, with nothing but its own state between them"
    return (
        f"{each.module} is called {each.turns} times a step in {loop}, each time with another "
        f"piece of one tensor: {amounts.percent(each.share)} of the watched forward is inside"
    )


def _places(each: ModuleLoop) -> tuple[FoundAt, ...]:
    if each.head == each.site or each.head.line == each.site.line:
        return ()
    own = FoundAt(each.site, shorten(each.site.text), float(each.turns))
    return (FoundAt(each.head, shorten(each.head.text)), own)
