"""TRAIN010: random numbers that come again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.amounts import count
from auditor.evidence.recorded.batches import Batches
from auditor.evidence.table import Rows
from auditor.model import Finding, Severity
from auditor.rule import Rule, knob

from .losses import by_line
from .rows import SeedRow

CALLS = {"torch": "torch.manual_seed", "random": "random.seed", "numpy": "numpy.random.seed"}


@dataclass(frozen=True)
class RandomNumbersRepeat(Rule):
    """A generator is seeded again during training, so that steps draw the same random numbers."""

    code = "TRAIN010"
    severity = Severity.WARNING
    since = "0.2"
    advice = (
        "For numbers that must repeat (a preview, an evaluation) use a generator of their own: "
        "torch.Generator().manual_seed(...), random.Random(...), "
        "numpy.random.default_rng(...), or torch.random.fork_rng(). To seed each epoch, add its "
        "number to the seed."
    )

    seeds: int = knob(2, "Report only if something repeated after this many seeds.")
    share: float = knob(
        0.9, "Report only if this share of the diagnosed steps takes a batch of that loader."
    )
    drew: float = knob(0.75, "Report only if this share of the steps draws from the generator.")

    def detect(self, seeds: Rows[SeedRow], batches: Batches) -> Iterator[Finding]:
        trains = batches.usual(self.share)
        loader_at = None if trains is None else trains[0].made_at
        last = {(row.at, row.generator, row.seed, row.loader_at): row for row in seeds}
        for site, rows in by_line(row for row in last.values() if row.calls >= self.seeds):
            orders = [row for row in rows if row.loader_at is not None and row.loader == loader_at]
            steps = [
                row for row in rows if row.loader_at is None and row.drew >= self.drew * row.steps
            ]
            row = next(iter((*orders, *steps)), None)
            if row is not None:
                yield Finding(
                    site,
                    _message(row),
                    steps=row.times,
                )


def _message(row: SeedRow) -> str:
    call = f"{CALLS[row.generator]}({row.seed or '...'}) runs again during training"
    if row.loader_at is not None:
        return f"{call}: {count(row.times, 'epoch')} shuffled the samples like an earlier one"
    return (
        f"{call}: {count(row.times, 'step')} drew the same random numbers as an earlier one (step "
        f"{row.number} those of step {row.first})"
    )
