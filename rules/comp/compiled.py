"""COMP004 to 6: how a compiled model is used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.batch_means import Estimate
from auditor.evidence.recorded.compiles import CompiledRegions, Compiles, Region
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.compile_calls import CompileCall, call_past, compile_call
from auditor.evidence.source.files import Source
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob

from ..pricing import between


@dataclass(frozen=True)
class CompiledUnused(Rule):
    """Something is compiled, but the original runs"""

    code = "COMP004"
    severity = Severity.WARNING
    since = "0.1"

    enough: int = knob(5, "Report only after this many steps without the compiled code.")

    def detect(
        self, regions: CompiledRegions, compiles: Compiles, source: Source
    ) -> Iterator[Finding]:
        if not compiles.compiled and not compiles.breaks:
            yield from self._made_nothing(regions)
        for each in regions.regions:
            if each.steps or each.called or each.watched < self.enough:
                continue
            call = compile_call(source, each.site)
            if each.dropped:
                said = "the result of torch.compile is not kept"
            elif each.trained and not regions.ran and _meant_for_training(each, call):
                said = "the compiled code never ran, though its parameters are trained"
            else:
                continue
            past = call_past(source, each.site)
            yield Finding(
                each.site,
                f"{said}: `{each.what}` runs without the compiler"
                + (f" (called at line {past.line})" if past is not None else ""),
                facts=(("steps without it", amounts.count(each.watched, "step")),),
                remedy=_remedy(call.argument if call is not None else "", each.method),
            )

    def _made_nothing(self, regions: CompiledRegions) -> Iterator[Finding]:
        """Modules whose code the compiler does not look at, one for each line."""
        ran = [each for each in regions.regions if each.torchs and each.method]
        for each in {each.site: each for each in ran if each.steps >= self.enough}.values():
            yield Finding(
                each.site,
                f"nothing is compiled here: `{each.what}` is a class of torch, which this version does "
                "not compile in place",
                facts=(("steps in which it ran", str(each.steps)), ("graphs", "none")),
                remedy=Remedy(
                    "Pass the module to torch.compile(module) and call the result, or "
                    "compile in place a module of your own class that calls it."
                ),
            )


def _remedy(argument: str, method: bool) -> Remedy:
    """By the text of what the line compiles, if any, and whether it is ``Module.compile``."""
    if method:
        return Remedy(
            "Call the module itself, model(x): model.forward(x) bypasses the compiler and hooks."
        )
    name = argument if argument.isidentifier() else "model"
    return Remedy(
        f"Write {name} = torch.compile({name}) before anything else gets the module; or compile it "
        f"in place, {name}.compile(), if its class is your own: then every reference runs compiled."
    )


def _meant_for_training(region: Region, call: CompileCall | None) -> bool:
    if region.method:
        return True
    return call is not None and bool(call.target) and (call.replaces or not call.read)


@dataclass(frozen=True)
class CompiledInStep(Rule):
    """torch.compile is called inside the step"""

    code = "COMP005"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Compile once, before the loop, and call the result. A function that is defined "
        "in the step can take what changes as arguments."
    )

    least: int = knob(
        3,
        "Report only if this many steps called it (a model of several stages compiles each once).",
    )
    share: float = knob(0.25, "Report only if this share of the passes' steps called it.")

    def detect(self, regions: CompiledRegions, steps: Steps) -> Iterator[Finding]:
        taken = len(steps.quiet) + len(steps.anomaly_off)
        for each in regions.in_steps:
            if each.made_on < max(self.least, self.share * taken):
                continue
            yield Finding(
                each.site,
                f"`{each.what or 'a function'}` is passed to torch.compile on "
                f"{amounts.count(each.made_on, 'step')}",
                lost_us_per_step=each.us,
                basis="measured",
                facts=(("time of a call", amounts.duration(each.us)),),
            )


DEBUGGING = ("eager", "aot_eager", "aot_eager_decomp_partition")
"""Backends that make no code: they are for finding out which part of the compiler fails."""

NO_CODE = "Drop backend=...: only the default, 'inductor', generates code; or do not compile."


@dataclass(frozen=True)
class CompileDoesNotPay(Rule):
    """The step is slower with torch.compile than without"""

    code = "COMP006"
    severity = Severity.WARNING
    since = "0.1"
    advice = (
        "Compile larger parts (the model instead of its layers, the step with the optimizer), or "
        "nothing. Fix graph breaks first, and measure again."
    )

    share: float = knob(
        0.02, "Report only if compiling costs this share of the step, at the interval's lower end."
    )

    def detect(
        self, regions: CompiledRegions, compiles: Compiles, steps: Steps
    ) -> Iterator[Finding]:
        if any(each.limit for each in compiles.recompiled):
            return  # COMP003 says why
        if not compiles.compiled:
            return  # COMP004 says why
        gained = steps.gained_by_compile()
        running = [each for each in regions.regions if each.steps]
        if gained is None or not running:
            return
        lost = Estimate(-gained.value, -gained.high, -gained.low)
        if not lost.proven or steps.share_of_step(lost.low) < self.share:
            return
        backend, compiled = _backend(running), len(steps.quiet) + len(steps.compiled_again)
        found = Finding(
            running[0].site,
            f"without torch.compile the step takes {amounts.duration(lost.value)} less"
            + (f": the backend {backend!r} generates no code" if backend else ""),
            lost_us_per_step=lost.value,
            basis="measured",
            facts=(
                ("steps compiled, and eager", f"{compiled}, {len(steps.eager_held)}"),
                ("compiled functions and modules", str(len(running))),
            ),
            remedy=Remedy(NO_CODE if backend else self.advice),
        )
        yield between(found, lost)


def _backend(running: list[Region]) -> str:
    """The backend of all of them, if it is one for debugging."""
    for name in DEBUGGING:
        if all(f"backend={name!r}" in each.options for each in running):
            return name
    return ""
