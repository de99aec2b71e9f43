"""AMP006: GradScaler and autocast used in an order or a dtype in which they do harm or nothing."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from auditor.evidence.recorded.amp import Amp, AmpPlace
from auditor.evidence.recorded.step_pattern import step_pattern
from auditor.evidence.source.files import Source, name_of, unparsed
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob
from auditor.syntax.index import is_path, nodes_in, owner_of

# -- grad scaler -----------------------------------------------------------------------------------
# What the source says of a GradScaler: the call of ``unscale_`` that a function lacks, how soon
# the scale grows, whether gradients are multiplied by a factor that a norm decides.


OPERATORS = {
    ast.Pow: operator.pow,
    ast.Mult: operator.mul,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
}
NEVER = re.compile(r"^(float\(['\"]inf['\"]\)|(math|np|numpy|torch)\.inf|sys\.maxsize)$")
BY_NORM = re.compile(r"norm|clip", re.IGNORECASE)


def growth_interval(source: Source, steps: float) -> Site | None:
    """Where the one GradScaler is made with a ``growth_interval`` of so many steps; None where that
    is not one line, or says no number.
    """
    found = {
        (file, call.lineno): call
        for file, call in source.calls_of("GradScaler")
        if any(
            each.arg == "growth_interval" and _number(each.value) == steps for each in call.keywords
        )
    }
    if len(found) != 1:
        return None
    (((file, _), call),) = found.items()
    return source.site_of(file, call)


def multiplies_by_norm(source: Source, site: Site) -> bool:
    """True if the ``mul_`` on the line is given a factor that is made of a norm, or of a bound for
    one, in the same function.
    """
    scope = source.index(site.file).scope_at(site.line)
    given = {
        unparsed(call.args[0])
        for call in source.calls_at(site)
        if name_of(call.func) == "mul_" and call.args
    }
    if scope is None or not given:
        return False
    made = [
        unparsed(node.value)
        for node in nodes_in(scope, ast.Assign)
        if given & set(map(unparsed, node.targets))
    ]
    divided = [text for text in (*given, *made) if "/" in text]
    return any(BY_NORM.search(text) for text in divided)


def either_or(source: Source, site: Site, method: str) -> bool:
    """True if the line calls ``method`` in one branch of an ``if`` whose other branch calls it as
    well: one of the two runs in an iteration.
    """
    for node in source.index(site.file).on(site.line, ast.If):
        called = [
            {call.lineno for call in nodes_in(body, ast.Call) if name_of(call.func) == method}
            for body in (node.body, node.orelse)
        ]
        if all(called) and any(site.line in lines for lines in called):
            return True
    return False


def _number(value: ast.expr) -> float | None:
    """A number as written, or a power, product, sum or difference of such."""
    if isinstance(value, ast.Constant):
        number = value.value
        return float(number) if isinstance(number, int | float) else None
    if isinstance(value, ast.BinOp) and type(value.op) in OPERATORS:
        left, right = _number(value.left), _number(value.right)
        if left is None or right is None or max(abs(left), abs(right)) > 1e6:
            return None
        try:
            return float(OPERATORS[type(value.op)](left, right))
        except (OverflowError, ZeroDivisionError):
            return float("inf")
    return float("inf") if NEVER.match(unparsed(value)) else None


def unscale_call(source: Source, site: Site) -> str:
    """``scaler.unscale_(optimizer)`` as it would be written on the site's line; empty where it is
    not clear, or is there.

    Clear means: the function that holds the line scales a loss and steps one optimizer, both by the
    same scaler.
    """
    scope = source.index(site.file).scope_at(site.line)
    calls = list(nodes_in(scope, ast.Call)) if scope is not None else []
    steps = {(owner_of(call), unparsed(call.args[0])) for call in calls if _is_scaler_step(call)}
    scaled = {owner_of(call) for call in calls if name_of(call.func) == "scale"}
    if len(steps) != 1 or any(name_of(call.func) == "unscale_" for call in calls):
        return ""
    ((scaler, optimizer),) = steps
    return f"{scaler}.unscale_({optimizer})" if scaler in scaled else ""


def _is_scaler_step(call: ast.Call) -> bool:
    if name_of(call.func) != "step" or len(call.args) != 1 or call.keywords:
        return False
    return is_path(call.func) and is_path(call.args[0])


# -- amp006 scaler misused -------------------------------------------------------------------------


REMEDIES = {
    "clip": "Call scaler.unscale_(optimizer) before clipping; step() "
    "then does not divide a second time.",
    "bfloat16": "Drop the GradScaler: bfloat16 has the range of float32, "
    "so no gradient underflows that a scale would save.",
    "backward": "Leave the autocast block before backward: each backward "
    "operator takes the dtype of its forward anyway.",
    "step": "Call scaler.step(optimizer) and then scaler.update(): "
    "step() divides the gradients by the scale first.",
    "unscaled": "Scale the loss: scaler.scale(loss).backward(), "
    "scaler.step(optimizer), scaler.update(); or use bfloat16.",
    "by_hand": "Call scaler.unscale_(optimizer) before the gradients are clipped; step() then does "
    "not divide a second time.",
    "made": "Make one GradScaler before the loop and keep it: its scale is found over thousands of "
    "steps, and belongs in the checkpoint.",
    "interval": "Leave growth_interval at its default of 2000 (smaller where a run is short).",
    "again": "Step once for each backward: leave the second step out, with its update().",
    "update": "Call scaler.update() once at the end of each step, after the step() of all "
    "optimizers.",
    "skipped": "Find what overflows (audit run names the line where "
    "non-finite values reach the weights), or use bfloat16.",
}


UNSCALED = "gradients are clipped by their true norm then: training changes, as it was meant to"

DEFAULTS = {
    "init_scale": ("65536", "65536.0", "2 ** 16", "2.0 ** 16"),
    "growth_factor": ("2", "2.0"),
    "backoff_factor": ("0.5",),
    "growth_interval": ("2000",),
    "enabled": ("True",),
}
"""What GradScaler's arguments are anyway, as torch has had it since 1.6, in the ways of writing
it.
"""


@dataclass(frozen=True)
class GradScalerMisused(Rule):
    """Gradients are clipped while they are still scaled, or the scaler does nothing."""

    code = "AMP006"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    share: float = knob(
        0.5, "Share of the diagnosed steps on which it happens from which it is reported."
    )
    skipped: float = knob(
        0.2, "Share of the scaler's steps that were skipped from which that is reported."
    )
    interval: float = knob(
        100_000, "Steps of growth_interval from which the scale is said never to grow."
    )
    fewest: int = knob(8, "Updates of the scaler below which no share is reported.")

    def detect(self, amp: Amp, source: Source) -> Iterator[Finding]:
        idle = tuple(
            (f"{name}={text}", "is its default: it changes nothing")
            for name, text in _defaults(source)
        )
        for finding in self._wrong(amp, source):
            yield replace(finding, facts=(*finding.facts, *idle))
        yield from self._notes(amp, source)

    def _wrong(self, amp: Amp, source: Source) -> Iterator[Finding]:
        for place in self._usual(amp.places("clip_scaled")):
            said = f"gradients are clipped while they are still scaled, on {place.pattern}"
            clipped = _finding(place, "clip", said)
            missing = unscale_call(source, place.site)
            if place.site is not None and missing:  # else it is not clear
                edit = Edit(place.site, "insert_before", value=missing, reason=UNSCALED)
                clipped = replace(clipped, remedy=Remedy(REMEDIES["clip"], (edit,)))
            yield clipped
        for place in self._usual(amp.places("step_scaled")):
            said = f"the optimizer steps with gradients that are still scaled, on {place.pattern}"
            yield _finding(place, "step", said, Severity.ERROR)
        for place in self._usual(amp.places("scale")):
            if amp.only_bfloat16:
                yield _finding(
                    place,
                    "bfloat16",
                    "the loss is scaled, though autocast runs in bfloat16, which needs no scale",
                )
        yield from self._by_hand(amp, source)
        for place in self._usual(amp.places("made")):
            said = (
                f"a new GradScaler is made on {place.pattern}: each begins with the scale of its "
                "first step and never learns a better one"
            )
            yield _finding(place, "made", said)
        for place in amp.places("step_again"):
            if not place.pattern.usual(self.share / 2):  # of a script each counts as a step
                continue
            said = (
                f"the optimizer steps a second time on the same gradients, on {place.pattern}: no "
                "backward ran since its last step"
            )
            yield _finding(place, "again", said)
        yield from self._never_grows(amp, source)
        yield from self._not_updated(amp)
        yield from self._skips(amp)

    def _by_hand(self, amp: Amp, source: Source) -> Iterator[Finding]:
        said = "gradients are clipped by hand while they are still scaled, on "
        for place in self._usual(amp.places("clamp_scaled")):
            yield _finding(place, "by_hand", f"{said}{place.pattern}")
        for place in self._usual(amp.places("mul_scaled")):
            if multiplies_by_norm(source, place.site):
                yield _finding(place, "by_hand", f"{said}{place.pattern}")

    def _never_grows(self, amp: Amp, source: Source) -> Iterator[Finding]:
        for steps in amp.intervals:
            if steps < self.interval:
                continue
            place = AmpPlace(
                growth_interval(source, steps) or next(amp.places("scale")).site,
                step_pattern(set(range(amp.steps)), amp.steps),
                1.0,
            )
            yield _finding(
                place,
                "interval",
                f"the scale would grow after {steps:,.0f} steps without an overflow, so never: "
                "each overflow halves it for the rest of the run",
            )

    def _not_updated(self, amp: Amp) -> Iterator[Finding]:
        if amp.not_updated is not None:
            place = AmpPlace(amp.not_updated, step_pattern({0}, 1), 1.0)
            yield _finding(
                place,
                "update",
                "no scaler.update() ran since this scaler's last step: torch refuses the second "
                "one, which ended this run",
                Severity.ERROR,
            )

    def _notes(self, amp: Amp, source: Source) -> Iterator[Finding]:
        for place in self._usual(amp.places("backward")):
            said = f"backward runs inside the autocast block on {place.pattern}"
            yield _finding(place, "backward", said, Severity.NOTE)
        for place in self._usual(amp.places("backward_unscaled")):
            said = (
                f"autocast runs in float16 and nothing scales the loss, on {place.pattern}: "
                "gradients below 6e-8 become 0"
            )
            yield _finding(place, "unscaled", said, Severity.NOTE)
        for place in self._usual(amp.places("update_early")):
            if either_or(source, place.site, "update"):
                continue
            said = (
                f"the scaler is updated before it steps the other optimizer, on {place.pattern}: "
                "it counts each iteration twice, and its scale may change within one"
            )
            yield _finding(place, "update", said, Severity.NOTE)

    def _usual(self, places: Iterator[AmpPlace]) -> Iterator[AmpPlace]:
        return (place for place in places if place.pattern.usual(self.share))

    def _skips(self, amp: Amp) -> Iterator[Finding]:
        skips, of = amp.skipped, len(amp.updates)
        if of < self.fewest:
            return
        last = amp.updates[-1]
        # early ones: the scale comes down to where it fits
        late = any(update.skipped for update in amp.updates[of // 2 :])
        again = late and len(skips) >= self.skipped * of
        if not again and last.after >= 1:
            return
        place = AmpPlace(
            last.site, step_pattern({each.step for each in skips}, amp.steps), len(skips) / of
        )
        facts = (
            ("scale at the end", f"{last.after:g}"),
            ("skipped", f"{len(skips)} of {of} steps"),
        )
        below = ": gradients overflow float16 without any scale" if last.after < 1 else ""
        said = (
            f"GradScaler skipped {len(skips)} of {of} steps, and its scale came down to "
            f"{last.after:g}{below}"
        )
        yield _finding(place, "skipped", said, facts=facts)


def _defaults(source: Source) -> Iterator[tuple[str, str]]:
    return (
        (name, text)
        for name, text in source.keywords_of("GradScaler")
        if text in DEFAULTS.get(name, ())
    )


def _finding(
    place: AmpPlace,
    kind: str,
    said: str,
    severity: Severity | None = None,
    *,
    facts: tuple[tuple[str, str], ...] = (),
) -> Finding:
    return Finding(
        place.site,
        said,
        steps=len(place.pattern.seen),
        per_step=place.per_step,
        severity=severity,
        facts=facts,
        remedy=Remedy(REMEDIES[kind]),
    )
