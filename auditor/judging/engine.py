"""Judging: asks each rule for its findings, with the evidence that ``detect`` names. No torch."""

import re
import traceback
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import NoneType
from typing import Any

from auditor import amounts
from auditor.evidence.recorded.null_run import NullRun, null_run
from auditor.evidence.recorded.steps import CpuContention, Steps
from auditor.evidence.source.files import Statements, shorten
from auditor.evidence.table import BROKEN_PROBE, Evidence, Others, Table
from auditor.judging.null_beside import confirmed
from auditor.model import (
    Finding,
    FoundAt,
    Remedy,
    SeenOn,
    Severity,
    Site,
    Verdict,
    finding_key,
    prices,
)
from auditor.recordings.folder import Recording
from auditor.recordings.schema.run import ModuleRow
from auditor.rule import SEE, NotLooked, Rule
from auditor.runs.plan import REHEARSAL
from auditor.syntax.silence import ignored_in, names_of, silenced

INTERRUPTED = "judging was interrupted before this rule ran"
"""Reason of rules that are *skipped* after an interruption."""


@dataclass(frozen=True)
class Judgement:
    """What the rules said: a verdict each, findings by price, and sentences about the judging."""

    verdicts: tuple[Verdict, ...]
    findings: tuple[Finding, ...]
    warnings: tuple[str, ...]


def evidence_of(rule: type[Rule], question: str = "detect") -> dict[str, type[Table]]:
    """The tables that a rule's ``detect`` (or ``in_trace``, ...) asks for, by parameter name."""
    hints = typing.get_type_hints(getattr(rule, question))
    return {
        name: table
        for name, table in hints.items()
        if isinstance(table, type) and issubclass(table, Table)
    }


REPORTED = (ModuleRow.part,)
"""Parts that the report shows and no rule asks for."""


def parts_of(rules: Iterable[type[Rule]]) -> tuple[str, ...]:
    """The parts of a recording that these rules need: what the recorder must switch on.

    A rule whose signature cannot be read needs none: it is *failed* when it is asked.
    """
    needed: set[str] = set()
    for rule in rules:
        with suppress(Exception):
            needed.update(part for table in evidence_of(rule).values() for part in table.parts)
    return tuple(sorted(needed))


def judge(
    evidence: Evidence,
    rules: Iterable[type[Rule]],
    *,
    knobs: Mapping[str, Mapping[str, Any]] | None = None,
    per_file_ignores: Mapping[str, tuple[str, ...]] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Judgement:
    """Ask every rule; a rule that raises becomes a *failed* verdict and never stops the others.
    Those that were not asked when ``stop`` became true are *skipped*.

    Where the recording holds a rehearsal of the GPU path, that decides the rules which a CPU
    cannot; and the run on the null device beside it those that torch's own code tells better.
    """
    rehearsed, null = evidence.inside(REHEARSAL), evidence.once(null_run)
    statements = Statements(evidence.recording.source)
    silence = Silence(evidence.recording, per_file_ignores or {}, statements)
    verdicts: list[Verdict] = []
    findings: list[Finding] = []
    told: set[str] = set()  # what is silenced is known, too
    chosen = tuple(rules)
    for rule in sorted(chosen, key=_asks_about_others):
        if stop():
            verdicts.append(Verdict(rule.code, rule.name(), "skipped", INTERRUPTED))
            continue
        evidence.tell(Others(frozenset(one.code for one in verdicts), frozenset(told)))
        verdict, found = _ask(rule, evidence, rehearsed, null, (knobs or {}).get(rule.code, {}))
        told.update(finding.code for finding in found)
        loud = [finding for finding in found if not silence.covers(finding)]
        if found and not loud:
            verdict = replace(verdict, status="clean", reason="silenced in the source")
        verdicts.append(verdict)
        findings.extend(loud)
    unused = silence.unused({one.code for one in verdicts if one.reason != INTERRUPTED})
    place = {rule.code: number for number, rule in enumerate(chosen)}
    verdicts.sort(key=lambda verdict: place[verdict.code])
    whole = joined(_distinct(prices.in_order(findings)), causes_of(chosen), statements)
    whole = tuple(_following(whole, {rule.code: rule.follows_at_line for rule in chosen}))
    unasked = sum(verdict.reason == INTERRUPTED for verdict in verdicts)
    said = (f"judging was interrupted: {unasked} rules did not run",) if unasked else ()
    warnings = (*said, *unused)
    return Judgement(tuple(verdicts), prices.in_order(_pointing(whole)), warnings)


def _following(findings: Iterable[Finding], causes: Mapping[str, str]) -> Iterator[Finding]:
    """The findings; one whose cause another names at its line points to it, without advice."""
    findings = tuple(findings)
    there = {(each.code, each.site) for each in findings if each.site is not None}
    for each in findings:
        cause = causes.get(each.code, "")
        if (cause, each.site) in there:
            yield replace(each, follows=cause, remedy=None)
        else:
            yield each


def settled(
    evidence: Evidence,
    rules: Iterable[type[Rule]],
    *,
    knobs: Mapping[str, Mapping[str, Any]] | None = None,
    per_file_ignores: Mapping[str, tuple[str, ...]] | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Finding, ...]:
    """Findings at a line that :func:`judge` will have, too, whatever a rehearsal of the same run
    shows, by price. A rehearsal decides only rules that ask for one, and leaves what was measured on
    the CPU; left out are those that it may join with a finding of its own. A run that found a GPU is
    not rehearsed. None once ``stop`` is true.
    """
    follows = not evidence.recording.device.accelerator
    statements = Statements(evidence.recording.source)
    silence = Silence(evidence.recording, per_file_ignores or {}, statements)
    chosen = tuple(rules)
    unsure = {rule.cause for rule in chosen if follows and rule.rehearsed and rule.cause}
    found: list[Finding] = []
    for rule in chosen:
        if stop():
            return ()
        if rule.cause in unsure or _asks_about_others(rule):
            continue
        _, mine = _ask_one(rule, evidence, (knobs or {}).get(rule.code, {}))
        stays = not (follows and rule.rehearsed) or rule.everywhere
        found += (each for each in mine if stays or _is_measured(each))
    loud = (each for each in found if each.site is not None and not silence.covers(each))
    return prices.in_order(joined(_distinct(prices.in_order(loud)), causes_of(chosen), statements))


def _is_measured(finding: Finding) -> bool:
    return finding.lost_us_per_step is not None or finding.lost_bytes is not None


def _asks_about_others(rule: type[Rule]) -> bool:
    with suppress(Exception):  # a rule that is broken is asked like any other, and fails then
        return Others in evidence_of(rule).values()
    return False


def _pointing(findings: Iterable[Finding]) -> list[Finding]:
    """Their messages point only to findings that are there (:func:`auditor.rule.see`)."""
    findings = tuple(findings)
    codes = {finding.code for finding in findings}

    def there(match: re.Match[str]) -> str:
        wanted = set(match[1].split(","))
        named = sorted(
            code for code in codes if code in wanted or code.rstrip("0123456789") in wanted
        )
        return f" ({', '.join(named)})" if named else ""

    return [
        replace(
            finding,
            message=SEE.sub(there, finding.message),
            facts=tuple((name, SEE.sub(there, said)) for name, said in finding.facts),
        )
        for finding in findings
    ]


# -- which is believed -----------------------------------------------------------------------------
# Of the run on the CPU and, if a GPU decides the rule, of the GPU path: the null device where that
# can tell and tells better, else the rehearsal.

BELIEVED = (
    #        the CPU       the GPU path  verdict   findings
    ("everywhere", "any", "cpu", "both"),  # found; the rule holds on any device
    ("failed", "any", "cpu", "gpu"),
    ("found", "skipped", "cpu", "cpu"),
    ("found", "blind", "cpu", "cpu"),
    ("clean", "blind", "gpu", "cpu"),  # its probe broke: what a GPU would do is not known
    ("clean", "skipped", "cpu", "cpu"),
    ("any", "failed", "gpu", "gpu, measured"),
    ("any", "any", "findings", "gpu, measured"),  # *found* if there are any, else the GPU's
)
"""The first row that fits holds."""


def believed(cpu: Verdict, gpu: Verdict, *, everywhere: bool) -> tuple[str, str, str, str]:
    """The row of two verdicts; ``everywhere`` is that of the rule."""
    on_cpu = "everywhere" if everywhere and cpu.status == "found" else cpu.status
    blind = gpu.status == "skipped" and gpu.reason.startswith(BROKEN_PROBE)
    on_gpu = "blind" if blind else gpu.status
    return next(row for row in BELIEVED if row[0] in (on_cpu, "any") and row[1] in (on_gpu, "any"))


def _ask(
    rule: type[Rule],
    evidence: Evidence,
    rehearsed: Evidence | None,
    null: NullRun | None,
    knobs: Mapping[str, Any],
) -> tuple[Verdict, list[Finding]]:
    shadow = evidence if evidence.recording.device.shadow else rehearsed
    cpu, on_cpu = _ask_one(rule, evidence, knobs) if shadow is not evidence else (None, [])
    if cpu is not None and (shadow is None or not rule.rehearsed):
        return cpu, on_cpu
    assert shadow is not None, "a run that is no rehearsal has one"
    memory = null.memory if rule.native and null is not None else None
    gpu, on_gpu = _ask_one(rule, shadow if memory is None else memory, knobs)
    if memory is not None and gpu.status not in ("found", "clean"):  # it cannot tell
        gpu, on_gpu, memory = *_ask_one(rule, shadow, knobs), None
    if memory is None:
        on_gpu = [confirmed(finding, null) for finding in on_gpu]
    if cpu is None:
        return gpu, on_gpu
    *_, whose, findings = believed(cpu, gpu, everywhere=rule.everywhere)
    found = on_cpu if findings == "cpu" else on_gpu
    if findings == "both":
        found = _on_both(on_cpu, on_gpu)
    elif findings == "gpu, measured":
        found = _with_measured(on_gpu, on_cpu, lambda lost: rule(**knobs).tells_growth(lost))
    if whose == "findings" and found:
        return replace(gpu, status="found", reason=""), found
    return (cpu if whose == "cpu" else gpu), found


def _with_measured(
    on_gpu: list[Finding], on_cpu: list[Finding], told: Callable[[float], bool]
) -> list[Finding]:
    """What the GPU path shows, and what the CPU measured that is true whatever a GPU does."""
    timed = {each.site: each for each in on_cpu if each.lost_us_per_step is not None}
    found = [
        timed.get(each.site, each) if each.lost_us_per_step is None else each for each in on_gpu
    ]
    sites = {finding.site for finding in found}
    for each in filter(_is_measured, on_cpu):
        if each.site is None and each.grows:
            found = _placed(found, each, told)
        elif each.site is None or each.site not in sites:
            found.append(each)
    return found


def _on_both(on_cpu: list[Finding], on_gpu: Iterable[Finding]) -> list[Finding]:
    """What the CPU found, and of the GPU path what is at other lines, or more severe there. What has
    no line there may be the same thing.
    """
    severities = {each.site: each.severity for each in on_cpu}
    added = [
        each
        for each in on_gpu
        if each.site is not None
        and (each.site not in severities or _rank(each.severity) < _rank(severities[each.site]))
    ]
    replaced = {each.site for each in added}
    return [*(each for each in on_cpu if each.site not in replaced), *added]


def _rank(severity: Severity | None) -> int:
    return len(Severity) if severity is None else severity.rank


def _placed(found: list[Finding], host: Finding, told: Callable[[float], bool]) -> list[Finding]:
    """With growth of the host that has no place: on a CPU the device's tensors lie in host memory, so
    that a line which grows on the simulated device is its place, unless what the line leaves of it
    would be ``told`` by itself (in bytes). What both have the same cause for is never two: nodes of
    kept graphs lie on the host alone. Such a finding is as severe as the measured one.
    """
    for index, each in enumerate(found):
        if each.grows and each.site is not None:
            rest = ((host.lost_bytes or 0) - (each.lost_bytes or 0)) * (host.steps or 0)
            if told(rest) and not (host.follows and host.follows == each.follows):
                continue
            facts = (*each.facts, ("measured on the CPU", host.message))
            placed = replace(each, severity=host.severity, facts=facts)
            return [*found[:index], placed, *found[index + 1 :]]
    return [*found, host]


def _ask_one(
    rule: type[Rule], evidence: Evidence, knobs: Mapping[str, Any]
) -> tuple[Verdict, list[Finding]]:
    name = rule.name()
    try:
        asked = rule(**knobs)
        question = (
            f"in_{evidence.bare}"
            if getattr(rule, f"in_{evidence.bare}", None) is not None
            else "detect"
        )
        needed = evidence_of(rule, question)
        tables = {parameter: evidence.get(table) for parameter, table in needed.items()}
        device = evidence.recording.device.seen_on
        found = [_complete(asked, each, device) for each in getattr(asked, question)(**tables)]
        found = [_doubted(each, rule, evidence) for each in found]
    except NotLooked as reason:
        return Verdict(rule.code, name, "skipped", str(reason)), []
    except (Exception, SystemExit):
        return Verdict(rule.code, name, "failed", traceback.format_exc(limit=-6)), []
    if not found and (why := evidence.why_unsure(needed.values())):
        return Verdict(rule.code, name, "skipped", why), []
    return Verdict(rule.code, name, "found" if found else "clean"), found


def _complete(rule: Rule, finding: Finding, device: SeenOn) -> Finding:
    """What the engine adds to a rule's words. Raises ``TypeError`` for no fit finding."""
    if not isinstance(finding, Finding):
        raise TypeError(f"detect() gave {type(finding).__name__}, not a Finding")
    for name, kinds in FIELDS.items():
        value = getattr(finding, name)
        if not isinstance(value, kinds):
            raise TypeError(f"the finding's {name} is {value!r}")
    named = replace(
        finding,
        code=rule.code,
        name=rule.title(),
        severity=finding.severity or rule.severity,
        seen_on=finding.seen_on or device,
        key=finding_key(rule.code, finding.site),
        places=tuple(
            replace(each, code=rule.code, key=finding_key(rule.code, each.site))
            for each in finding.places
        ),
    )
    if (
        named.basis == "measured"
        and named.lost_us_per_step is not None
        and named.lost_us_per_step_low is None
    ):
        # too few steps for an interval: nothing is measured without one
        named = replace(named, basis="estimated")
    unproven = named.lost_us_per_step is not None and named.proven_us is None
    if unproven and named.severity == "error":
        named = replace(named, severity=Severity.WARNING)
    return replace(named, remedy=rule.remedy(named))


def _doubted(finding: Finding, rule: type[Rule], evidence: Evidence) -> Finding:
    """A share of time that was seen while other work had the processors says so, and raises no
    warning of its rule to an error: the price holds there, the share does not.
    """
    if finding.lost_us_per_step is None or not evidence.has(*Steps.parts):
        return finding
    contention = CpuContention.of(evidence.get(Steps).quiet)
    if not contention.busy:
        return finding
    waited = amounts.percent(contention.queued)
    why = f"uncertain: the machine was busy (steps waited {waited} of their time for a CPU core)"
    raised = finding.severity == "error" and rule.severity != "error"
    severity = Severity.WARNING if raised else finding.severity
    return replace(finding, severity=severity, facts=(*finding.facts, ("share of the step", why)))


FIELDS: Mapping[str, tuple[type, ...]] = {
    "message": (str,),
    "site": (Site, NoneType),
    "severity": (Severity, NoneType),
    "steps": (int, float),
    "per_step": (int, float),
    "lost_us_per_step": (int, float, NoneType),
    "lost_bytes": (int, float, NoneType),
    "places": (tuple,),
}
"""What a finding must hold for a report to be made of it: rules may be a stranger's."""


def _distinct(findings: Iterable[Finding]) -> Iterable[Finding]:
    """Keys that occur twice (the same text on two lines) get a number."""
    seen: dict[str, int] = {}
    for finding in findings:
        count = seen[finding.key] = seen.get(finding.key, 0) + 1
        yield finding if count == 1 else replace(finding, key=f"{finding.key}#{count}")


class Silence:
    """``# audit: ignore[CODE]`` on a line of the statement, and per-file ignores of settings."""

    def __init__(
        self, recording: Recording, per_file: Mapping[str, tuple[str, ...]], statements: Statements
    ) -> None:
        self._per_file, self._statements = per_file, statements
        self._lines: dict[tuple[str, int], set[str]] = {}
        self._used: set[tuple[str, int]] = set()
        stored = recording.manifest.get("sources", {})
        for file in stored if isinstance(stored, dict) else ():
            for number, text in enumerate(recording.source(file), start=1):
                codes = silenced(text)
                if codes is not None:
                    self._lines[file, number] = codes

    def covers(self, finding: Finding) -> bool:
        """True if the user silenced this finding."""
        site = finding.site
        if site is None:
            return False
        names = names_of(finding.code)
        if ignored_in(site.file, self._per_file) & names:
            return True
        lines = ((site.file, line) for line in self._statements.lines(site))
        said = {place for place in lines if self._lines.get(place, set()) & names}
        self._used |= said
        return bool(said)

    def unused(self, judged: set[str]) -> tuple[str, ...]:
        """Sentences about comments that silence nothing (of rules that were judged)."""
        families = {code.rstrip("0123456789") for code in judged}
        return tuple(
            f"{file}:{line}: nothing to silence: '# audit: ignore' has no finding on this line"
            for (file, line), codes in sorted(self._lines.items())
            if (file, line) not in self._used and codes & (judged | families | {"*"})
        )


# -- merging ---------------------------------------------------------------------------------------
# Findings of one cause at one statement as one finding, whose ``places`` name all that it joins.


NAMED = 6
"""Places that the message names; the report lists them all."""

Causes = Mapping[str, tuple[str, int]]


def causes_of(rules: Iterable[type[Rule]]) -> Causes:
    """Cause of each rule by its code, and its place among those that share it: lowest leads."""
    return {rule.code: (rule.cause or rule.code, rule.leads) for rule in rules}


def joined(
    findings: Iterable[Finding], causes: Causes, statements: Statements
) -> tuple[Finding, ...]:
    """The findings, those of one cause and statement as one; prices of other bases stay apart."""
    groups: dict[Any, list[Finding]] = {}
    for number, finding in enumerate(findings):
        key: Any = number
        # without its text a trace's line may be that of the function
        if finding.site is not None and finding.site.text:
            cause = causes.get(finding.code, (finding.code, 0))[0]
            key = (
                cause,
                finding.site.file,
                statements.lines(finding.site).start,
                finding.basis,
                finding.grows,
            )
        groups.setdefault(key, []).append(finding)
    return tuple(
        _with_places_named(
            _join(group, causes) if len(group) > 1 else group[0],
            statements,
            {each.code: each.name.replace("-", " ") for each in group},
        )
        for group in groups.values()
    )


def _join(group: list[Finding], causes: Causes) -> Finding:
    """One of several; times add up, while bytes may be the same ones: the most of them."""
    ordered = sorted(group, key=lambda each: _leading(each, causes))
    lead = ordered[0]
    us = [each.lost_us_per_step for each in ordered if each.lost_us_per_step is not None]
    low = [each.lost_us_per_step_low for each in ordered if each.lost_us_per_step_low is not None]
    high = [
        each.lost_us_per_step_high for each in ordered if each.lost_us_per_step_high is not None
    ]
    held = [each.lost_bytes for each in ordered if each.lost_bytes is not None]
    places = sorted(
        (place for each in ordered for place in _places(each)), key=lambda place: place.site.line
    )
    return replace(
        lead,
        steps=max(each.steps for each in ordered),
        per_step=sum(each.per_step for each in ordered),
        lost_us_per_step=sum(us) if us else None,
        lost_us_per_step_low=sum(low) if us and len(low) == len(us) else None,
        lost_us_per_step_high=sum(high) if us and len(high) == len(us) else None,
        lost_bytes=max(held) if held else None,
        facts=tuple(_facts(ordered)),
        places=tuple(places),
        changes=tuple(change for each in ordered for change in each.changes),
        remedy=_remedy(ordered),
    )


def _leading(finding: Finding, causes: Causes) -> tuple[int, int, int]:
    severity = finding.severity.rank if finding.severity is not None else 9
    return (
        severity,
        causes.get(finding.code, ("", 0))[1],
        finding.site.line if finding.site is not None else 0,
    )


def _places(finding: Finding) -> tuple[FoundAt, ...]:
    if finding.places:
        return finding.places
    assert finding.site is not None
    alone = FoundAt(
        finding.site,
        shorten(finding.site.text),
        finding.per_step,
        finding.lost_us_per_step,
        finding.lost_bytes,
        finding.code,
        finding.key,
        finding.changes,
    )
    return (alone,)


def _facts(group: Sequence[Finding]) -> Iterator[tuple[str, str]]:
    """Facts that all share once; others with their lines, so that no two seem of one thing."""
    values: dict[str, set[str]] = {}
    for finding in group:
        for label, value in finding.facts:
            values.setdefault(label, set()).add(value)
    seen = set()
    for finding in group:
        for label, value in finding.facts:
            apart = len(values[label]) > 1 and finding.site is not None
            fact = (
                f"{label} (line {finding.site.line})"
                if apart and finding.site is not None
                else label,
                value,
            )
            if fact not in seen:
                seen.add(fact)
                yield fact


def _remedy(group: Sequence[Finding]) -> Remedy | None:
    remedies = [(finding.code, finding.remedy) for finding in group if finding.remedy is not None]
    if not remedies:
        return None
    texts: dict[str, str] = {}
    for code, remedy in remedies:
        texts.setdefault(remedy.text, code)
    lead, *others = texts.items()
    config = {
        name: value for _, remedy in remedies for name, value in (remedy.config or {}).items()
    }
    edits = tuple(edit for _, remedy in remedies for edit in remedy.edits)
    text = " ".join([lead[0], *(f"{code}: {said}" for said, code in others)])
    refused = (
        "; ".join(dict.fromkeys(remedy.refused for _, remedy in remedies if remedy.refused)) or None
    )
    return Remedy(text, edits, config or None, refused=refused)


def _with_places_named(
    finding: Finding, statements: Statements, names: Mapping[str, str]
) -> Finding:
    """The finding, its message naming the other places. ``names`` are the rules' by code."""
    if len(finding.places) < 2:
        return replace(finding, places=())
    own = FoundAt(finding.site, shorten(finding.site.text)) if finding.site is not None else None
    others = [
        place
        for place in finding.places
        if not (own is not None and (place.site, place.text) == (own.site, own.text))
        and f"`{place.text}`" not in finding.message
        and not re.search(rf"{re.escape(str(place.site))}(?!\d)", finding.message)
    ]
    site = finding.site
    lines = statements.lines(site) if site is not None else ()
    here = [
        each for each in others if site and each.site.file == site.file and each.site.line in lines
    ]
    elsewhere = [place for place in others if place not in here]
    message = finding.message
    if here:
        message += f"; in the same statement also {_listed(here, finding, names)}"
    if elsewhere:
        message += f"; see also {_listed(elsewhere, finding, names)}"
    return replace(finding, message=message)


def _listed(places: Sequence[FoundAt], finding: Finding, names: Mapping[str, str]) -> str:
    said = [_describe_place(place, finding, names) for place in places[:NAMED]]
    more = len(places) - len(said)
    *most, last = [*said, f"{more} more"] if more else said
    return f"{', '.join(most)} and {last}" if most else last


def _describe_place(place: FoundAt, finding: Finding, names: Mapping[str, str]) -> str:
    """Where, and what another rule calls it; of the finding's own line that alone."""
    where = _where(place, finding)
    if place.code == finding.code:
        return where
    own_line = finding.site is not None and str(place.site) == str(finding.site)
    whole = place.text == shorten(place.site.text)
    if own_line and whole:
        return f"{names[place.code]} ({place.code})" if names.get(place.code) else place.code
    return f"{where} ({place.code})"


def _where(place: FoundAt, finding: Finding) -> str:
    """The expression; the number of a mere line: what the message counts is of the first."""
    if place.text != shorten(place.site.text):
        return f"`{place.text}`"
    same_file = finding.site is not None and finding.site.file == place.site.file
    return f"line {place.site.line}" if same_file else str(place.site)
