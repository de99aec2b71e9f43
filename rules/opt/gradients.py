"""OPT002, 4 to 6, 8, 15, 17, 19 and 20: gradients cleared, clipped and added up, and weights averaged."""

import ast
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.lines import Lines
from auditor.evidence.recorded.reads import Reads
from auditor.evidence.source.call_arguments import CallArgument, given
from auditor.evidence.source.config_values import Configs
from auditor.evidence.source.files import Function, Source, name_of, the_only, unparsed
from auditor.evidence.table import Rows, together
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.recordings.schema.graph import ThrownRow, ZeroGradRow
from auditor.rule import Rule, knob
from auditor.syntax.index import LOOPS, nodes_in

from ..lines import LineRule, places_of
from ..reading import ReadingRule
from .rows import AverageRow, ClippingRow, MaskedRow, MicroBatchRow, UnclearedRow

CHECK = "error_if_nonfinite"


class ClipReadsGradientNorm(ReadingRule):
    """Gradient clipping reads the norm on the host."""

    code = "OPT004"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    leads = 4

    def detect(self, reads: Reads, source: Source, configs: Configs) -> Iterator[Finding]:
        for place, severity in self.reads(reads.clips()):
            call = source.call_with_keyword(place.site, CHECK)
            asked = given(source, configs, place.site, call, CHECK, ran=True)
            decided = f": {asked.said}" if asked.written else ""
            said = f"clipping reads the gradients' norm: {place.waits('this')}{decided}"
            remedy = _unchecked(place.site, call, asked)
            yield self.report(place, said, severity=severity, remedy=remedy)


def _unchecked(site: Site, call: str, asked: CallArgument) -> Remedy:
    """Of the call on the line that is given ``error_if_nonfinite`` as ``asked``."""
    look = "read the returned norms every N steps."
    # a library clips on the line's behalf, and asks for the check
    if not call:
        return Remedy(
            "Let it clip without error_if_nonfinite=True (pass False if the call takes "
            f"it), and {look}"
        )
    reason = "a non-finite norm then no longer raises an error"
    if asked.written:
        return asked.remedy(f"Set error_if_nonfinite to False, and {look}", "False", reason=reason)
    return Remedy(
        f"Drop error_if_nonfinite=True, and {look}",
        (Edit(site, "drop_keyword", call, CHECK, reason=reason),),
    )


@dataclass(frozen=True)
class ClippingMisplaced(Rule):
    """Gradients are clipped before the backward or after the step, where clipping has no effect."""

    code = "OPT006"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    everywhere = True

    share: float = knob(0.5, "Report only if at least this share of the optimizer's steps does it.")
    fewest: int = knob(3, "Report only if it happens on at least this many steps.")

    def detect(self, clippings: Rows[ClippingRow]) -> Iterator[Finding]:
        told: set[Site] = set()
        for line in clippings:
            if line.n < max(self.fewest, self.share * line.steps) or line.site in told:
                continue
            told.add(line.site)  # of a line with several optimizers the first
            if line.again:
                yield Finding(
                    line.site,
                    f"clipping here runs between the backward passes of one step of {line.optimizer}, on "
                    f"{line.n} of {line.steps} steps: what earlier passes added up is clipped again with "
                    "each later one, so the last micro-batch weighs most",
                    severity=Severity.NOTE,
                    steps=line.n,
                    per_step=1.0,
                    remedy=Remedy("Clip once, after the last backward and before step()."),
                )
                continue
            why = (
                "there was no gradient yet, and the backward ran after it"
                if line.absent
                else "the optimizer had already stepped with these gradients, and the next backward "
                "ran after it"
            )
            yield Finding(
                line.site,
                f"clipping here has no effect on the gradients that {line.optimizer} steps with, on "
                f"{line.n} of {line.steps} steps: {why}",
                steps=line.n,
                per_step=line.n / line.steps,
                remedy=Remedy(
                    f"Move it {'after the backward' if line.absent else 'before the step'}: "
                    "backward(), then clip, then step(). With a GradScaler, call "
                    "scaler.unscale_(optimizer) before the clip."
                ),
                places=places_of(line.site, line.site_of(line.stepped_at)),
            )


class MicroBatchesCleared(Rule):
    """Gradients of micro-batches are cleared before the optimizer steps."""

    code = "OPT017"
    severity = Severity.WARNING
    since = "0.3"
    advice = "Clear once before the first micro-batch or after the step, outside their loop."

    def detect(self, thrown: Rows[ThrownRow], cleared: Lines[ZeroGradRow]) -> Iterator[Finding]:
        for row in thrown:
            if row.what != "window":
                continue
            lines = [line.site for line in cleared.lines() if line.per_step > 1]
            yield Finding(
                the_only(lines) or row.site_of(row.at),
                f"gradients are cleared between the {row.n} backward passes of an optimizer step: {row.owner} "
                f"steps with those of the last one alone, and the other {row.n - 1} are lost",
                steps=row.steps,
                per_step=1.0,
                places=places_of(*lines, row.site_of(row.at)),
            )


FILLS = "zero_grad(set_to_none=False) fills every gradient with zeros"
BY_HAND = "zero_() fills gradients with zeros, to which the next backward adds,"


class GradientsFilledWithZeros(LineRule):
    """Gradients are filled with zeros instead of being dropped."""

    code = "OPT002"
    severity = Severity.NOTE
    since = "0.1"

    def detect(
        self, cleared: Lines[ZeroGradRow], source: Source, configs: Configs
    ) -> Iterator[Finding]:
        for line in self.usual(cleared.lines(lambda row: not row.set_to_none)):
            said = BY_HAND if any(row.owner == "Tensor" for row in line.rows) else FILLS
            asked = given(source, configs, line.site, "zero_grad", "set_to_none", ran=False)
            yield self.report(
                line,
                f"{said} on {line.pattern}" + (f": {asked.said}" if asked.written else ""),
                remedy=_dropped(
                    line.site, source.call_with_keyword(line.site, "set_to_none"), asked
                ),
            )


def _dropped(site: Site, call: str, asked: CallArgument) -> Remedy:
    """Of the call on the line that is given ``set_to_none`` as ``asked``."""
    if not call and not asked.written:
        return Remedy("Set gradients to None, as zero_grad() does by default.")
    reason = (
        "a parameter without a gradient is skipped, while a zero gradient still moves it "
        "under momentum or weight decay; code that reads p.grad may get None"
    )
    if asked.written:  # dropping it would override the user's choice
        return asked.remedy("Leave set_to_none at its default, True.", "True", reason=reason)
    return Remedy(
        "Drop set_to_none: the default sets gradients to None.",
        (Edit(site, "drop_keyword", call, "set_to_none", reason=reason),),
    )


@dataclass(frozen=True)
class GradientsPileUp(Rule):
    """Gradients are never cleared: every step adds to those of all earlier steps."""

    code = "OPT005"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    everywhere = True

    fewest: int = knob(3, "Report only if gradients piled up on at least this many steps.")

    def detect(self, uncleared: Rows[UnclearedRow], source: Source) -> Iterator[Finding]:
        for piling in uncleared:
            # unknown for the first watched step
            if piling.steps <= self.fewest or piling.piled != piling.steps - 1:
                continue
            backward, edit = piling.site_of(piling.backward_at), _edit(piling, source)
            yield Finding(
                piling.site,
                f"{piling.optimizer} steps with the gradients of all earlier steps added up: "
                f"nothing cleared them on any of {piling.piled} steps",
                steps=piling.piled,
                per_step=1.0,
                facts=(("added up by the backward at", str(backward)),) if backward else (),
                remedy=Remedy(
                    "Call optimizer.zero_grad() once for each step(): before the backward, or "
                    "right after the step.",
                    () if edit is None else (edit,),
                ),
            )


def _edit(piling: UnclearedRow, source: Source) -> Edit | None:
    """``zero_grad()`` before the backward, in the stepping function, by the optimizer's name."""
    site, backward = piling.site, piling.site_of(piling.backward_at)
    if (
        site is None
        or backward is None
        or (site.file, site.function) != (backward.file, backward.function)
    ):
        return None
    stepped = [
        call.func.value
        for call in source.calls_at(site)
        if name_of(call.func) == "step" and isinstance(call.func, ast.Attribute)
    ]
    if len(stepped) != 1 or not _names_it(stepped[0], source, piling.optimizer):
        return None
    reason = "training changes: from now on each step uses the gradient of its own batch alone"
    return Edit(
        backward, "insert_before", value=f"{ast.unparse(stepped[0])}.zero_grad()", reason=reason
    )


def _names_it(stepped: ast.expr, source: Source, optimizer: str) -> bool:
    """False of a GradScaler's ``step``, and of what was not made as this optimizer here."""
    name = name_of(stepped)
    named = (
        node.value
        for _, node in source.every(ast.Assign)
        if any(name_of(target) == name for target in node.targets)
    )
    return any(isinstance(value, ast.Call) and name_of(value.func) == optimizer for value in named)


FOLLOW_SCALE = ("SGD", "ASGD")
"""Optimizers whose update grows with the gradients; others divide by their size."""


@dataclass(frozen=True)
class LossNotDivided(Rule):
    """Gradients of several micro-batches are added up without dividing by their number"""

    code = "OPT008"
    severity = Severity.NOTE
    since = "0.1"
    advice = (
        "Divide the loss by the number of micro-batches before backward, and choose the "
        "learning rate for their mean."
    )

    least: int = knob(3, "Report only if it happened in at least this many optimizer steps.")
    share: float = knob(0.9, "Report only if this share of the steps with several passes does it.")

    def detect(self, micro_batches: Rows[MicroBatchRow], source: Source) -> Iterator[Finding]:
        several = (row for row in micro_batches if row.n > 1)
        for steps in together(several, lambda row: (row.at, row.optimizer)):
            site, optimizer = steps[0].site, steps[0].optimizer
            undivided = sum(step.undivided for step in steps)
            if optimizer not in FOLLOW_SCALE or undivided < self.least:
                continue
            if undivided < self.share * len(steps) or _is_given(source, site):
                continue
            n, weight = Counter((step.n, step.weight) for step in steps).most_common(1)[0][0]
            far = f"{n * weight:.3g} times as far as with one batch of the same total size"
            yield Finding(
                site,
                f"{n} backward passes add up the gradients of means over one micro-batch each, and "
                f"nothing divides them by their number: {optimizer} steps {far}",
                steps=undivided,
            )


def _is_given(source: Source, site: Site) -> bool:
    """Whether the line's backward is given a gradient to begin with."""
    calls: list[ast.Call] = [
        call for call in source.calls_at(site) if name_of(call.func) == "backward"
    ]
    names = {item.arg for call in calls for item in call.keywords}
    return any(call.args for call in calls) or bool(names - {"retain_graph", "create_graph"})


DIVIDED = 0.01
"""How far a loss may be from a mean over its window: what float32 rounds, and more."""


class WindowAcrossEpochs(Rule):
    """Gradients of an epoch's last micro-batches count more or less than the others"""

    code = "OPT015"
    severity = Severity.WARNING
    since = "0.3"

    def detect(self, micro_batches: Rows[MicroBatchRow], source: Source) -> Iterator[Finding]:
        for rows in together(micro_batches, lambda row: (row.at, row.optimizer)):
            usual = _window(rows)
            seen = any(row.n == usual for row in rows)  # else the half of a loss is no window's
            left = [row for row in rows if row.crosses and usual < row.n < 2 * usual]
            short = [
                row
                for row, after in itertools.pairwise(rows)
                if seen
                and row.n < usual
                and row.means == row.n
                and not row.uneven
                and abs(row.weight * usual - 1.0) < DIVIDED
                and after.begins
            ]
            if left and left[0].stepped is not None:
                extra = left[0].n - usual
                yield Finding(
                    _condition(source, left[0].site_of(left[0].stepped)),
                    f"the gradients of the last {extra} micro-batches of an epoch are kept for the "
                    f"first step of the next one, which adds up {left[0].n} instead of {usual}",
                    steps=len(left),
                    remedy=Remedy("Step after the last micro-batch of an epoch, too."),
                )
            elif short:
                divides = source.assigned_before(short[0].site, _divides)
                yield Finding(
                    divides or short[0].site,
                    f"the last window of an epoch has {short[0].n} micro-batches, and each loss is "
                    f"divided by {usual}: its step weighs {short[0].n / usual:.0%} of the others",
                    steps=len(short),
                    severity=Severity.NOTE,
                    remedy=Remedy("Divide by the number of micro-batches that the window has."),
                )


def _window(rows: Sequence[MicroBatchRow]) -> int:
    """Micro-batches of a usual window: what losses are divided by, else the most frequent."""
    alike = [row for row in rows if row.means == row.n and not row.uneven]
    divided = {row.weight for row in alike if 0.0 < row.weight < 1.0}
    if len(divided) == 1 and abs((by := 1.0 / divided.pop()) - round(by)) < DIVIDED:
        return round(by)
    inside = Counter(row.n for row in rows if not row.crosses)
    n, times = inside.most_common(1)[0] if inside else (0, 0)
    return n if times > inside.total() / 2 else 0


def _divides(node: ast.stmt) -> bool:
    """``loss = criterion(...) / steps``, ``loss /= steps``."""
    ops = nodes_in(node, ast.BinOp, ast.AugAssign)
    return any(isinstance(each.op, ast.Div) for each in ops)


def _condition(source: Source, step: Site) -> Site:
    """The line of the ``if`` that decides about a step; else the step's own."""
    index = source.index(step.file)
    for call in source.calls_at(step):
        for up in index.up(call):
            if isinstance(up, ast.If) and any(index.holds(each, call) for each in up.body):
                return source.site_of(step.file, up)
            if isinstance(up, (*LOOPS, Function)):
                break
    return step


ALIASES = Remedy(
    "Keep a copy of the weights from the start: p.detach().clone(), or copy.deepcopy(model): "
    "detach(), data and state_dict() share the memory of the parameters."
)


@dataclass(frozen=True)
class AverageIsTheWeights(Rule):
    """An average of weights is no more than the current weights."""

    code = "OPT019"
    severity = Severity.WARNING
    since = "0.3"
    rehearsed = True
    advice = (
        "Give the new weights 1 - decay: average.lerp_(new, 1 - decay), or "
        "average.mul_(decay).add_(new, alpha=1 - decay)."
    )

    weight: float = knob(
        0.95, "Report if the new weights are at least this share of the average on each step."
    )

    def detect(self, averages: Rows[AverageRow]) -> Iterator[Finding]:
        for row in averages:
            weights = amounts.count(row.n, "trained weight")
            if row.itself == row.n and row.copies:
                said = (
                    f"this line copies {weights} onto themselves: what was kept is an alias of them"
                )
            elif row.itself == row.n:
                said = (
                    f"this line averages {weights} with themselves: the average is an alias of them"
                )
            elif self.weight <= row.weight < 1.0 and row.steps >= max(2, row.watched - 1):
                said = (
                    f"each step mixes {row.weight:g} of the new weights with {1 - row.weight:.2g} of "
                    f"an average of {weights}: it hardly remembers the steps before"
                )
            else:
                continue
            yield Finding(
                row.site,
                said,
                steps=row.steps,
                per_step=float(row.n),
                severity=Severity.NOTE if row.itself and row.copies else None,
                remedy=ALIASES if row.itself else None,
            )


@dataclass(frozen=True)
class MaskedRowsDecay(Rule):
    """Weight decay changes rows whose gradients a hook masks."""

    code = "OPT020"
    severity = Severity.NOTE
    since = "0.3"
    advice = (
        "Give the parameter a group of its own with weight_decay=0: decay needs no gradient. Or keep "
        "the rows that are trained as a parameter of their own."
    )

    fewest: int = knob(8, "Report only after this many optimizer steps of the pass.")

    def detect(self, masked: Rows[MaskedRow], source: Source) -> Iterator[Finding]:
        for row in masked:
            if 0 < row.n < row.of and row.steps >= self.fewest:
                yield Finding(
                    _group_of(source, row) or row.site,
                    f"{row.n:,} of {row.of:,} rows of {row.name or 'a parameter'}, which has a hook, got "
                    f"no gradient on {row.steps} steps, and the weight decay of {row.optimizer} changed "
                    "them",
                    steps=row.steps,
                    per_step=1.0,
                )


def _group_of(source: Source, row: MaskedRow) -> Site | None:
    """The group of an optimizer that is given the parameter, by the end of its name."""
    own = ".".join(row.name.split(".")[-2:])
    groups = [
        (source.site_of(file, node), unparsed(node))
        for file, node in source.every(ast.Dict)
        if any(isinstance(key, ast.Constant) and key.value == "params" for key in node.keys)
    ]
    hooks = (source.site_of(file, call) for file, call in source.calls_of("register_hook"))
    return the_only(site for site, text in groups if own and own in text) or the_only(hooks)
