"""CKPT001, 3, 4 and 7: what a saved file holds, and what saving it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from auditor import amounts
from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.torch_save import Saves, SavingLine
from auditor.model import Finding, Remedy, Severity
from auditor.rule import NotLooked, Rule, knob

from ..placing import places_of
from ..pricing import between

if TYPE_CHECKING:
    from auditor.evidence.scans import TensorFacts


NAMED = 5
"""Names that the message gives; the rest are counted."""


@dataclass(frozen=True)
class CheckpointRefused(Rule):
    """A checkpoint is refused by torch.load."""

    code = "CKPT001"
    severity = Severity.ERROR
    since = "0.1"
    advice = (
        "Save state_dict() and plain values, with torch's own pickle_protocol. Scan a file that is "
        "not your own with picklescan or modelaudit before you load it in another way."
    )

    def detect(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            scan = checkpoint.scan
            if scan.refused:
                yield _loading(checkpoint, f"is refused by torch: {scan.refused}")
            elif scan.foreign:
                yield _loading(
                    checkpoint,
                    "is only loaded with torch.serialization.safe_globals: it needs "
                    f"{_listed(scan.foreign)}",
                    Severity.NOTE,
                    Remedy(
                        "Save plain values: vars() of a namespace, float() and tolist() of NumPy's."
                    ),
                )


def _loading(
    checkpoint: Checkpoint,
    what: str,
    severity: Severity | None = None,
    remedy: Remedy | None = None,
) -> Finding:
    needs = (("needs", name) for name in checkpoint.scan.foreign[:20])
    return Finding(
        None,
        f"{checkpoint.name} {what}",
        steps=1,
        seen_on="source",
        severity=severity,
        facts=(("file", checkpoint.scan.path), *needs),
        remedy=remedy,
    )


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class CheckpointDamaged(Rule):
    """A checkpoint is cut off or damaged."""

    code = "CKPT003"
    severity = Severity.ERROR
    since = "0.1"
    advice = (
        "Save to a temporary name and os.replace it, so that a job that dies leaves the checkpoint "
        "before."
    )

    def detect(self, saves: Saves) -> Iterator[Finding]:
        saves.need_saves()
        lines = [line for line in saves.lines() if sum(save.replaced for save in line.calls) > 1]
        # else there is another one
        if not lines or len({save.path for save in saves.each if save.path is not None}) != 1:
            raise NotLooked(
                "a run looks at how checkpoints are written, not at what is in them: audit "
                "checkpoint FILE does"
            )
        for line in lines:
            over = [save for save in line.calls if save.replaced]
            yield Finding(
                line.site,
                f"torch.save writes over the run's only checkpoint in place, on {line.pattern}: a "
                "job that dies in one of these "
                f"{amounts.duration(max(save.us for save in over))} has none",
                steps=len(line.pattern.seen),
                per_step=line.per_step,
                severity=Severity.NOTE,
                facts=(("file", str(over[0].path)), ("written over", f"{len(over)} times")),
            )

    def in_checkpoint(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            damage = checkpoint.scan.damage
            if not damage:
                continue
            more = f"; and {len(damage) - 1} more" if len(damage) > 1 else ""
            yield Finding(
                None,
                f"{checkpoint.name} is damaged: {damage[0]}{more}",
                steps=1,
                seen_on="source",
                facts=(
                    ("file", checkpoint.scan.path),
                    *(("damage", sentence) for sentence in damage[:20]),
                ),
                remedy=Remedy(f"{checkpoints.instead}{self.advice}"),
            )


@dataclass(frozen=True)
class SaveBlocksStep(Rule):
    """The step waits while a checkpoint is written."""

    code = "CKPT004"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Save less often; or copy the state to host memory in the step and write it from a thread "
        "(torch.distributed.checkpoint.async_save does both), to a temporary name that os.replace "
        "makes the checkpoint."
    )

    share: float = knob(
        0.05, "Share of the timed steps' time in saves of one line from which it is reported."
    )

    def detect(self, saves: Saves, machine: Machine) -> Iterator[Finding]:
        saves.need_saves()
        for line in saves.lines():
            share = line.us / saves.step_us if saves.step_us else 0.0
            if len(line.calls) < 2 or share < self.share:
                continue
            found = Finding(
                line.site,
                f"torch.save takes {amounts.percent(share)} of the step time: "
                f"{amounts.duration(line.us / len(line.calls))} on {line.pattern}",
                steps=len(line.pattern.seen),
                per_step=line.per_step,
                lost_us_per_step=line.us_per_step,
                basis="estimated" if machine.cuda else "measured",
                facts=_facts(line),
                places=places_of(line.site, line.called),
            )
            yield found if machine.cuda else between(found, line.price)


def _facts(line: SavingLine) -> tuple[tuple[str, str], ...]:
    sizes = [save.size for save in line.calls if save.size is not None]
    size = (("largest file", amounts.size(max(sizes))),) if sizes else ()
    longest = max(save.us for save in line.calls)
    return (("saves", f"{len(line.calls)}"), ("longest", amounts.duration(longest)), *size)


FEWEST = 3
"""Tensors with moments below which there is no proportion to be out of."""


@dataclass(frozen=True)
class OptimizerMomentsSpoiled(Rule):
    """Moments of the optimizer are dead or exploded."""

    code = "CKPT007"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Look whether the parameter takes part in the loss (a detach, a factor of 0); clip "
        "gradients against outliers."
    )

    steps: int = knob(10, "Steps of the optimizer before a moment of zero says something.")
    ratio: float = knob(
        1e6, "How many times the median of all parameters a remembered gradient must be."
    )

    def detect(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            for optimizer, moments in checkpoint.moments:
                dead = [
                    tensor for tensor, gradient in moments if gradient == 0.0 and _finite(tensor)
                ]
                if dead and (optimizer.steps or 0) >= self.steps:
                    yield _finding(
                        checkpoint,
                        dead,
                        len(moments),
                        f"zero after {optimizer.steps} steps: no gradient reached it",
                    )
                usual = median([gradient for _, gradient in moments if gradient] or [0.0])
                high = [tensor for tensor, gradient in moments if gradient > self.ratio * usual > 0]
                if high and len(moments) >= FEWEST:
                    what = f"a gradient more than {self.ratio:g} times the median of all"
                    yield _finding(checkpoint, high, len(moments), f"what is left of {what}")


def _finite(tensor: TensorFacts) -> bool:
    return tensor.tally is not None and tensor.tally.count > 0 and not tensor.tally.nonfinite


def _finding(checkpoint: Checkpoint, tensors: list[TensorFacts], of: int, what: str) -> Finding:
    more = f" (and {len(tensors) - 1} more of {of})" if len(tensors) > 1 else ""
    facts = (
        ("file", checkpoint.scan.path),
        *((each.name, f"shape {list(each.shape)}") for each in tensors[:50]),
    )
    return Finding(
        None,
        f"{checkpoint.name}: {tensors[0].name}{more} is {what}",
        steps=1,
        seen_on="source",
        facts=facts,
    )
