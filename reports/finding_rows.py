"""The list of findings as the page has it: rows by cause and statement, what they can be filtered
by, and the order that it keeps.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from auditor.model import Finding, Report, Severity

from . import families, text
from .page import Card

FEW = 5
"""Findings that a figure links to one by one."""


@dataclass(frozen=True)
class Row:
    """A finding in the list. ``behind`` says why it stands below another one, empty where it does
    not.
    """

    card: Card
    behind: str
    family: str
    file: str


@dataclass(frozen=True)
class Choices:
    """What the rows can be filtered by: values and names, empty where there is no choice."""

    severities: tuple[tuple[str, str], ...]
    families: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str], ...]
    patched: bool


@dataclass(frozen=True)
class Link:
    """A finding that a figure is made of."""

    anchor: str
    code: str


def groups(cards: Sequence[Card]) -> tuple[tuple[Row, ...], ...]:
    """Findings of one cause or one statement together, in the order of the costliest of each."""
    heads: list[list[Row]] = []
    for card in cards:
        behind, head = _head(card, heads)
        row = Row(card, behind, families.family_of(card.finding.code), _file(card.finding))
        if head is None:
            heads.append([row])
        else:
            head.append(row)
    return tuple(map(tuple, heads))


def _head(card: Card, heads: list[list[Row]]) -> tuple[str, list[Row] | None]:
    follows = card.finding.follows
    for head in heads if follows else ():
        if follows in head[0].card.finding.codes:
            return f"follows from {text.one_line(follows, 20)}", head
    for head in heads if card.place else ():
        if head[0].card.place == card.place:
            return "the same line", head
    return "", None


def _file(finding: Finding) -> str:
    return text.path(finding.site.file) if finding.site is not None else ""


def choices(rows: Iterable[tuple[Row, ...]]) -> Choices:
    """Of all rows, each value once, and only where there are two or more."""
    listed = [row for group in rows for row in group]
    levels = {row.card.severity for row in listed}
    patched = {bool(row.card.fix and row.card.fix.diff) for row in listed}
    return Choices(
        _several((level.value, level.value) for level in Severity if level.value in levels),
        _several(
            (row.family, f"{row.family} {families.FAMILIES.get(row.family, '')}".strip())
            for row in listed
        ),
        _several((row.file, row.file or "no single place") for row in listed),
        len(patched) > 1,
    )


def _several(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    found = tuple(dict.fromkeys(pairs))
    return found if len(found) > 1 else ()


def order(cards: Sequence[Card]) -> str:
    """In what order they stand, in words; empty for one."""
    if len(cards) < 2:
        return ""
    first = cards[0].finding
    lost = not first.proven_us and not first.lost_bytes and first.severity == Severity.ERROR
    opening = "Errors that cost the whole run come first. The rest is sorted" if lost else "Sorted"
    return (
        f"{opening} by what a fix saves, as a share of the step's time or of memory; findings without "
        "a price come last. Consequences of a finding, and findings on its line, are indented below it."
    )


def links(report: Report, found: Iterable[Finding]) -> tuple[Link, ...]:
    """The findings of a figure, for its links."""
    anchors = {id(each): f"finding-{place}" for place, each in enumerate(report.findings, 1)}
    return tuple(
        Link(anchors[id(each)], text.one_line(each.code, 20))
        for each in found
        if id(each) in anchors
    )
