"""TRAIN010: random numbers that come again."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.amounts import count
from auditor.evidence.recorded.batches import Batches
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob
from auditor.syntax.index import name_of, nodes_in

from .losses import by_line
from .rows import GeneratorRow, SeedRow

CALLS = {"torch": "torch.manual_seed", "random": "random.seed", "numpy": "numpy.random.seed"}


ONCE = Remedy(
    "Create and seed the generator once, before the first step. Where the numbers are meant to stay "
    "the same, draw them once."
)


@dataclass(frozen=True)
class RandomNumbersRepeat(Rule):
    """A generator is seeded again during training, so that steps draw the same random numbers."""

    code = "TRAIN010"
    severity = Severity.WARNING
    since = "0.2"
    advice = (
        "For numbers that must repeat (a preview, an evaluation) use a generator of their own: "
        "torch.Generator().manual_seed(...), random.Random(...), numpy.random.default_rng(...), or "
        "torch.random.fork_rng(). To seed each epoch, add its number to the seed."
    )

    seeds: int = knob(2, "Report only if something repeated after this many seeds.")
    share: float = knob(0.9, "Report only if at least this share of the steps takes a batch of it.")
    drew: float = knob(0.75, "Report only if at least this share of the steps draws from it.")

    def detect(
        self, seeds: Rows[SeedRow], generators: Rows[GeneratorRow], batches: Batches, source: Source
    ) -> Iterator[Finding]:
        yield from self._of_torch(seeds, batches)
        for site, rows in by_line(row for row in generators if row.steps > self.seeds):
            row = next((each for each in rows if each.states == 1), None)
            if row is not None:
                yield Finding(
                    _seeded_at(site, source),
                    f"the generator of `{row.name}` starts from the same seed on each of {row.steps} "
                    "steps: they drew the same random numbers",
                    facts=(("draws at", f"{site.file}:{site.line}"),),
                    remedy=ONCE,
                )

    def _of_torch(self, seeds: Rows[SeedRow], batches: Batches) -> Iterator[Finding]:
        trains = batches.usual(self.share)
        loader_at = None if trains is None else trains[0].made_at
        last = {(row.at, row.generator, row.seed, row.loader_at, row.within): row for row in seeds}
        # an evaluation comes again; another line may begin a second phase of the training
        often = [row for row in last.values() if row.evaluates or row.calls >= self.seeds]
        for site, rows in by_line(often):
            orders = [row for row in rows if row.loader_at is not None and row.loader == loader_at]
            steps = [
                row for row in rows if row.loader_at is None and row.drew >= self.drew * row.steps
            ]
            row = next(iter((*orders, *steps)), None)
            if row is not None:
                yield Finding(site, _message(row), steps=row.times)


def _message(row: SeedRow) -> str:
    call = f"{CALLS[row.generator]}({row.seed or '...'}) runs again during training"
    if row.loader_at is not None:
        return f"{call}: {count(row.times, 'epoch')} shuffled the samples like an earlier one"
    return (
        f"{call}: {count(row.times, 'step')} drew the same random numbers as an earlier one (step "
        f"{row.number} those of step {row.first})"
    )


def _seeded_at(drawn: Site, source: Source) -> Site:
    """The line of the same function that seeds a generator; the one that draws, if several do."""
    scope = source.index(drawn.file).scope_at(drawn.line)
    lines = {
        call.lineno: call
        for call in nodes_in(scope or (), ast.Call)
        if name_of(call.func) == "manual_seed" and call.lineno <= drawn.line
    }
    return source.site_of(drawn.file, next(iter(lines.values()))) if len(lines) == 1 else drawn
