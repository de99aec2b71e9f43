"""TIME003: a share of the step in which the profiler saw nothing happen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.trace.steps import TraceSteps
from auditor.model import Finding, Severity
from auditor.rule import NotLooked, Rule, knob


@dataclass(frozen=True)
class UnattributedTime(Rule):
    """
    A part of the step is spent on nothing that the profiler knows.

    ## What it finds
    In a trace: stretches of at least a millisecond inside steps in which no operator, no call of
    the runtime, no loader, no optimizer and no device was at work, where they add up to a large
    share of the steps. Shorter gaps are Python's ordinary pace between operators and do not count.
    Where the trace has Python frames, the function of the longest stretch is named.

    ## Why it costs
    The host was busy with Python or C code that is not torch's (decoding, tokenising, NumPy,
    logging, a lock), or waited for something else than the device: a file, a network, another
    process. The device idles meanwhile.

    ## Example
    ```python
    # needs: cuda
    import time
    import torch

    model = torch.nn.Linear(8, 1, device="cuda")
    x = torch.ones(4, 8, device="cuda")

    def step():
        time.sleep(0.02)
        model(x).mean().backward()
    ```

    ## Use instead
    ```python
    # needs: cuda
    import torch

    model = torch.nn.Linear(8, 1, device="cuda")
    x = torch.ones(4, 8, device="cuda")

    def step():
        model(x).mean().backward()
    ```
    Do such work in loader workers or another thread; name it with
    ``torch.profiler.record_function`` to see which it is.

    ## When to ignore
    The stretch is a data pipeline of your own that you know about, or the trace was cut down by
    hand.

    ## Sources
    TraceML reports residuals from 10 % and 20 % of the step, gpuprof from 10 %. Both count every
    gap; since this one counts only long stretches, the lower threshold would say no more, and 20 %
    is used.
    """

    code = "TIME003"
    severity = Severity.NOTE
    since = "0.1"

    share: float = knob(
        0.2,
        "Share of the steps' time in long stretches without any event from which it is reported "
        "(TraceML).",
    )
    nothing: float = knob(
        0.95, "Share from which the trace itself is incomplete, and nothing is reported."
    )

    def detect(self, steps: TraceSteps) -> Iterator[Finding]:
        steps.need_steps()
        steps.need_a_device()
        share = steps.share("unknown_us")
        if share >= self.nothing:
            raise NotLooked(
                "the trace shows next to nothing inside its steps: it was cut down, or another "
                "thread does the work"
            )
        if share < self.share or steps.silence is None:
            return
        site = steps.silence.site
        where = f", the longest in {site.function}" if site is not None else ""
        yield Finding(
            site,
            # no price: the work may be needed, so what would come back is not known
            f"for {amounts.percent(share)} of {steps.where} nothing happened that the profiler "
            f"knows{where}",
            steps=steps.steps_above("unknown_us", self.share),
            per_step=1.0,
            seen_on="trace",
            facts=(
                (
                    "unknown",
                    (
                        f"{amounts.duration(steps.mean('unknown_us'))} per step, in stretches of a "
                        "millisecond or more"
                    ),
                ),
                ("longest stretch", amounts.duration(steps.silence.us)),
                *((("inside", steps.silence.function),) if steps.silence.function else ()),
                ("device busy", f"{amounts.percent(steps.share('busy_us'))} of the time"),
                (
                    "waiting for the loader",
                    f"{amounts.percent(steps.share('loader_us'))} of the time"
                    if steps.loader
                    else "no loader recorded",
                ),
            ),
        )
