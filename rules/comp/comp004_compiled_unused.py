"""COMP004: something was compiled, and what runs is the original."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from auditor import amounts
from auditor.evidence.recorded.compiled_regions import CompiledRegions, Region
from auditor.evidence.recorded.compiles import Compiles
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.source.compile_calls import CompileCall, call_past, compile_call
from auditor.evidence.source.files import Source
from auditor.model import Finding, Remedy, Severity
from auditor.rule import Rule, knob


@dataclass(frozen=True)
class Hints:
    """The text of what is compiled, where the line has one, whether ``Module.compile`` was called,
    and whether that compiled nothing.
    """

    argument: str
    method: bool
    nothing: bool = False


@dataclass(frozen=True)
class CompiledUnused(Rule):
    """Something is compiled, and the original runs"""

    code = "COMP004"
    severity = Severity.WARNING
    since = "0.1"

    enough: int = knob(5, "Steps that must have passed without it.")

    def detect(
        self, regions: CompiledRegions, compiles: Compiles, source: Source, machine: Machine
    ) -> Iterator[Finding]:
        if not compiles.compiled and not compiles.breaks:
            yield from self._made_nothing(regions, machine)
        for each in regions.regions:
            if each.steps or each.called or each.watched < self.enough:
                continue
            call = compile_call(source, each.site)
            if each.dropped:
                said = "nobody keeps what torch.compile returns here"
            elif each.trained and not regions.ran and _meant_for_training(each, call):
                said = "what is compiled here never ran, though its parameters are trained"
            else:
                continue
            past = call_past(source, each.site)
            yield Finding(
                each.site,
                f"{said}: `{each.what}` runs without the compiler"
                + (f" (called at line {past.line})" if past is not None else ""),
                seen_on=machine.device,
                facts=(("steps without it", amounts.count(each.watched, "step")),),
                hints=Hints(call.argument if call is not None else "", each.method),
            )

    def _made_nothing(self, regions: CompiledRegions, machine: Machine) -> Iterator[Finding]:
        """Modules whose code the compiler does not look at, one for each line."""
        ran = [each for each in regions.regions if each.torchs and each.method]
        for each in {each.site: each for each in ran if each.steps >= self.enough}.values():
            yield Finding(
                each.site,
                f"nothing is compiled here: `{each.what}` is a class of torch, whose code this "
                "version leaves to Python where it is compiled in place",
                seen_on=machine.device,
                facts=(("steps in which it ran", str(each.steps)), ("graphs", "none")),
                hints=Hints("", method=True, nothing=True),
            )

    def remedy(self, finding: Finding) -> Remedy | None:
        hints = finding.hints_as(Hints)
        if hints.nothing:
            return Remedy(
                "Give the module to torch.compile(module) and call what that returns, or compile in "
                "place a module of your own class that calls it."
            )
        if hints.method:
            return Remedy(
                "Call the module itself, model(x): model.forward(x) goes past the compiler and past "
                "hooks."
            )
        name = hints.argument if hints.argument.isidentifier() else "model"
        return Remedy(
            f"Write {name} = torch.compile({name}) before anybody else gets the module; or compile "
            f"in place, {name}.compile(), if its class is your own: everybody who holds it runs it."
        )


def _meant_for_training(region: Region, call: CompileCall | None) -> bool:
    """Whether the compiled module is no second one beside the module that is trained."""
    if region.method:
        return True
    return call is not None and bool(call.target) and (call.replaces or not call.read)
