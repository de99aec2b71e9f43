"""AMP001 to 7 and 9: precision of products, half precision, its scaler, and what they cost."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from auditor import amounts
from auditor.evidence.recorded.amp import Amp, OpRanges, facts_of, skipped
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.step_pattern import StepPattern, step_pattern
from auditor.evidence.source.files import Source, name_of, unparsed
from auditor.evidence.table import Evidence, Table, by_line
from auditor.evidence.trace.facts import kernel_timeline
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.recordings.schema.numerics import NumericRow
from auditor.rule import NotLooked, Rule, knob
from auditor.syntax.index import is_path, nodes_in, owner_of

from ..lines import LineRule

if TYPE_CHECKING:
    from auditor.timeline import Timeline


UNSCALE = "Call scaler.unscale_(optimizer) before clipping; step() then does not divide again."
UPDATE = "Call scaler.update() once at the end of each step, after all optimizers have stepped."
UNSCALED = "gradients are then clipped by their true norm: training changes, as intended"

NEVER = 100_000
"""Steps of ``growth_interval`` that no run goes without an overflow."""

FEWEST = 8
"""Updates of the scaler below which no share of them is reported."""


class Kind(NamedTuple):
    """What one event means; ``{on}`` are the steps. ``share``: report from this share of the steps."""

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
        "iteration twice, and the scale may change in the middle of an iteration",
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

    skipped: float = knob(0.2, "Report if at least this share of the scaler's steps is skipped.")

    def detect(self, amp: Amp, source: Source) -> Iterator[Finding]:
        for what, kind in KINDS.items():
            for line in amp.lines(what):
                site, seen = line.site, line.pattern
                if seen.usual(kind.share) and _counts(what, site, amp, source):
                    value = unscale_call(source, site) if what == "clip_scaled" else ""
                    missing = Edit(site, "insert_before", value=value, reason=UNSCALED)
                    edits = (missing,) if value else ()
                    yield _finding(site, seen, line.per_step, kind, edits)
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
            f"growth_interval is {max(amp.intervals):,.0f} steps, so the scale never grows again: "
            "each overflow halves it for the rest of the run"
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
        below = ": the unscaled gradients overflow float16, too" if scale < 1 else ""
        said = (
            f"GradScaler skipped {len(skips)} of {of} steps, and its scale dropped to "
            f"{scale:g}{below}"
        )
        advice = (
            "Find what overflows (`audit run` names the line where non-finite values reach the "
            "weights), or use bfloat16."
        )
        yield _finding(last.site, seen, len(skips) / of, Kind(said, advice))


def _counts(what: str, site: Site, amp: Amp, source: Source) -> bool:
    """Whether what was seen does harm, as far as the source tells."""
    if what == "scale":
        return amp.dtypes == {"bfloat16"}
    if what == "mul_scaled":
        return multiplies_by_norm(source, site)
    return what != "update_early" or not either_or(source, site)


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
    """True if the line's ``mul_`` is given a factor made of a norm, or its bound, in here."""
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
    """``scaler.unscale_(optimizer)`` as it would be written on the site's line; empty if it is
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


DTYPE = "dtype"
BFLOAT16 = "torch.bfloat16"
ENOUGH = (
    "Pass dtype=torch.bfloat16 to autocast and enabled=False to GradScaler, whose calls then do "
    "nothing."
)


@dataclass(frozen=True)
class HalfWhereBfloat16IsNative(LineRule):
    """Training runs in float16 on a GPU that has bfloat16."""

    code = "AMP004"
    severity = Severity.NOTE
    since = "0.1"

    share: float = knob(0.5, "Report if at least this share of the diagnosed steps scales a loss.")

    def detect(self, amp: Amp, machine: Machine, source: Source) -> Iterator[Finding]:
        machine.nothing_seen_without_cuda("its native dtypes are not known")
        if not machine.capability:
            raise NotLooked("the recording does not name the GPU's generation")
        scaled = any(self.usual(amp.lines("scale")))
        if machine.capability < AMPERE or not scaled or amp.dtypes != {"float16"}:
            return
        made = source.first_call("GradScaler")
        for line in self.usual(amp.lines("autocast")):
            yield self.report(
                line,
                "autocast runs in float16 with a GradScaler, on a GPU that runs bfloat16 as fast "
                f"and needs no scaler for it (compute capability {machine.capability}.x)",
                facts=(),
                remedy=Remedy(ENOUGH, _edits(source, line.site, made)),
            )


def _edits(source: Source, site: Site, made: Site | None) -> tuple[Edit, ...]:
    """Both changes, or none: a scaler that stays would scale for nothing."""
    call = next(
        (
            each
            for each in source.calls_at(site)
            if name_of(each.func) == "autocast" and _plain(each)
        ),
        None,
    )
    if call is None or made is None or "enabled" in _keywords(source, made):
        return ()
    reason = "bfloat16 keeps 8 significant bits, float16 keeps 11"
    dtype = Edit(site, "set_keyword", "autocast", DTYPE, BFLOAT16, reason=reason)
    return dtype, Edit(made, "set_keyword", "GradScaler", "enabled", "False", reason=reason)


def _plain(call: ast.Call) -> bool:
    """``torch.autocast("cuda")``, or with ``dtype=torch.float16``: nothing is decided elsewhere."""
    dtypes = [ast.unparse(given.value) for given in call.keywords if given.arg == DTYPE]
    of_torch = ast.unparse(call.func).startswith("torch.")
    return (
        of_torch
        and len(call.args) == 1
        and all(given.arg for given in call.keywords)
        and dtypes in ([], ["torch.float16"])
    )


def _keywords(source: Source, site: Site) -> set[str | None]:
    return {
        given.arg
        for call in source.calls_at(site)
        if name_of(call.func) == "GradScaler"
        for given in call.keywords
    }


NEW = {
    "old_autocast": ("autocast", 'torch.amp.autocast("cuda", ...)'),
    "old_scaler": ("GradScaler", 'torch.amp.GradScaler("cuda", ...)'),
}
"""Class and what to write instead, by kind of event."""


class OldMixedPrecisionApi(Rule):
    """Mixed precision is switched on by a deprecated class."""

    code = "AMP005"
    severity = Severity.NOTE
    since = "0.1"
    rehearsed = True
    everywhere = True

    def detect(self, amp: Amp, source: Source) -> Iterator[Finding]:
        for kind, (name, new) in NEW.items():
            sites = [line.site for line in amp.lines(kind)]
            if kind == "old_scaler":  # it was made before the step
                sites = [source.first_call(name) or site for site in sites[:1]]
            for site in sites:
                said = f"torch.cuda.amp.{name} is deprecated; use {new}"
                text = (
                    f"Write {new}, with the same arguments after the device, imported from "
                    "torch.amp."
                )
                reason = "the old class is the new one with device cuda"
                call = source.called(site, name)  # empty if the line does not name the class
                edit = Edit(site, "modernize_amp", call, safe=True, reason=reason)
                remedy = Remedy(text, (edit,) if call else ())
                yield Finding(site, said, steps=amp.steps, remedy=remedy)


@dataclass(frozen=True)
class CastThrash(Rule):
    """Casting tensors between dtypes takes a large share of the device's time."""

    code = "AMP007"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Enter autocast once around the whole forward pass; for inference convert the model once "
        "(model.bfloat16()). Keep tensors that only 16-bit operators use in 16 bits."
    )

    share: float = knob(0.1, "Report if casts take at least this share of kernel time.")
    least: int = knob(10, "Report only if the trace has at least this many casts.")

    def detect(self, precision: Precision) -> Iterator[Finding]:
        us = precision.cast_us
        if (
            us < self.share * precision.kernel_us
            or precision.casts < self.least
            or precision.share(HALF, "8-bit") <= 0
        ):
            return
        yield Finding(
            None,
            f"casting between dtypes takes {amounts.percent(us / precision.kernel_us)} of the "
            f"kernel time, {amounts.digits(precision.casts / precision.steps)} casts "
            f"{'per step' if precision.marked else 'in the trace'}",
            steps=precision.steps if precision.marked else 0,
            per_step=precision.casts / precision.steps if precision.marked else 0.0,
            lost_us_per_step=us / precision.steps if precision.marked else None,
            basis="estimated" if precision.marked else "none",
            seen_on="trace",
            severity=None if precision.marked else Severity.NOTE,
            facts=precision.facts,
        )


CALLED = {"nll_loss_forward": "nll_loss", "nll_loss2d_forward": "nll_loss"}
"""Names of operators as users write them."""

STABLE = frozenset({"log_softmax", "log_sigmoid_forward", "softplus", "logsumexp"})
"""Their kernels work in float32 and never overflow: only the result is rounded."""

DIGITS = {"float16": 3, "bfloat16": 2}
"""Decimal digits that are kept: 11 and 8 bits of significand."""


class LossInHalf(Rule):
    """The loss is computed in half precision by an operation that needs float32."""

    code = "AMP009"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True
    advice = (
        "Cast to float32 before it (score.float()), outside autocast or with autocast off "
        "around the loss."
    )

    def detect(self, numerics: OpRanges) -> Iterator[Finding]:
        for here in by_line(
            call
            for call in numerics.of("function")
            if call.half and call.loss and call.op not in STABLE
        ):
            worst = min(here, key=lambda call: call.dtype != "float16")
            names = " and ".join(
                dict.fromkeys(
                    CALLED.get(call.op, call.op) for call in here if call.dtype == worst.dtype
                )
            )
            yield Finding(
                worst.site,
                f"{names} ran in {worst.dtype} on the way to the loss: {worst.dtype} keeps "
                f"{DIGITS[worst.dtype]} decimal digits{_range(worst)}",
                steps=max(call.steps for call in here),
                per_step=sum(numerics.per_step(call) for call in here),
                severity=None if worst.dtype == "float16" else Severity.NOTE,
                facts=facts_of(worst),
            )


def _range(call: NumericRow) -> str:
    known = call.low is not None and call.high is not None
    return f" (its input went from {call.low:.3g} to {call.high:.3g})" if known else ""


HALF, TF32, FP32 = "16-bit", "tf32", "fp32"
"""Words of :mod:`auditor.timeline.precision`."""


@dataclass(frozen=True)
class Precision(Table):
    """Products, convolutions and attention by arithmetic on the device with the most work. Times
    are sums in us.

    ``capability`` is the major compute capability (0: not known), ``amd`` tells AMD's devices,
    whose numbers mean another thing. ``matmul_us`` are the products that a matrix product's
    operator launched (not a convolution's), by arithmetic.
    """

    files: ClassVar[tuple[str, ...]] = ("trace.json.gz",)

    device: str = ""
    capability: int = 0
    amd: bool = False
    steps: int = 1
    marked: bool = False
    busy: float = 0.0
    """Part of the steps' time in which the device worked."""
    kernel_us: float = 0.0
    products_us: tuple[tuple[str, float], ...] = ()
    matmul_us: tuple[tuple[str, float], ...] = ()
    top: tuple[tuple[str, float], ...] = ()
    """The fp32 kernels with the most time."""
    casts: int = 0
    cast_us: float = 0.0
    shapes: bool = False
    """Whether the trace holds shapes of products."""
    awkward: tuple[tuple[str, float], ...] = ()
    """``k x n`` of 16-bit products that are no multiples of 8, and their time."""

    @classmethod
    def build(cls, evidence: Evidence) -> Precision:
        """From the trace. Raises :class:`NotLooked` if it shows no kernel."""
        return _table(kernel_timeline(evidence))

    def share(self, *arithmetics: str) -> float:
        """Part of all kernel time in products of these arithmetics."""
        return self._of(self.products_us, arithmetics) / self.kernel_us if self.kernel_us else 0.0

    def matmul_share(self, *arithmetics: str) -> float:
        """Part of all kernel time in matrix products (no convolutions) of these arithmetics."""
        return self._of(self.matmul_us, arithmetics) / self.kernel_us if self.kernel_us else 0.0

    @staticmethod
    def _of(times: tuple[tuple[str, float], ...], arithmetics: tuple[str, ...]) -> float:
        return sum(us for name, us in times if name in arithmetics)

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """Rows for the report."""
        products = tuple(
            (f"{name} products", f"{amounts.percent(us / self.kernel_us)} of kernel time")
            for name, us in self.products_us
        )
        known = self.capability and not self.amd
        generation = f", compute capability {self.capability}.x" if known else ""
        return (
            ("device", f"{self.device or 'not named'}{generation}"),
            *products,
            *((f"{amounts.percent(us / self.kernel_us)}", name[:90]) for name, us in self.top),
        )


def _table(line: Timeline) -> Precision:
    use = line.devices[0]
    from auditor.timeline.totals import matmul_ns
    from auditor.timeline.totals import products as products_of

    products = products_of(line, use)
    slow = next((one for one in products if one.arithmetic == FP32), None)
    awkward = line.awkward_products
    return Precision(
        device=use.name,
        capability=_capability(line),
        amd=_amd(line),
        steps=line.steps.count,
        marked=line.steps.marked,
        busy=1 - line.idle.total / max(1, line.idle.windows.length) if line.idle else 0.0,
        kernel_us=use.kernel_ns / 1e3,
        products_us=tuple((one.arithmetic, one.ns / 1e3) for one in products),
        matmul_us=tuple((name, ns / 1e3) for name, ns in matmul_ns(line, use).items()),
        top=tuple((name, ns / 1e3) for name, ns in slow.top[:3]) if slow else (),
        casts=len(line.casts.rows),
        cast_us=line.casts.ns / 1e3,
        shapes=awkward.looked,
        awkward=tuple((size, ns / 1e3) for size, ns in awkward.sizes),
    )


def _amd(line: Timeline) -> bool:
    names = [device.name for device in line.trace.info.devices]
    calls = (total.name for total in line.runtime_calls)
    return any("AMD" in name or "Instinct" in name for name in names) or any(
        name.startswith("hip") for name in calls
    )


def _capability(line: Timeline) -> int:
    known = {device.index: device.capability[0] for device in line.trace.info.devices}
    return known.get(line.devices[0].device, 0)


TENSOR_CORES, AMPERE = 7, 8
"""Compute capabilities: Volta has fp16 tensor cores, Ampere bf16 and TF32."""


@dataclass(frozen=True)
class NoMixedPrecision(Rule):
    """Matrix products and convolutions run in fp32 although the device has 16-bit tensor cores."""

    code = "AMP001"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        'Run forward and loss under torch.autocast("cuda", dtype=torch.bfloat16), and compare the '
        "loss curves."
    )

    share: float = knob(0.1, "Report fp32 and TF32 products of at least this share of kernel time.")
    of_step: float = knob(0.05, "Report a note if they take less than this share of the steps.")
    half: float = knob(0.01, "Mixed precision is on from this share of 16-bit kernel time.")

    def detect(self, precision: Precision) -> Iterator[Finding]:
        slow = precision.share(FP32, TF32)
        able = precision.amd or precision.capability >= TENSOR_CORES
        if not able or slow < self.share or precision.share(HALF, "8-bit") >= self.half:
            return
        first = not precision.amd and precision.capability < AMPERE
        or_tf32 = " or TF32" if precision.share(TF32) > 0 else ""
        of_step = precision.share(FP32) * precision.busy  # what a faster arithmetic could take from
        loud = first and precision.marked and of_step >= self.of_step
        yield Finding(
            None,
            f"{amounts.percent(slow)} of the kernel time is matrix products and convolutions in "
            f"fp32{or_tf32}, none in 16 bits: "
            f"{precision.device or 'the device'} has tensor cores for them",
            steps=precision.steps if precision.marked else 0,
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=precision.facts,
            remedy=Remedy(BEFORE_AMPERE) if first else None,
        )


BEFORE_AMPERE = (
    'Run forward and loss under torch.autocast("cuda", dtype=torch.float16) with '
    "torch.amp.GradScaler (this device has no bfloat16 tensor cores), and compare the loss curves."
)

TF32_SINCE = 8
"""Compute capability from which NVIDIA's devices have TF32."""

HIGH = 'torch.set_float32_matmul_precision("high")'


@dataclass(frozen=True)
class Tf32Off(Rule):
    """fp32 matrix products run without TF32 on a device that has it."""

    code = "AMP002"
    severity = Severity.WARNING
    since = "0.1"

    share: float = knob(0.1, "Report fp32 products of at least this share of kernel time.")
    of_step: float = knob(0.05, "Report a note if they take less than this share of the steps.")

    def detect(self, precision: Precision, source: Source) -> Iterator[Finding]:
        slow = precision.matmul_share(FP32)
        if (
            precision.amd
            or precision.capability < TF32_SINCE
            or slow < self.share
            or precision.matmul_share(TF32) > 0
        ):
            return
        loud = precision.marked and slow * precision.busy >= self.of_step
        yield Finding(
            None,
            f"{amounts.percent(slow)} of the kernel time is matrix products in full fp32; "
            f"{precision.device or 'the device'} has TF32, but no product uses it",
            steps=precision.steps if precision.marked else 0,
            seen_on="trace",
            severity=None if loud else Severity.NOTE,
            facts=precision.facts,
            remedy=Remedy(
                f"Call {HIGH} once at the start, or use bf16 autocast.", tuple(_tf32_on(source))
            ),
        )


def _tf32_on(source: Source) -> Iterator[Edit]:
    """Where it is switched off, or in the file that trains."""
    off, trains = source.only_flag("matmul.allow_tf32", value=False), source.only_call("backward")
    reason = "matrix products keep 10 bits of their inputs' mantissa instead of 23"
    if off is not None:
        yield Edit(off, "set_constant", keyword="allow_tf32", value="True", reason=reason)
    elif trains is not None:
        yield Edit(trains, "insert_after_imports", value=HIGH, reason=reason)


@dataclass(frozen=True)
class AwkwardProductSizes(Rule):
    """16-bit matrix products have sizes that are not multiples of 8."""

    code = "AMP003"
    severity = Severity.NOTE
    since = "0.1"
    advice = (
        "Pad the size (vocabulary, classes, sequence) to a multiple of 8, better 64, and "
        "mask the padding."
    )

    share: float = knob(0.1, "Report if such products take at least this share of kernel time.")

    def detect(self, precision: Precision) -> Iterator[Finding]:
        if not precision.shapes:
            raise NotLooked("the trace holds no shapes (record it with record_shapes=True)")
        us = sum(time for _, time in precision.awkward)
        if us < self.share * precision.kernel_us:
            return
        sizes = precision.awkward
        yield Finding(
            None,
            "16-bit products whose sizes are not multiples of 8 take "
            f"{amounts.percent(us / precision.kernel_us)} of the kernel time, "
            f"most of it with k x n = {sizes[0][0]}",
            steps=precision.steps if precision.marked else 0,
            seen_on="trace",
            facts=tuple(
                (f"k x n = {size}", f"{amounts.percent(time / precision.kernel_us)} of kernel time")
                for size, time in sizes[:5]
            ),
        )
