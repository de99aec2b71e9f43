"""CKPT001, 3, 4 and 7: what a saved file holds, and what saving it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from auditor import amounts
from auditor.batch_means import Estimate, of_separate
from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.evidence.recorded.lines import Line, Lines, TrainingLoop
from auditor.evidence.recorded.machine import Machine
from auditor.model import Finding, Remedy, Severity
from auditor.recordings.schema.data import SaveRow
from auditor.rule import NotLooked, Rule, knob

from ..lines import LineReport, places_of
from ..pricing import between

if TYPE_CHECKING:
    from auditor.evidence.scans import TensorFacts


NAMED = 5
"""Names that the message gives; the rest are counted."""


@dataclass(frozen=True)
class CheckpointRefused(Rule):
    """torch.load refuses a checkpoint."""

    code = "CKPT001"
    severity = Severity.ERROR
    since = "0.1"
    advice = (
        "Save state_dict() and plain values, with torch's default pickle_protocol. Scan a file that is "
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
                    "only loads with torch.serialization.safe_globals: it needs "
                    f"{_listed(scan.foreign)}",
                    Severity.NOTE,
                    Remedy(
                        "Save plain values: vars() of a namespace, float() and tolist() of NumPy values."
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


def need_saves(saves: Lines[SaveRow]) -> None:
    """Raises :class:`NotLooked` where the program saved nothing in these steps."""
    if not len(saves):
        raise NotLooked(
            f"the program saved no checkpoint in the {saves.steps} timed steps (more --steps may "
            "reach a save; audit checkpoint FILE checks an existing file)"
        )


@dataclass(frozen=True)
class CheckpointDamaged(LineReport):
    """A checkpoint is cut off or damaged."""

    code = "CKPT003"
    severity = Severity.ERROR
    since = "0.1"
    advice = (
        "Save to a temporary name and os.replace it, so that a job that dies leaves the previous "
        "checkpoint."
    )

    def detect(self, saves: Lines[SaveRow]) -> Iterator[Finding]:
        need_saves(saves)
        lines = [line for line in saves.lines() if sum(save.replaced for save in line.rows) > 1]
        # else there is another one
        if not lines or len({save.path for save in saves if save.path is not None}) != 1:
            raise NotLooked(
                "a run checks how checkpoints are written, not their contents (audit "
                "checkpoint FILE does)"
            )
        for line in lines:
            over = [save for save in line.rows if save.replaced]
            yield self.report(
                line,
                f"torch.save overwrites the run's only checkpoint in place, on {line.pattern}: a "
                "job that dies in one of these "
                f"{amounts.duration(max(save.us for save in over))} has none",
                severity=Severity.NOTE,
                facts=(("file", str(over[0].path)), ("overwritten", f"{len(over)} times")),
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
class SaveBlocksStep(LineReport):
    """The step waits while a checkpoint is written."""

    code = "CKPT004"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Save less often; or copy the state to host memory in the step and write it from a thread "
        "(torch.distributed.checkpoint.async_save does both), to a temporary name that os.replace "
        "then renames."
    )

    share: float = knob(
        0.05, "Report if one line's saves take this share of the timed steps' time."
    )

    def detect(
        self, saves: Lines[SaveRow], machine: Machine, loop: TrainingLoop
    ) -> Iterator[Finding]:
        need_saves(saves)
        for line in saves.lines():
            share = line.us / saves.step_us if saves.step_us else 0.0
            if len(line.rows) < 2 or share < self.share:
                continue
            found = self.report(
                line,
                f"torch.save takes {amounts.percent(share)} of the step time: "
                f"{amounts.duration(line.us / len(line.rows))} on {line.pattern}",
                basis="estimated" if machine.cuda else "measured",
                facts=_facts(line),
                places=places_of(line.site, loop.call_of(line)),
            )
            yield found if machine.cuda else between(found, _price(line))


def _price(line: Line[SaveRow]) -> Estimate | None:
    each, often = of_separate([save.us for save in line.rows]), line.per_step
    return each and Estimate(often * each.value, often * each.low, often * each.high)


def _facts(line: Line[SaveRow]) -> tuple[tuple[str, str], ...]:
    sizes = [save.bytes for save in line.rows if save.bytes is not None]
    size = (("largest file", amounts.size(max(sizes))),) if sizes else ()
    longest = max(save.us for save in line.rows)
    return (("saves", f"{len(line.rows)}"), ("longest", amounts.duration(longest)), *size)


FEWEST = 3
"""Tensors with moments below which there is no proportion to be out of."""


@dataclass(frozen=True)
class OptimizerMomentsSpoiled(Rule):
    """The optimizer's moments are dead or exploded."""

    code = "CKPT007"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Check whether the parameter takes part in the loss (a detach, a factor of 0), and clip "
        "gradients against outliers."
    )

    steps: int = knob(10, "Report moments of zero only after this many optimizer steps.")
    ratio: float = knob(
        1e6, "Report a remembered gradient from this multiple of the median of all parameters on."
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
