"""The one door to the rooms rules/ and reports/, and to third-party rule packs (entry points of the group ``auditor.rules``)."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from importlib.metadata import entry_points
from typing import Any

from auditor.errors import AuditProblem
from auditor.rule import Rule

FAMILIES = ("SYNC", "DATA", "GRAPH", "MEM", "NUM", "AMP", "CFG", "OPT", "KERN", "DIST", "CKPT", "TIME")
"""Families of rule codes, in the order of the manual."""


FORMATS = ("terminal", "json", "sarif", "junit", "github", "markdown")
"""Formats that ``--format`` offers; report.json and report.html are always written."""


def own_rules() -> tuple[type[Rule], ...]:
    """The rules of the room ``rules/``."""
    own: tuple[type[Rule], ...] = importlib.import_module("auditor.rules").CATALOGUE
    return own


def rules() -> tuple[type[Rule], ...]:
    """Every rule class, ours first, in the order of the catalogue.

    Raises :class:`AuditProblem` when a pack brings a code that is already taken.
    """
    found = [*own_rules()]
    for entry in entry_points(group="auditor.rules"):
        found.extend(entry.load())
    taken: dict[str, type[Rule]] = {}
    for rule in found:
        if rule.code in taken:
            raise AuditProblem(f"two rules have the code {rule.code}: {taken[rule.code].__module__} and {rule.__module__}")
        taken[rule.code] = rule
    return tuple(found)


def rule(code: str) -> type[Rule]:
    """The rule with this code, whatever its case. Raises :class:`AuditProblem` with a suggestion."""
    known = {each.code: each for each in rules()}
    found = known.get(code.upper())
    if found is None:
        close = difflib.get_close_matches(code.upper(), known, n=1, cutoff=0.5)
        raise AuditProblem(
            f"there is no rule {code!r}",
            f"did you mean {close[0]}? audit rules lists them all" if close else "audit rules lists them all",
        )
    return found


def choose(select: Iterable[str], ignore: Iterable[str]) -> tuple[type[Rule], ...]:
    """Rules whose code or family is selected (all if none is) and not ignored.

    Raises :class:`AuditProblem` for a word that is neither a code nor a family.
    """
    everything = rules()
    wanted, unwanted = [_checked(word, everything) for word in select], [_checked(word, everything) for word in ignore]

    def among(rule: type[Rule], words: list[str]) -> bool:
        return rule.code in words or rule.family() in words

    return tuple(each for each in everything if (not wanted or among(each, wanted)) and not among(each, unwanted))


def _checked(word: str, everything: tuple[type[Rule], ...]) -> str:
    word = word.strip().upper()
    known = {each.code for each in everything} | set(FAMILIES)
    if word not in known:
        close = difflib.get_close_matches(word, known, n=1, cutoff=0.5)
        raise AuditProblem(
            f"{word!r} is neither a rule code nor a family",
            f"did you mean {close[0]}? audit rules lists them all" if close else "audit rules lists them all",
        )
    return word


def renderer(name: str) -> Any:
    """The renderer of a format. Raises :class:`AuditProblem` for an unknown one."""
    room = importlib.import_module("auditor.reports")
    if name not in room.RENDERERS:
        raise AuditProblem(f"there is no format {name!r}", f"known: {', '.join(room.RENDERERS)}")
    return room.renderer(name)


def reports(module: str) -> Any:
    """A module of the reports room: ``reports("as_json").load``."""
    return importlib.import_module(f"auditor.reports.{module}")
