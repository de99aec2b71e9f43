"""CKPT006: the rate in the checkpoint is not the configured one, and wins when it is loaded."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence import Checkpoints, Loads, Machine
from auditor.evidence.checkpoints import Checkpoint
from auditor.evidence.recorded.load_state_dict import Group, Load
from auditor.model import Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule, knob

KEPT = ("initial_lr", "max_lr")
"""What schedulers keep in a parameter group: the rates they were made with."""


@dataclass(frozen=True)
class CheckpointOverridesRate(Rule):
    """
    The learning rate in a checkpoint overrides the configured one.

    ## What it finds
    With ``--config``: a configured rate (``lr``, ``learning_rate``, ``max_lr`` ...) that no
    parameter group and no scheduler of the file was made with; and a OneCycleLR whose schedule ends
    before the configured number of steps. A rate that a scheduler brought down is not compared, but
    the one it started from. Where no scheduler left its mark, a lower rate may have been set by
    hand and is silent. Without ``--config`` the rule is skipped.

    In a run: ``load_state_dict`` of an optimizer, before the first step, that replaces the rate
    with which optimizer or scheduler were made, where the first step then runs with what was
    loaded. Likewise of a scheduler that computes its rates from its own ``base_lrs`` (``LambdaLR``,
    ``CyclicLR``, ``CosineAnnealingWarmRestarts``), loaded without its optimizer. Silent where the program sets the rate again, or had set none.

    ## Why it costs
    ``load_state_dict`` of optimizer and scheduler replaces the rates that the program was started
    with. The new setting is ignored without a word, for the rest of the run.

    ## Example
    ```python
    import json
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=100)

    def step():
        optimizer.step()
        scheduler.step()
        parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
        torch.save({name: part.state_dict() for name, part in parts.items()}, "last.pt")
        with open("config.json", "w") as file:
            json.dump({"optimizer": {"lr": 0.0005}}, file)
    ```

    ## Use instead
    ```python
    import json
    import torch

    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0005)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.0005, total_steps=100)

    def step():
        optimizer.step()
        scheduler.step()
        parts = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
        torch.save({name: part.state_dict() for name, part in parts.items()}, "last.pt")
        with open("config.json", "w") as file:
            json.dump({"optimizer": {"lr": 0.0005}}, file)
    ```
    When a run goes on with another rate: load the weights and moments, then set ``lr``,
    ``initial_lr`` and ``max_lr`` of the groups, and make the scheduler anew.

    ## When to ignore
    The run is meant to go on with the rates of the checkpoint.

    ## Sources
    PyTorch documentation of ``Optimizer.load_state_dict`` and ``OneCycleLR`` (it keeps
    ``initial_lr``, ``max_lr`` and ``min_lr`` in the groups). The tolerance is ours.
    """

    code = "CKPT006"
    severity = Severity.WARNING
    since = "0.1"

    tolerance: float = knob(1e-3, "Relative difference up to which two rates count as equal.")

    def detect(self, loads: Loads, machine: Machine) -> Iterator[Finding]:
        for load in loads.each:
            changes = {
                pair
                for group in load.groups
                if (pair := group.overridden(self.tolerance, load.default)) is not None
            }
            if changes:
                yield _in_run(load, sorted(changes), machine)

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
                facts=_facts(checkpoint),
            )

    def _stale(
        self, configured: dict[str, float], saved: set[float], below: float = math.inf
    ) -> dict[str, float]:
        """Configured rates, if none of them is among the saved ones: where one is, the others
        belong to something else.
        """
        if not saved or any(
            math.isclose(rate, each, rel_tol=self.tolerance)
            for rate in configured.values()
            for each in saved
        ):
            return {}
        return {name: rate for name, rate in configured.items() if rate < below}

    def remedy(self, finding: Finding) -> Remedy | None:
        return Remedy(
            "After load_state_dict set lr, initial_lr and max_lr of each param_group, and make the "
            "scheduler anew."
        )


def _in_run(load: Load, changes: list[tuple[float, float]], machine: Machine) -> Finding:
    said = ", ".join(f"{was:g} by {now:g}" for was, now in changes[:4])
    return Finding(
        load.site,
        f"the state that {load.owner} loads here replaces the rate that was set: {said}",
        steps=1,
        seen_on=machine.device,
        facts=tuple(
            (f"group {n}, {key}", _course(group, key))
            for n, group in enumerate(load.groups)
            for key in group.after
        ),
    )


def _course(group: Group, key: str) -> str:
    set_, first = group.before.get(key), group.first.get(key)
    return f"set {_or_none(set_)}, loaded {group.after[key]:g}, at the first step {_or_none(first)}"


def _or_none(rate: float | None) -> str:
    return "none" if rate is None else f"{rate:g}"


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
            f"{checkpoint.name}: its {scheduler.name} ends at step {scheduler.total}, and "
            f"{configured:g} are configured",
            steps=1,
            seen_on="source",
            facts=_facts(checkpoint),
        )


def _facts(checkpoint: Checkpoint) -> tuple[tuple[str, str], ...]:
    keys = ("lr", *KEPT, "min_lr")
    rows = [("file", checkpoint.scan.path)]
    for optimizer in checkpoint.scan.optimizers:
        for number, group in enumerate(optimizer.groups[:10]):
            rows.append(
                (
                    f"{optimizer.name} group {number}",
                    ", ".join(f"{key} {group[key]:g}" for key in keys if key in group),
                )
            )
    rows += [
        (each.name, f"step {each.position} of {each.total or '?'}")
        for each in checkpoint.scan.schedulers
    ]
    return tuple(rows)
