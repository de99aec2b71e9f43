"""DATA007: the step waits for its data loader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence import Batches, Configs, Machine, Source
from auditor.evidence.recorded.batches import Loader
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.trace.steps import TraceSteps
from auditor.model import Finding, Remedy, Severity
from auditor.permit import COUNT, FLAG, LOADER, Permit
from auditor.rule import NotLooked, Rule, knob

from .pricing import between

ALONE = "loader_alone_us"


@dataclass(frozen=True)
class Hints:
    """Workers worth trying (0: none), and what the loader is given now."""

    workers: int = 0
    number: CallArgument | None = None
    persistent: CallArgument | None = None


@dataclass(frozen=True)
class StepWaitsForInput(Rule):
    """
    The step waits for its input.

    ## What it finds
    A ``DataLoader`` for whose batches the timed steps waited for a large share of their whole time,
    in every step or in bursts (one long stall alone is silent). In a trace: the share in which the
    loop waited for its loader and no device worked; waits that device work hides cost nothing and
    are not counted, nor is a first step alone (it starts the workers).

    ## Why it costs
    While the step waits for a batch the host queues nothing for the model. With ``num_workers=0``
    all loading happens in the step; with workers it waits when they are too few or too slow.

    ## Example
    ```python
    import time
    import torch
    from torch.utils.data import DataLoader, Dataset

    class Slow(Dataset):
        def __len__(self):
            return 4000

        def __getitem__(self, index):
            time.sleep(0.001)
            return torch.full((8,), float(index))

    model = torch.nn.Linear(8, 1)
    batches = iter(DataLoader(Slow(), batch_size=4))

    def step():
        model(next(batches)).mean().backward()
    ```

    ## Use instead
    ```python
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    prepared = torch.arange(4000.0).unsqueeze(1).expand(4000, 8)  # the slow part, done once and kept

    model = torch.nn.Linear(8, 1)
    batches = iter(DataLoader(TensorDataset(prepared), batch_size=4))

    def step():
        (x,) = next(batches)
        for _ in range(40):
            model(x).mean().backward()
    ```
    Or load beside the step: ``DataLoader(..., num_workers=4, persistent_workers=True)``.

    ## When to ignore
    The audited run reads from a cold or shared disk that the real training does not use.

    ## Sources
    Peers warn at 5 % (torch_tb_profiler), 10 % and 20 % (TraceML), 15 % and 30 % (gpuprof) of the
    step. Ours are higher because a wrong alarm about workers is the complaint heard most (Lightning
    #18723, #15572). In a trace, what lies between TraceML's 10 % and ours, waits of less than a
    millisecond, one burst alone, and shares of steps that the profiler did not mark, are notes.
    """

    code = "DATA007"
    severity = Severity.WARNING
    since = "0.1"
    edits = (
        Permit("set_keyword", LOADER, "num_workers", f"0|{COUNT}", elsewhere=True),
        Permit("set_keyword", LOADER, "persistent_workers", FLAG, elsewhere=True),
        Permit("set_keyword", LOADER, "prefetch_factor", COUNT),
    )

    share: float = knob(
        0.2, "Share of the timing pass's time spent waiting from which it is a warning."
    )
    severe: float = knob(
        0.4, "Share of the timing pass's time spent waiting from which it is an error."
    )
    least_us: float = knob(
        1000.0, "Mean wait per step in us below which nothing is reported (in a trace: a note)."
    )
    noticed: float = knob(
        0.1,
        "Share of the steps' time from which a trace has a note, and share of a step from which it "
        "counts as waiting.",
    )

    def detect(
        self, batches: Batches, machine: Machine, source: Source, configs: Configs
    ) -> Iterator[Finding]:
        batches.need_a_loader()
        batches.need_times()
        waiting = batches.waiting()
        if waiting is None or waiting.share < self.share or waiting.mean_us < self.least_us:
            return
        if waiting.recurring_share < self.share:
            return
        loader, slow = waiting.loader, waiting.steps_above(self.noticed)
        found = Finding(
            loader.made_at or loader.consumed_at,
            f"the step waits {amounts.duration(waiting.mean_us)} for input, "
            f"{amounts.percent(waiting.share)} of its time"
            f"{_bursts(slow, len(waiting.steps_us))} (num_workers={loader.workers})",
            steps=slow,
            per_step=1.0,
            lost_us_per_step=waiting.mean_us,
            basis="measured",
            seen_on=machine.device,
            severity=Severity.ERROR if waiting.share >= self.severe else None,
            facts=waiting.facts,
            hints=Hints(
                workers=_workers(loader, machine.cpus),
                number=given(
                    source, configs, loader.made_at, "DataLoader", "num_workers", ran=loader.workers
                ),
                persistent=given(
                    source, configs, loader.made_at, "DataLoader", "persistent_workers", ran=False
                ),
            ),
        )
        yield between(found, waiting.price)

    def in_trace(self, steps: TraceSteps) -> Iterator[Finding]:
        if not steps.loader:
            raise NotLooked("the trace shows no torch DataLoader")
        if steps.device_missing:
            steps.need_a_device()
        share, mean = steps.share(ALONE), steps.mean(ALONE)
        often = steps.steps_above(ALONE, self.noticed)
        if min(share, steps.steady(ALONE)) < self.noticed:
            return
        marked, idle = steps.marked, " while no device works" if steps.device else ""
        yield Finding(
            steps.loader_site,
            f"for {amounts.percent(share)} of {steps.where} the loop waits for its DataLoader "
            f"({steps.workers}){idle}{_bursts(often, len(steps.steps))}",
            steps=often if marked else 0,
            per_step=1.0 if marked else 0.0,
            lost_us_per_step=mean if marked else None,
            basis="estimated" if marked else "none",
            seen_on="trace",
            severity=self._severity_in_trace(steps, share, mean),
            facts=(
                (
                    "waiting",
                    (
                        f"{amounts.percent(steps.share('loader_us'))} of the time, "
                        f"{amounts.duration(steps.mean('loader_us'))} per step"
                    ),
                ),
                (
                    "not hidden by device work",
                    f"{amounts.percent(share)}, {amounts.duration(mean)} per step",
                ),
                ("steps from", steps.source),
            ),
        )

    def _severity_in_trace(self, steps: TraceSteps, share: float, mean: float) -> Severity | None:
        if (
            not steps.certain
            or share < self.share
            or mean < self.least_us
            or not steps.recurs(ALONE, self.noticed)
        ):
            return Severity.NOTE
        return Severity.ERROR if share >= self.severe else None

    def remedy(self, finding: Finding) -> Remedy | None:
        hints = finding.hints_as(Hints)
        workers, number, persistent = hints.workers, hints.number, hints.persistent
        if not workers or number is None or persistent is None or finding.site is None:
            return Remedy(
                "Make loading cheaper (prepare once, store decoded) or give the loader more "
                "workers than it has."
            )
        reason = (
            "dataset and collate function run in worker processes: they must be picklable, and "
            "draw other random numbers"
        )
        text = (
            f"Load beside the step with {workers} worker processes that stay alive between epochs."
        )
        edits = number.edits(str(workers), reason=reason)
        if (
            edits and not number.written
        ):  # elsewhere it may become 0 again, with which persistent workers are an error
            edits += () if persistent.written else persistent.edits("True", reason=reason)
        return Remedy(text + number.advice, edits, refused=number.refused)


def _workers(loader: Loader, cpus: int) -> int:
    """Workers worth trying; 0 where more would not help, or would repeat the data (an iterable
    dataset), or has no line.
    """
    wanted = (
        loader.workers == 0
        and loader.length is not None
        and loader.made_at is not None
        and cpus > 1
    )
    return min(4, cpus) if wanted else 0


def _bursts(often: int, steps: int) -> str:
    """That the waits come in bursts, as those of too few workers do; empty where they are on half
    of the steps or more.
    """
    return f", in bursts: on {often} of {steps} steps" if 2 * often < steps else ""
