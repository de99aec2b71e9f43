"""DIST004: one rank keeps the others waiting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.trace.ranks import Ranks
from auditor.model import Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule, knob


@dataclass(frozen=True)
class RankKeepsOthersWaiting(Rule):
    """
    One rank comes late to the collectives, and the others wait for it.

    ## What it finds
    In a folder with the traces of several ranks: a rank whose lateness makes the median rank wait
    for a noticeable part of each step. The clocks of the ranks are set by the ends of their
    collectives, so different machines do no harm. What the late rank spends more time on
    (computing, its loader, host waits) is named where it explains at least half of the lateness.

    ## Why it costs
    A collective ends when the last rank has come: every other device waits for that long, with a
    kernel running that does nothing.

    ## Example
    ```python
    # needs: ranks
    import time
    import torch
    import torch.distributed as dist

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512, device="cuda"))
    x = torch.ones(64, 512, device="cuda")

    def step():
        if dist.get_rank() == 0:
            time.sleep(0.05)  # writes a log, say
        model(x).mean().backward()
    ```

    ## Use instead
    ```python
    # needs: ranks
    import torch

    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512, device="cuda"))
    x = torch.ones(64, 512, device="cuda")

    def step():
        model(x).mean().backward()
    ```
    Do rank 0's extra work in another thread; balance batches by tokens rather than by samples; look
    at the late rank's own findings.

    ## When to ignore
    The late rank is another one each step: then it is noise of the machines, and only fewer
    collectives help.

    ## Sources
    TraceML: (victim - culprit) / step from 10 % and 20 %. HTA names candidates by the late start of
    their kernels. That one rank must be last at a third of the collectives at least, and three
    steps for a warning, are ours.
    """

    code = "DIST004"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.1,
        "Share of the step that the median rank waits for the late one from which it is reported.",
    )
    severe: float = knob(0.2, "Share from which it is an error.")
    last: float = knob(1 / 3, "Share of the collectives at which the rank must come last.")
    least_steps: int = knob(
        3, "Steps in the traces below which it is a note: one step may be an accident."
    )

    def detect(self, ranks: Ranks) -> Iterator[Finding]:
        if len(ranks.rows) < 2:
            raise NotLooked(
                "one trace cannot tell: give the folder that holds the traces of all ranks"
            )
        if ranks.late is None:
            raise NotLooked("the ranks share no collective that would set their clocks")
        if (
            ranks.waited_share < self.share
            or ranks.last < self.last * ranks.shared
            or ranks.waited_us <= ranks.clocks_us
        ):
            return
        excess = ranks.excess()
        why = f": it spends {amounts.duration(excess[1])} more {excess[0]}" if excess else ""
        yield Finding(
            None,
            f"the other ranks wait {amounts.duration(ranks.waited_us)} of each step, "
            f"{amounts.percent(ranks.waited_share)}, for rank {ranks.late}, "
            f"last at {ranks.last} of {ranks.shared} collectives{why}",
            steps=ranks.steps,
            lost_us_per_step=ranks.waited_us if ranks.steps >= self.least_steps else None,
            basis="estimated" if ranks.steps >= self.least_steps else "none",
            seen_on="trace",
            severity=self._severity(ranks),
            facts=(*ranks.facts, ("clocks set within", amounts.duration(ranks.clocks_us))),
        )

    def _severity(self, ranks: Ranks) -> Severity | None:
        if ranks.steps < self.least_steps:
            return Severity.NOTE
        return Severity.ERROR if ranks.waited_share >= self.severe else None

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Look at the late rank's own findings first: they are what makes it late. Balance the "
            "work where it computes more."
        )
