"""MEM011: an out-of-memory error is caught, and what follows cannot work."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from auditor import amounts
from auditor.evidence.recorded.device_calls import DeviceCalls
from auditor.evidence.recorded.machine import Machine
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.source.files import Source
from auditor.evidence.table import Evidence, Table, rows_of
from auditor.model import Finding, Remedy, Severity, Site
from auditor.rule import Rule, knob

from ..pricing import between
from .oom_handlers_source import Guard, functions, guards
from .rows import EnclosingRow

WHY = {
    "died": "the second try ran out of memory as well, which ended this run",
    "same_graph": "backward runs again on the graph of the try that failed, "
    "whose buffers may be freed already (a second error), "
    "and adds what had come through before the error twice",
    "inside": "the retry runs inside except, where the exception still "
    "holds the frames of the failed try with their tensors",
    "kept": "the exception is stored, and its traceback keeps the tensors of the failed try alive",
}


@dataclass(frozen=True)
class Hints:
    """What is wrong on the line."""

    reasons: tuple[Reason | Literal["periodic"], ...]


@dataclass(frozen=True)
class OutOfMemoryHandledWrongly(Rule):
    """A handler of out-of-memory errors cannot work."""

    code = "MEM011"
    severity = Severity.WARNING
    since = "0.1"
    rehearsed = True

    often: int = knob(
        3, "Calls of empty_cache() at one constant distance before they are called periodic."
    )
    share: float = knob(0.5, "Share of the steps from which they are SYNC009's.")

    def detect(self, handlers: OomHandlers, machine: Machine) -> Iterator[Finding]:
        yield from self._flawed(handlers, machine)
        if machine.gpu_path and handlers.calls is not None:  # without a device it does nothing
            yield from self._periodic(handlers.calls, machine)

    def _flawed(self, handlers: OomHandlers, machine: Machine) -> Iterator[Finding]:
        times = amounts.count(handlers.errors, "time")
        ran = f"; memory ran out {times} in this audit" if handlers.errors else ""
        for flaw in handlers.flaws:
            yield Finding(
                flaw.site,
                f"after an out-of-memory error {'; and '.join(WHY[r] for r in flaw.reasons)}{ran}",
                seen_on=machine.device if handlers.errors else "source",
                facts=(
                    ("handler", str(flaw.handler)),
                    ("out of memory in this audit", str(handlers.errors)),
                ),
                hints=Hints(flaw.reasons),
            )

    def _periodic(self, calls: DeviceCalls, machine: Machine) -> Iterator[Finding]:
        for site in calls.sites(("empty_cache",)):
            seen = site.pattern
            if len(seen.seen) < self.often or seen.interval is None or seen.usual(self.share):
                continue
            price = (
                f"{amounts.duration(site.us_per_step)} per step inside the call"
                if machine.cuda
                else "rehearsed, so not priced"
            )
            found = Finding(
                site.site,
                f"empty_cache() every {seen.interval} steps prevents no out-of-memory error: "
                f"before torch raises one it gives its cache back without the call ({price})",
                steps=len(seen.seen),
                per_step=site.per_step,
                lost_us_per_step=site.us_per_step if machine.cuda else None,
                basis="measured" if machine.cuda else "none",
                seen_on=machine.device,
                severity=Severity.NOTE,
                facts=site.facts,
                hints=Hints(("periodic",)),
            )
            yield between(found, site.price) if machine.cuda else found

    def remedy(self, finding: Finding) -> Remedy | None:
        reasons = finding.hints_as(Hints).reasons
        if reasons == ("periodic",):
            return Remedy(
                "Drop it, or keep it where other programs share the device and need the memory in "
                "between."
            )
        if reasons == ("kept",):
            return Remedy("Store str(error), not the error.")
        return Remedy(
            "In except only set a flag. After the block: zero_grad(), then a fresh forward and "
            "backward, with a smaller batch in "
            "several parts; on the second failure save a checkpoint and stop."
        )


# -- oom handlers ----------------------------------------------------------------------------------
# Handlers of out-of-memory errors around the backward calls of the step, and what is wrong with
# them.


Reason = Literal["died", "same_graph", "inside", "kept"]

FRAME = re.compile(r'^ *File "(?P<file>[^"\n]+)", line (?P<line>\d+), in ', re.MULTILINE)
"""A frame of a traceback, as Python prints it."""


@dataclass(frozen=True)
class Flaw:
    """One line of a handler, or of what it leads to, and the reasons why it does harm."""

    site: Site
    handler: Site
    reasons: tuple[Reason, ...]


@dataclass(frozen=True)
class OomHandlers(Table):
    """Handlers that guard a backward which the audited step ran, or that the error passed which
    ended it. ``errors`` counts those that the program caught meanwhile.
    """

    parts: ClassVar[tuple[str, ...]] = ("enclosing", "steps", "calls")

    flaws: tuple[Flaw, ...] = ()
    handlers: int = 0
    errors: int = 0
    calls: DeviceCalls | None = None
    """What empties the cache; None of a run that died before that was recorded."""

    @classmethod
    def without_parts(cls, evidence: Evidence) -> OomHandlers | None:
        """The handlers that the error passed which ended the run, if it died of one."""
        found, flaws = _judged(evidence, {}, _traceback(evidence))
        return cls(flaws, found, 2) if any("died" in each.reasons for each in flaws) else None

    @classmethod
    def build(cls, evidence: Evidence) -> OomHandlers:
        """From the lines around the loud pass's backward calls, the traceback of the error that
        ended the run, and the recorded source.
        """
        lines: dict[str, set[int]] = defaultdict(set)
        for row in rows_of(evidence, EnclosingRow):
            for site in map(evidence.recording.site, row.lines):
                lines[site.file].add(site.line)
        found, flaws = _judged(evidence, lines, _traceback(evidence))
        steps = evidence.get(Steps)
        caught = max((step.ooms for step in (*steps.quiet, *steps.loud)), default=0)
        return cls(flaws, found, caught, evidence.get(DeviceCalls))


def _judged(
    evidence: Evidence, ran: Mapping[str, set[int]], ended: list[tuple[str, int]]
) -> tuple[int, tuple[Flaw, ...]]:
    """How many handlers guard these lines, and what is wrong with them."""
    lines = defaultdict(set, {file: set(numbers) for file, numbers in ran.items()})
    for file, line in ended:
        lines[file].add(line)
    source = evidence.get(Source)
    named = functions(map(source.index, source.texts))
    found = [
        (file, guard)
        for file in lines
        if file in source.texts
        for guard in guards(source.index(file), lines[file], named)
    ]
    flaws = tuple(flaw for file, guard in found for flaw in _flaws(evidence, file, guard, ended))
    return len(found), flaws


def _traceback(evidence: Evidence) -> list[tuple[str, int]]:
    """Files, as sites name them, and lines of the error that ended the run, and of those that it
    came from.
    """
    error = evidence.recording.manifest.get("error") or {}
    if evidence.recording.manifest.get("outcome") != "oom":
        return []
    return [
        (evidence.recording.relative(frame["file"]), int(frame["line"]))
        for frame in FRAME.finditer(error.get("traceback") or "")
    ]


def _flaws(
    evidence: Evidence, file: str, guard: Guard, ended: list[tuple[str, int]]
) -> Iterator[Flaw]:
    function = guard.scope.name if not isinstance(guard.scope, ast.Module) else "<module>"

    def site(node: ast.stmt | ast.expr | ast.ExceptHandler) -> Site:
        return evidence.recording.site_at(file, node.lineno, function)

    handler = site(guard.handler)
    died = any(each == file and guard.died_at(line) for each, line in ended)
    for retry in guard.retries:
        reasons: list[Reason] = ["died"] if died and retry.inside else []
        if retry.same_graph:
            reasons.append("same_graph")
        elif retry.inside:
            reasons.append("inside")
        if reasons:
            yield Flaw(site(retry.node), handler, tuple(reasons))
    if guard.kept is not None:
        yield Flaw(site(guard.kept), handler, ("kept",))
