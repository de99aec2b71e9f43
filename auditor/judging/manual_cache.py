"""The manual for a command line that must answer at once: read from the generated file, not by
importing every rule.
"""

from __future__ import annotations

import json
import os
from typing import Any

import auditor

PAGES = "pages.json"
"""Written into the room ``rules/`` by ``python -m auditor.cli.manual --write``; a test compares it
with the rules.
"""


def facts(code: str) -> dict[str, Any]:
    """Code, name, title, severity, since, knobs and page of a rule, by its code in any case, or by
    its name.

    Raises :class:`auditor.errors.AuditProblem` with a suggestion when no rule of ours or of a pack
    has this code.
    """
    own, word = _own(), code.strip()
    named = (each for each in own.values() if each["name"] == word.lower())
    found: dict[str, Any] | None = own.get(word.upper()) or next(named, None)
    if found is None:
        from auditor.judging import catalogue, manual

        found = manual.facts(catalogue.rule(code))
    return found


def family(letters: str) -> list[dict[str, Any]]:
    """The rules of the families that begin with these letters, in the order of the manual; none
    where that is no such word.
    """
    word = letters.strip().upper()
    return [each for code, each in _own().items() if word.isalpha() and code.startswith(word)]


def _own() -> dict[str, Any]:
    for folder in auditor.__path__:
        path = os.path.join(folder, "rules", PAGES)
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                pages: dict[str, Any] = json.load(file)
            return pages
    return {}
