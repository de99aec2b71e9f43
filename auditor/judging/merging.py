"""Findings of one cause at one statement as one finding, whose ``places`` name all that it
joins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from auditor.evidence.source.statements import Statements, shorten
from auditor.model import Finding, FoundAt, Remedy
from auditor.rule import Rule

NAMED = 6
"""Places that the message names; the report lists them all."""

Causes = Mapping[str, tuple[str, int]]


def causes_of(rules: Iterable[type[Rule]]) -> Causes:
    """Cause of each rule by its code, and where it stands among those that share the cause: the
    lowest leads.
    """
    return {rule.code: (rule.cause or rule.code, rule.leads) for rule in rules}


def joined(
    findings: Iterable[Finding], causes: Causes, statements: Statements
) -> tuple[Finding, ...]:
    """The findings, those of one cause and statement as one. Prices of another basis stay apart:
    they must not be added.
    """
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
        _named(
            _join(group, causes) if len(group) > 1 else group[0],
            statements,
            {each.code: each.name.replace("-", " ") for each in group},
        )
        for group in groups.values()
    )


def _join(group: list[Finding], causes: Causes) -> Finding:
    """One of several; what they lost in time comes back together, while bytes may be the same ones:
    the most of them.
    """
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
    """Facts that all share once; where they differ each with its line, so that no two numbers seem
    to be of one thing.
    """
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


def _named(finding: Finding, statements: Statements, names: Mapping[str, str]) -> Finding:
    """The finding, its message naming the other places; alone in its place it lists none.
    ``names`` are the rules' by code.
    """
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
    here = [place for place in others if _in_statement(place, finding, statements)]
    elsewhere = [place for place in others if place not in here]
    message = finding.message
    if here:
        message += f"; in the same statement also {_listed(here, finding, names)}"
    if elsewhere:
        message += f"; see also {_listed(elsewhere, finding, names)}"
    return replace(finding, message=message)


def _in_statement(place: FoundAt, finding: Finding, statements: Statements) -> bool:
    site = finding.site
    if site is None or place.site.file != site.file:
        return False
    return place.site.line in statements.lines(site)


def _listed(places: Sequence[FoundAt], finding: Finding, names: Mapping[str, str]) -> str:
    said = [_said(place, finding, names) for place in places[:NAMED]]
    more = len(places) - len(said)
    *most, last = [*said, f"{more} more"] if more else said
    return f"{', '.join(most)} and {last}" if most else last


def _said(place: FoundAt, finding: Finding, names: Mapping[str, str]) -> str:
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
    """The expression; where the place is a line and no more, its number: what the message counts is
    of the first line.
    """
    if place.text != shorten(place.site.text):
        return f"`{place.text}`"
    same_file = finding.site is not None and finding.site.file == place.site.file
    return f"line {place.site.line}" if same_file else str(place.site)
