"""CKPT006: the rate in the checkpoint is not the configured one, and wins when it is loaded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.evidence.recorded.load_state_dict import default_rate, overridden
from auditor.evidence.source.files import Source
from auditor.evidence.table import Rows
from auditor.model import Finding, Severity
from auditor.recordings.schema.data import LoadRow, OptimizerLoadRow
from auditor.rule import NotLooked, Rule, knob

KEPT = ("initial_lr", "max_lr")
"""What schedulers keep in a parameter group: the rates they were made with."""


@dataclass(frozen=True)
class CheckpointOverridesRate(Rule):
    """The learning rate in a checkpoint overrides the configured one."""

    code = "CKPT006"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "After load_state_dict, set lr, initial_lr and max_lr of each param_group, and create the "
        "scheduler again."
    )

    tolerance: float = knob(1e-3, "Two rates are equal up to this relative difference.")

    def detect(self, loads: Rows[LoadRow], source: Source) -> Iterator[Finding]:
        for load in loads:
            if not isinstance(load, OptimizerLoadRow):
                continue
            default = default_rate(load, source)
            pairs = (overridden(group, self.tolerance, default) for group in load.groups)
            changes = {pair for pair in pairs if pair is not None}
            if changes:
                said = ", ".join(f"{was:g} by {now:g}" for was, now in sorted(changes)[:4])
                yield Finding(
                    load.site,
                    f"the state that {load.owner} loads here replaces the configured rate: {said}",
                    steps=1,
                )

    def in_checkpoint(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        if not checkpoints.settings:
            raise NotLooked("no --config was given to compare the rates with")
        for checkpoint in checkpoints.each:
            yield from self._rates(checkpoint, checkpoints.rates)
            yield from _length(checkpoint, checkpoints.total_steps)

    def _rates(self, checkpoint: Checkpoint, configured: dict[str, float]) -> Iterator[Finding]:
        kept, peaks, now = (
            _kept(checkpoint, *KEPT),
            _kept(checkpoint, "max_lr"),
            _kept(checkpoint, "lr"),
        )
        made_with = kept | {
            rate for scheduler in checkpoint.scan.schedulers for rate in scheduler.base
        }
        peak = {name: rate for name, rate in configured.items() if peaks and _is_peak(name)}
        start = {name: rate for name, rate in configured.items() if name not in peak}
        by_hand = math.inf if made_with else max(now, default=0.0)
        other = {**self._stale(start, made_with or now, below=by_hand), **self._stale(peak, peaks)}
        if other:
            old = ", ".join(f"{each:g}" for each in sorted(made_with or now)[:4])
            new = ", ".join(f"{name} is {rate:g}" for name, rate in other.items())
            yield Finding(
                None,
                f"{checkpoint.name} was trained with a rate of {old}, and now {new}: loading it "
                "brings the old one back",
                steps=1,
                seen_on="source",
                facts=(("file", checkpoint.scan.path),),
            )

    def _stale(
        self, configured: dict[str, float], saved: set[float], below: float = math.inf
    ) -> dict[str, float]:
        """Configured rates, if no saved rate is among them: else the rest is something else's."""
        if not saved or any(
            math.isclose(rate, each, rel_tol=self.tolerance)
            for rate in configured.values()
            for each in saved
        ):
            return {}
        return {name: rate for name, rate in configured.items() if rate < below}


def _kept(checkpoint: Checkpoint, *keys: str) -> set[float]:
    groups = [group for optimizer in checkpoint.scan.optimizers for group in optimizer.groups]
    return {group[key] for group in groups for key in keys if key in group}


def _is_peak(name: str) -> bool:
    return "max" in name.lower() or "peak" in name.lower()


def _length(checkpoint: Checkpoint, configured: float | None) -> Iterator[Finding]:
    for scheduler in checkpoint.scan.schedulers:
        if configured is None or scheduler.total is None or scheduler.total >= configured:
            continue
        yield Finding(
            None,
            f"{checkpoint.name}: its {scheduler.name} ends at step {scheduler.total}, but "
            f"{configured:g} are configured",
            steps=1,
            seen_on="source",
            facts=(("file", checkpoint.scan.path),),
        )
