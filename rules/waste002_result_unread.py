"""WASTE002: results that are computed and reach nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Machine, Source, ThrownWork
from auditor.evidence.recorded.thrown_work import Thrown, handed_on
from auditor.model import Finding, Remedy, Severity
from auditor.rule import knob

from .wasting import WasteRule, also, worth

WRITES = frozenset({"copy", "fill", "zero"})
"""Operators that leave something in a tensor which may be kept to be read later."""


@dataclass(frozen=True)
class ResultUnread(WasteRule):
    """
    A result is computed and nothing reads it.

    ## What it finds
    A line of the forward, or beside it, all of whose operators made results that were freed before
    anything read them, on each watched step, or on each that has it where steps alternate: an auxiliary head that enters no loss, a module whose
    result is overwritten, a norm or a metric that is computed on each step and looked at on a few.
    It is a note where the line does little work by several operators, as the norm of all gradients
    of a small model: a device waits for their launches all the same. Silent: what a loss, a host read or a later step uses, what is written into a buffer or kept in
    an object, what the step returns, what runs under ``torch.compile`` (which drops it itself), and
    all of a program that has threads of its own (what they read is not seen).

    ## Why it costs
    The operators run, and where gradients are on they save their inputs for a backward that never
    comes.

    ## Example
    ```python
    import torch

    body, aux, head = torch.nn.Linear(64, 64), torch.nn.Linear(64, 512), torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)

    def step():
        optimizer.zero_grad()
        h = body(torch.randn(32, 64))
        unused = aux(h)
        head(h).square().mean().backward()
        optimizer.step()
    ```

    ## Use instead
    ```python
    import torch

    body, head = torch.nn.Linear(64, 64), torch.nn.Linear(64, 1)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1)

    def step():
        optimizer.zero_grad()
        h = body(torch.randn(32, 64))
        head(h).square().mean().backward()
        optimizer.step()
    ```

    ## When to ignore
    It is used in steps that the audit did not see, and these are frequent.

    ## Sources
    Liveness of values as compilers define it, taken from what ran: a storage that was freed unread.
    The share is ours.
    """

    code = "WASTE002"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.02, "Share of the step's work from which it is reported.")
    operators: float = knob(
        0.01, "Share of the step's operators from which it is a note where its work is less."
    )
    several: int = knob(3, "Operators that it must have then.")

    def detect(self, thrown: ThrownWork, machine: Machine, source: Source) -> Iterator[Finding]:
        for each in thrown.of("result"):
            sites = (each.site, *each.others)
            little = each.share < self.share
            if little and not self._is_several(each, thrown.operators):
                continue
            if any(handed_on(source, site) for site in sites):
                continue
            yield self.report(
                thrown,
                each,
                machine,
                "nothing reads what is computed here (most of it "
                f"`{each.op.partition(',')[0]}`): {worth(each)}",
                facts=also(each.others),
                severity=Severity.NOTE if little else None,
            )

    def _is_several(self, each: Thrown, operators: float) -> bool:
        """By the number of operators, none of which may be for later."""
        enough = max(self.several, self.operators * operators)
        return bool(operators) and each.operators >= enough and each.op not in WRITES

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Leave it out, or compute it only on the steps that use it (inside the `if` that logs)."
        )
