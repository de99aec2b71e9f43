"""AMP006: GradScaler and autocast used in an order or a dtype in which they do harm or nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from auditor.evidence.recorded.amp import Amp, skipped
from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.source.files import Source, name_of, unparsed
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob
from auditor.syntax.index import is_path, nodes_in, owner_of

UNSCALE = "Call scaler.unscale_(optimizer) before clipping; step() then does not divide again."
UPDATE = "Call scaler.update() once at the end of each step, after all optimizers have stepped."
UNSCALED = "gradients are then clipped by their true norm: training changes, as intended"

NEVER = 100_000
"""Steps of ``growth_interval`` that no run goes without an overflow."""

FEWEST = 8
"""Updates of the scaler below which no share of them is reported."""


class Kind(NamedTuple):
    """What one event means; ``{on}`` are the steps. ``share`` of the steps from which it is told."""

    said: str
    advice: str
    severity: Severity | None = None
    share: float = 0.5


KINDS = {
    "clip_scaled": Kind("gradients are clipped while they are still scaled, on {on}", UNSCALE),
    "step_scaled": Kind(
        "the optimizer steps with gradients that are still scaled, on {on}",
        "Call scaler.step(optimizer) and then scaler.update(): step() divides the gradients by the "
        "scale first.",
        Severity.ERROR,
    ),
    "scale": Kind(
        "the loss is scaled although autocast runs in bfloat16, which needs no scale",
        "Drop the GradScaler: bfloat16 has the range of float32, so scaling saves no gradient from "
        "underflow.",
    ),
    "clamp_scaled": Kind("gradients are clipped by hand while still scaled, on {on}", UNSCALE),
    "mul_scaled": Kind("gradients are clipped by hand while still scaled, on {on}", UNSCALE),
    "made": Kind(
        "a new GradScaler is created on {on}: each starts with the initial scale and never learns a "
        "better one",
        "Create one GradScaler before the loop and keep it; its scale belongs in the checkpoint.",
    ),
    "step_again": Kind(
        "the optimizer steps a second time with the same gradients, on {on}: no backward ran since "
        "its last step",
        "Step once per backward: remove the second step and its update().",
        share=0.25,  # of a script each of the two counts as a step
    ),
    "backward": Kind(
        "backward runs inside the autocast block on {on}",
        "Leave the autocast block before backward: backward operators use the dtype of their "
        "forward anyway.",
        Severity.NOTE,
    ),
    "backward_unscaled": Kind(
        "autocast runs in float16 and the loss is not scaled, on {on}: gradients below 6e-8 "
        "become 0",
        "Scale the loss: scaler.scale(loss).backward(), scaler.step(optimizer), scaler.update(); "
        "or use bfloat16.",
        Severity.NOTE,
    ),
    "update_early": Kind(
        "the scaler is updated before it steps the other optimizer, on {on}: it counts each "
        "iteration twice, and its scale may change within one",
        UPDATE,
        Severity.NOTE,
    ),
}
"""By what the probe calls it."""


@dataclass(frozen=True)
class GradScalerMisused(Rule):
    """Gradients are clipped while still scaled, or the scaler has no effect."""

    code = "AMP006"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    skipped: float = knob(0.2, "Report skipped steps from this share of the scaler's steps.")

    def detect(self, amp: Amp, source: Source) -> Iterator[Finding]:
        for what, kind in KINDS.items():
            for line in amp.lines(what):
                site, seen = line.site, line.pattern
                if seen.usual(kind.share) and _counts(what, site, amp, source):
                    yield _finding(site, seen, line.per_step, kind, _edits(what, site, source))
        if any(steps >= NEVER for steps in amp.intervals):
            yield self._never_grows(amp, source)
        if amp.not_updated is not None:
            said = (
                "no scaler.update() ran since this scaler's last step: torch refuses the second "
                "step, which ended this run"
            )
            kind = Kind(said, UPDATE, Severity.ERROR)
            yield _finding(amp.not_updated, step_pattern({0}, 1), 1.0, kind)
        yield from self._skips(amp)

    def _never_grows(self, amp: Amp, source: Source) -> Finding:
        found = [
            source.site_of(file, call)
            for file, call in source.calls_of("GradScaler")
            if any(each.arg == "growth_interval" for each in call.keywords)
        ]
        site = found[0] if len(found) == 1 else next(amp.lines("scale")).site
        said = (
            f"the scale would grow after {max(amp.intervals):,.0f} steps without an overflow, so "
            "never: each overflow halves it for the rest of the run"
        )
        advice = "Leave growth_interval at its default of 2000 (smaller for a short run)."
        every = step_pattern(set(range(amp.steps)), amp.steps)
        return _finding(site, every, 1.0, Kind(said, advice))

    def _skips(self, amp: Amp) -> Iterator[Finding]:
        skips, of = amp.skipped, len(amp.updates)
        if of < FEWEST:
            return
        last = amp.updates[-1]
        # early ones: the scale comes down to where it fits
        late = any(map(skipped, amp.updates[of // 2 :]))
        again = late and len(skips) >= self.skipped * of
        scale = last.after or 0.0
        if not again and scale >= 1:
            return
        seen = step_pattern({each.step for each in skips}, amp.steps)
        below = ": gradients overflow float16 without any scale" if scale < 1 else ""
        said = (
            f"GradScaler skipped {len(skips)} of {of} steps, and its scale dropped to "
            f"{scale:g}{below}"
        )
        advice = (
            "Find what overflows (audit run names the line where non-finite values reach the "
            "weights), or use bfloat16."
        )
        yield _finding(last.site, seen, len(skips) / of, Kind(said, advice))


def _counts(what: str, site: Site, amp: Amp, source: Source) -> bool:
    """Whether what was seen does harm, as far as the source tells."""
    if what == "scale":
        return amp.only_bfloat16
    if what == "mul_scaled":
        return multiplies_by_norm(source, site)
    return what != "update_early" or not either_or(source, site)


def _edits(what: str, site: Site, source: Source) -> tuple[Edit, ...]:
    missing = unscale_call(source, site) if what == "clip_scaled" and site is not None else ""
    return (Edit(site, "insert_before", value=missing, reason=UNSCALED),) if missing else ()


def _finding(
    site: Site, seen: StepPattern, per_step: float, kind: Kind, edits: tuple[Edit, ...] = ()
) -> Finding:
    return Finding(
        site,
        kind.said.replace("{on}", str(seen)),
        steps=len(seen.seen),
        per_step=per_step,
        severity=kind.severity,
        remedy=Remedy(kind.advice, edits),
    )


# -- grad scaler -----------------------------------------------------------------------------------
# What the source says of a GradScaler: the call of ``unscale_`` that a function lacks, and whether
# gradients are multiplied by a factor that a norm decides.

BY_NORM = re.compile(r"norm|clip", re.IGNORECASE)


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


def either_or(source: Source, site: Site) -> bool:
    """True if the line updates in one branch of an ``if``, and the other branch updates as well."""
    for node in source.index(site.file).on(site.line, ast.If):
        called = [
            {call.lineno for call in nodes_in(body, ast.Call) if name_of(call.func) == "update"}
            for body in (node.body, node.orelse)
        ]
        if all(called) and any(site.line in lines for lines in called):
            return True
    return False


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
