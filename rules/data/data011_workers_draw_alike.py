"""DATA011: the workers of a loader draw the same random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule

from .repeated_draws import Repeated, RepeatedDraws


@dataclass(frozen=True)
class WorkersDrawAlike(Rule):
    """The workers of a loader draw the same random numbers."""

    code = "DATA011"
    severity = Severity.WARNING
    since = "0.1"

    def detect(self, draws: RepeatedDraws, machine: Machine) -> Iterator[Finding]:
        for each in draws.found:
            made = None if each.loader is None else each.loader.made_at
            yield Finding(
                each.site,
                f"{len(each.workers)} workers{_of(each)} draw the same numbers: each has a copy of "
                f"{each.name} ({each.kind}) in the same state",
                per_step=1.0,
                seen_on=machine.device,
                facts=(("loader", str(made)),) if made is not None else (),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "Make the generator in the worker: in worker_init_fn, or when the first sample is "
            "asked for, from torch.initial_seed(), which differs by worker and epoch."
        )


def _of(each: Repeated) -> str:
    made = None if each.loader is None else each.loader.made_at
    return f" of the loader made at {made}" if made is not None and made != each.site else ""
