"""AMP004, 5, 7 and 9: half precision, how it is asked for and where it costs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from auditor import amounts
from auditor.evidence.recorded.amp import Amp, OpRanges, facts_of
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source, name_of
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.recordings.schema.numerics import NumericRow
from auditor.rule import NotLooked, Rule, knob

from ..lines import LineRule
from .precision import HALF, Precision

AMPERE = 8
"""Compute capability (major) from which tensor cores take bfloat16."""

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

    share: float = knob(0.5, "Report if a loss is scaled on this share of the diagnosed steps.")

    def detect(self, amp: Amp, machine: Machine, source: Source) -> Iterator[Finding]:
        machine.nothing_seen_without_cuda("its native dtypes are not known")
        if not machine.capability:
            raise NotLooked("the recording does not name the GPU's generation")
        scaled = any(self.usual(amp.lines("scale")))
        if machine.capability < AMPERE or not scaled or not amp.only_float16:
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
    reason = "bfloat16 rounds to 8 bits where float16 rounds to 11"
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


@dataclass(frozen=True)
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
                call = source.called(site, name)  # empty where the line does not name the class
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

    share: float = knob(0.1, "Report if casts take this share of kernel time.")
    least: int = knob(10, "Report only from this many casts in the trace.")

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


@dataclass(frozen=True)
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
        calls = [
            call
            for call in numerics.of("function")
            if call.half and call.loss and call.op not in STABLE
        ]
        calls.sort(key=lambda call: call.site.place)
        for site, group in groupby(calls, key=lambda call: call.site):
            here = list(group)
            worst = min(here, key=lambda call: call.dtype != "float16")
            names = " and ".join(
                dict.fromkeys(
                    CALLED.get(call.op, call.op) for call in here if call.dtype == worst.dtype
                )
            )
            yield Finding(
                site,
                f"{names} ran in {worst.dtype} on the way to the loss, which keeps "
                f"{DIGITS[worst.dtype]} decimal digits{_range(worst)}",
                steps=max(call.steps for call in here),
                per_step=sum(numerics.per_step(call) for call in here),
                severity=None if worst.dtype == "float16" else Severity.NOTE,
                facts=facts_of(worst),
            )


def _range(call: NumericRow) -> str:
    known = call.low is not None and call.high is not None
    return f" (its input went from {call.low:.3g} to {call.high:.3g})" if known else ""
