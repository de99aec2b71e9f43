"""CKPT001 to 4 and 6 to 8: what saved files hold and cost, and a variant of checkpointing."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from auditor import amounts
from auditor.batch_means import Estimate, of_separate
from auditor.evidence.checkpoints import Checkpoint, Checkpoints
from auditor.evidence.recorded.compiles import CompiledRegions
from auditor.evidence.recorded.lines import Line, Lines, TrainingLoop
from auditor.evidence.recorded.load_state_dict import default_rate, overridden
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.compile_calls import compile_call
from auditor.evidence.source.files import Source, unparsed
from auditor.evidence.table import Rows
from auditor.model import Finding, Remedy, Severity, Site
from auditor.recordings.schema.data import LoadRow, OptimizerLoadRow, SaveRow
from auditor.rule import NotLooked, Rule, knob

from ..lines import LineReport, between, places_of
from ..torch_says import TorchSays

if TYPE_CHECKING:
    from auditor.evidence.scans import TensorFacts


class CheckpointVariantNotChosen(TorchSays):
    """Activation checkpointing is called without use_reentrant."""

    code = "CKPT002"
    severity = Severity.NOTE
    warning = "checkpoint variant"
    defect = (
        "checkpoint() without use_reentrant is the reentrant variant, which gives no gradient if no "
        "input requires one; a later version of torch will refuse the call"
    )
    advice = "Pass use_reentrant=False."


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

    tolerance: float = knob(1e-3, "Treat two rates as equal up to this relative difference.")

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
            _group_values(checkpoint, *KEPT),
            _group_values(checkpoint, "max_lr"),
            _group_values(checkpoint, "lr"),
        )
        made_with = kept | {
            rate for scheduler in checkpoint.scan.schedulers for rate in scheduler.base
        }
        peak = {
            name: rate
            for name, rate in configured.items()
            if peaks and re.search("max|peak", name, re.IGNORECASE)
        }
        start = {name: rate for name, rate in configured.items() if name not in peak}
        by_hand = math.inf if made_with else max(now, default=0.0)
        other = {**self._stale(start, made_with or now, below=by_hand), **self._stale(peak, peaks)}
        if other:
            old = ", ".join(f"{each:g}" for each in sorted(made_with or now)[:4])
            new = ", ".join(f"{name} is {rate:g}" for name, rate in other.items())
            yield checkpoint.finding(
                f"{checkpoint.name} was trained with a rate of {old}, and now {new}: loading it "
                "restores the old rate"
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


def _group_values(checkpoint: Checkpoint, *keys: str) -> set[float]:
    groups = [group for optimizer in checkpoint.scan.optimizers for group in optimizer.groups]
    return {group[key] for group in groups for key in keys if key in group}


def _length(checkpoint: Checkpoint, configured: float | None) -> Iterator[Finding]:
    for scheduler in checkpoint.scan.schedulers:
        if configured is None or scheduler.total is None or scheduler.total >= configured:
            continue
        yield checkpoint.finding(
            f"{checkpoint.name}: its {scheduler.name} ends at step {scheduler.total}, but "
            f"the configuration asks for {configured:g} steps"
        )


class CompiledPrefix(LineReport):
    """The weights have the names of a compiled module"""

    code = "CKPT008"
    severity = Severity.NOTE
    since = "0.1"
    advice = (
        "Save model.state_dict() of the module passed to torch.compile, or compile in "
        "place with model.compile(). In an existing file, remove '_orig_mod.' from the keys."
    )

    def detect(
        self, saves: Lines[SaveRow], regions: CompiledRegions, source: Source
    ) -> Iterator[Finding]:
        need_saves(saves)
        if knows_prefix(source) or any(
            loads_into_compiled(source, each.site) for each in regions.regions
        ):
            return
        for line in saves.lines():
            named = next((save.compiled for save in line.rows if save.compiled), "")
            if named:
                yield self.report(
                    line,
                    "the saved weights have the names of a compiled module, such as "
                    f"{named}: load_state_dict of the plain module refuses them",
                    facts=(),
                )

    def in_checkpoint(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            named = [each for each in checkpoint.weights if PREFIX in each.name.split(".")]
            if named:
                yield checkpoint.finding(
                    f"{checkpoint.name}: {amounts.count(len(named), 'weight')} of "
                    f"{len(checkpoint.weights)} named as in a compiled module, such as "
                    f"{named[0].name}"
                )


# -- compiled names --------------------------------------------------------------------------------
# What a program knows of the names that a compiled module gives its weights, read off the source.


PREFIX = "_orig_mod"
"""The name under which ``torch.compile(module)`` holds the module that it was given."""

_NAMED = re.compile(rf"(?<!\w){PREFIX}(?!\w)")


def knows_prefix(source: Source) -> bool:
    """Whether the program names the prefix anywhere: to take it off, or the module behind it."""
    return any(
        (isinstance(node, ast.Attribute) and node.attr == PREFIX)
        or (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and _NAMED.search(node.value)
        )
        for file, text in source.texts.items()
        if PREFIX in text
        for node in source.nodes(file)
    )


def loads_into_compiled(source: Source, site: Site) -> bool:
    """Whether a state is loaded, further down in the file, into what this line compiled."""
    call = compile_call(source, site)
    if call is None or not call.target:
        return False
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "load_state_dict"
        and node.lineno > site.line
        and unparsed(node.func.value) == call.target
        for node in source.nodes(site.file)
    )


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
            needs = [("needs", name) for name in scan.foreign[:20]]
            if scan.refused:
                said = f"{checkpoint.name} is refused by torch: {scan.refused}"
                yield checkpoint.finding(said, *needs)
            elif scan.foreign:
                yield checkpoint.finding(
                    f"{checkpoint.name} only loads with torch.serialization.safe_globals: it needs "
                    f"{amounts.some(scan.foreign)}",
                    *needs,
                    severity=Severity.NOTE,
                    remedy=Remedy(
                        "Save plain values: vars() of a namespace, float() and tolist() of NumPy values."
                    ),
                )


def need_saves(saves: Lines[SaveRow]) -> None:
    """Raises :class:`NotLooked` if the program saved nothing in these steps."""
    if not len(saves):
        raise NotLooked(
            f"the program saved no checkpoint in the {saves.steps} timed steps (more --steps may "
            "reach a save; audit checkpoint FILE checks an existing file)"
        )


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
                "job that dies during the "
                f"{amounts.duration(max(save.us for save in over))} of a write has no checkpoint",
                severity=Severity.NOTE,
                facts=(),
            )

    def in_checkpoint(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            damage = checkpoint.scan.damage
            if not damage:
                continue
            more = f"; and {len(damage) - 1} more" if len(damage) > 1 else ""
            yield checkpoint.finding(
                f"{checkpoint.name} is damaged: {damage[0]}{more}",
                *(("damage", sentence) for sentence in damage[:20]),
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

    share: float = knob(0.05, "Report a line whose saves take at least this share of the steps.")
    beside: int = knob(1 << 20, "Report views from this many bytes on that are saved beside them.")

    def detect(
        self, saves: Lines[SaveRow], machine: Machine, loop: TrainingLoop
    ) -> Iterator[Finding]:
        need_saves(saves)
        for line in saves.lines():
            beside = max(save.beside for save in line.rows)
            if beside >= self.beside:
                yield self.report(
                    line,
                    f"torch.save writes the whole storage of a view: {amounts.size(beside)} that are no "
                    f"part of the saved tensors, on {line.pattern}",
                    facts=(),
                    remedy=Remedy(
                        "Save view.clone(): a view is saved with all that it was cut from."
                    ),
                )
            share = line.us / saves.step_us if saves.step_us else 0.0
            if len(line.rows) < 2 or share < self.share:
                continue
            found = self.report(
                line,
                f"torch.save takes {amounts.percent(share)} of the step time: "
                f"{amounts.duration(line.us / len(line.rows))} on {line.pattern}",
                basis="estimated" if machine.cuda else "measured",
                facts=(),
                places=places_of(line.site, loop.call_of(line)),
            )
            yield found if machine.cuda else between(found, _price(line))


def _price(line: Line[SaveRow]) -> Estimate | None:
    each, often = of_separate([save.us for save in line.rows]), line.per_step
    return each and Estimate(often * each.value, often * each.low, often * each.high)


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
        1e6, "Report a gradient, as the moments hold it, of at least this multiple of the median."
    )

    def detect(self, checkpoints: Checkpoints) -> Iterator[Finding]:
        for checkpoint in checkpoints.each:
            for optimizer, moments in checkpoint.moments:
                dead = [
                    tensor
                    for tensor, gradient in moments
                    if gradient == 0.0
                    and (tally := tensor.tally)
                    and tally.count > 0
                    and not tally.nonfinite
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
                    yield _finding(checkpoint, high, len(moments), f"large: it remembers {what}")


def _finding(checkpoint: Checkpoint, tensors: list[TensorFacts], of: int, what: str) -> Finding:
    more = f" (and {len(tensors) - 1} more of {of})" if len(tensors) > 1 else ""
    return checkpoint.finding(
        f"{checkpoint.name}: {tensors[0].name}{more} is {what}",
        *((each.name, f"shape {list(each.shape)}") for each in tensors[:50]),
    )
