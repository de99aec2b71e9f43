"""Scanned checkpoints: what is broken, poisoned, missing or stale, and the latest good one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from auditor import amounts
from auditor.evidence.table import Evidence, Table
from auditor.model import Finding, Remedy, Severity
from auditor.model.sections import SavedCheckpoint
from auditor.rule import NotLooked

if TYPE_CHECKING:
    from auditor.evidence.scans import OptimizerFacts, Scan, Setting, TensorFacts

RATES = frozenset({"lr", "learning_rate", "max_lr", "peak_lr", "lr_max", "initial_lr", "init_lr"})
"""Names under which trainers configure the rate that the schedule starts from or goes up to."""

TOTALS = frozenset({"total_steps", "max_steps", "max_iters", "num_training_steps", "train_steps"})

SECOND_MOMENTS = frozenset({"exp_avg_sq", "square_avg", "exp_inf", "sum"})
"""Running squares (or maxima) of gradients in torch's optimizers: zero if all gradients were."""

HALF = frozenset({"float16", "fp16", "half", "16-mixed", "torch.float16"})
"""Words for a precision that wants a GradScaler; the first three also as a key switched on."""


@dataclass(frozen=True)
class Checkpoint:
    """One scanned checkpoint."""

    scan: Scan

    @property
    def name(self) -> str:
        """Its file's name."""
        return Path(self.scan.path).name

    def finding(
        self,
        said: str,
        *facts: tuple[str, str],
        severity: Severity | None = None,
        remedy: Remedy | None = None,
    ) -> Finding:
        """What is to be said of the file."""
        return Finding(
            None,
            said,
            steps=1,
            seen_on="source",
            severity=severity,
            facts=(("file", self.scan.path), *facts),
            remedy=remedy,
        )

    @property
    def poisoned(self) -> tuple[TensorFacts, ...]:
        """Weights and optimizer state that are not finite."""
        return tuple(
            each
            for each in self.scan.tensors
            if each.role != "other" and each.tally is not None and each.tally.nonfinite
        )

    @property
    def said(self) -> str:
        """What it holds: format, size, tensors, step, and the state that training resumes from."""
        scan = self.scan
        where = f"step {self.steps}" if self.steps is not None else ""
        parts = [
            f"{scan.format}",
            amounts.size(scan.size),
            amounts.count(len(scan.tensors), "tensor"),
            where,
        ]
        has = (
            ("optimizer", scan.optimizers),
            ("scheduler", scan.schedulers),
            ("scaler", scan.scaler),
            ("rng", scan.rng),
            ("refused by torch", scan.refused),
            ("not wholly looked at", scan.limits),
        )
        names = (name for name, there in has if there)
        return ", ".join([*(part for part in parts if part), *names])

    @property
    def good(self) -> bool:
        """True if torch loads it, and all numbers of its weights and optimizer state are finite."""
        return self.verdict == "good"

    @property
    def verdict(self) -> str:
        """In a word or three: ``good``, ``damaged``, ``refused`` by torch, ``not looked at``."""
        scan = self.scan
        if scan.damage or self.poisoned:
            return "damaged"
        return "refused" if scan.refused else "not looked at" if scan.limits else "good"

    @property
    def weights(self) -> tuple[TensorFacts, ...]:
        """Tensors of models."""
        return tuple(each for each in self.scan.tensors if each.role == "model")

    @property
    def steps(self) -> int | None:
        """Its own counter of steps, else the optimizer's, else of epochs; None if unknown."""
        counted = [n for name, n in self.scan.progress.items() if "epoch" not in name]
        own = [each.steps for each in self.scan.optimizers if each.steps is not None]
        return next((max(each) for each in (counted, own) if each), self.epochs)

    @property
    def epochs(self) -> int | None:
        """Its own counter of epochs; None if it has none."""
        return max((n for name, n in self.scan.progress.items() if "epoch" in name), default=None)

    @property
    def moments(self) -> Iterator[tuple[OptimizerFacts, list[tuple[TensorFacts, float]]]]:
        """By optimizer: its second moments, each with the largest gradient it remembers."""
        for optimizer in self.scan.optimizers:
            yield (
                optimizer,
                [
                    (each, math.sqrt(max(0.0, each.tally.high or 0.0)))
                    for each in self.scan.tensors
                    if each.name.startswith(f"{optimizer.name}.state[")
                    and each.place[-1] in SECOND_MOMENTS
                    and each.tally is not None
                ],
            )


@dataclass(frozen=True)
class Checkpoints(Table):
    """All checkpoints that were given, and the settings that they should agree with."""

    files: ClassVar[tuple[str, ...]] = ("checkpoints",)

    each: tuple[Checkpoint, ...] = ()
    settings: tuple[Setting, ...] = ()

    @classmethod
    def build(cls, evidence: Evidence) -> Checkpoints:
        """From the scans of ``audit checkpoint``; a run has none."""
        scans = getattr(evidence.recording, "scans", None)
        if scans is None:
            raise NotLooked("no checkpoint was given: audit checkpoint FILE scans them")
        return cls(
            tuple(Checkpoint(scan) for scan in scans), getattr(evidence.recording, "settings", ())
        )

    @property
    def latest_good(self) -> Checkpoint | None:
        """The good one furthest in its training (by time if nothing says); None without any."""
        good = [each for each in self.each if each.good]
        counted = all(each.steps is not None for each in good)

        def reached(each: Checkpoint) -> tuple[int, int, float]:
            return (
                (each.steps or 0, each.epochs or 0, each.scan.modified)
                if counted
                else (0, 0, each.scan.modified)
            )

        return max(good, key=reached, default=None)

    @property
    def instead(self) -> str:
        """A sentence that names the latest good one; empty if there is none."""
        good = self.latest_good
        return f"The latest good one is {good.name}. " if good is not None else ""

    @property
    def rates(self) -> dict[str, float]:
        """Configured learning rates by the setting's path."""
        return {
            each.name: each.value
            for each in self.settings
            if each.key in RATES and isinstance(each.value, float)
        }

    @property
    def total_steps(self) -> float | None:
        """Configured length of the training in steps; None if it is not configured, or twice."""
        totals = {
            each.value
            for each in self.settings
            if each.key in TOTALS and isinstance(each.value, float)
        }
        return totals.pop() if len(totals) == 1 else None

    @property
    def in_half(self) -> bool:
        """True if float16 is configured, which wants a GradScaler."""
        return any(_says_half(each) for each in self.settings)


def _says_half(setting: Setting) -> bool:
    """``precision: fp16``, ``fp16: true`` or ``fp16: {enabled: true}``."""
    if setting.value is not True:
        return isinstance(setting.value, str) and setting.value.lower() in HALF
    owner, _, key = setting.name.lower().rpartition(".")
    return (owner.rpartition(".")[2] if key == "enabled" else key).removeprefix("use_") in HALF


def saved(evidence: Evidence) -> tuple[SavedCheckpoint, ...]:
    """The scanned checkpoints for a report; none of a run."""
    if evidence.bare != "checkpoint":
        return ()
    found = evidence.get(Checkpoints)
    latest = found.latest_good
    return tuple(
        SavedCheckpoint(each.name, each.good, each.said, each is latest, each.verdict)
        for each in found.each
    )
