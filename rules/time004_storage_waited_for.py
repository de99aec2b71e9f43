"""TIME004: the step waits until what it wrote is on storage."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Machine, StorageSyncs
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from .placing import places_of
from .pricing import between


@dataclass(frozen=True)
class StorageWaitedFor(Rule):
    """
    The step waits until a file is on storage.

    ## What it finds
    ``os.fsync``, ``os.fdatasync`` and ``SummaryWriter.flush`` on the step's own thread, in at least
    a quarter of the timed steps, whose calls take a noticeable share of all steps' time: a log that
    is synced at every iteration. The call of the training loop that led there is named with it.
    Silent: writing without them, calls on another thread, and calls on few steps (the end of a log
    interval, a checkpoint).

    ## Why it costs
    The operating system writes files out behind the program's back; ``fsync`` waits for it, and for
    the disk. That is milliseconds on a local disk and more on storage that others share. Meanwhile
    the host queues nothing for the device.

    ## Example
    ```python
    import os
    import tempfile
    import torch

    model, log = torch.nn.Linear(8, 1), tempfile.TemporaryFile("w")

    def step():
        model(torch.ones(4, 8)).square().mean().backward()
        print("a step", file=log, flush=True)
        os.fsync(log.fileno())
    ```

    ## Use instead
    ```python
    import os
    import tempfile
    import torch

    model, log, count = torch.nn.Linear(8, 1), tempfile.TemporaryFile("w"), [0]

    def step():
        model(torch.ones(4, 8)).square().mean().backward()
        print("a step", file=log)
        count[0] += 1
        if count[0] % 100 == 0:
            log.flush()
            os.fsync(log.fileno())
    ```

    ## When to ignore
    Each line must outlive the machine's own failure: one that the program's death may not lose
    needs ``flush()`` only.

    ## Sources
    Python documentation of ``os.fsync``. Megatron-LM #34: logging at every iteration on shared
    storage. The shares are ours.
    """

    code = "TIME004"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(
        0.05, "Share of the timed steps' time in such calls of one line from which it is reported."
    )
    often: float = knob(0.25, "Share of the timed steps that must have such a call.")

    def detect(self, syncs: StorageSyncs, machine: Machine) -> Iterator[Finding]:
        for line in syncs.lines():
            steps = len(line.pattern.seen)
            share = line.us / (syncs.step_us or 1.0)
            if share < self.share or steps < max(2.0, self.often * syncs.steps):
                continue
            each = line.us / line.number
            found = Finding(
                line.site,
                f"{line.name} takes {amounts.percent(share)} of the step time: "
                f"{amounts.duration(each)} a call, on {line.pattern}",
                steps=steps,
                per_step=line.per_step,
                lost_us_per_step=line.us_per_step,
                basis="estimated" if machine.cuda else "measured",
                seen_on=machine.device,
                facts=(("calls", str(line.number)),),
                places=places_of(line.site, line.called),
            )
            yield found if machine.cuda else between(found, line.price)

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Write at the log interval only, and leave it to the operating system when the file "
            "is written out: flush() without fsync survives the program's death. Or write from a "
            "thread."
        )
