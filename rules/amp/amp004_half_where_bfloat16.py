"""AMP004: float16 and a GradScaler on a GPU that runs bfloat16 at the same rate."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from auditor.evidence.recorded.amp import Amp
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.files import Source, name_of
from auditor.model import Edit, Finding, Remedy, Severity, Site
from auditor.permit import Permit
from auditor.rule import NotLooked, Rule, knob

AMPERE = 8
"""Compute capability (major) from which tensor cores take bfloat16."""

DTYPE = "dtype"
BFLOAT16 = "torch.bfloat16"


@dataclass(frozen=True)
class Hints:
    """Both edits, or none."""

    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class HalfWhereBfloat16IsNative(Rule):
    """Training runs in float16 on a GPU that has bfloat16."""

    code = "AMP004"
    severity = Severity.NOTE
    since = "0.1"
    edits = (
        Permit("set_keyword", ("torch.autocast",), DTYPE, re.escape(BFLOAT16)),
        Permit(
            "set_keyword", ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler"), "enabled", "False"
        ),
    )

    share: float = knob(
        0.5, "Share of the diagnosed steps on which a loss is scaled from which it is reported."
    )

    def detect(self, amp: Amp, machine: Machine, source: Source) -> Iterator[Finding]:
        machine.nothing_seen_without_cuda("what it can run natively is not known")
        if not machine.capability:
            raise NotLooked("the recording does not say of which generation the GPU is")
        scaled = any(place.pattern.usual(self.share) for place in amp.places("scale"))
        if machine.capability < AMPERE or not scaled or not amp.only_float16:
            return
        made = source.first_call("GradScaler")
        for place in amp.places("autocast"):
            if not place.pattern.usual(self.share):
                continue
            yield Finding(
                place.site,
                "autocast runs in float16 with a GradScaler, on a GPU that runs bfloat16 as fast "
                "and without one "
                f"(compute capability {machine.capability}.x)",
                steps=len(place.pattern.seen),
                per_step=place.per_step,
                seen_on=machine.device,
                hints=Hints(_edits(source, place.site, made)),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        text = (
            "Give autocast dtype=torch.bfloat16 and GradScaler enabled=False: its calls then pass "
            "everything through."
        )
        return Remedy(text, finding.hints_as(Hints).edits)


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
    """``torch.autocast("cuda")`` or ``torch.amp.autocast("cuda", dtype=torch.float16)``: nothing is
    decided elsewhere.
    """
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
