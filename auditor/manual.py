"""The manual for a command line that must answer at once: read from the generated file, not by importing every rule."""

from __future__ import annotations

import json
import os
from typing import Any

import auditor

PAGES = "pages.json"
"""Written into the room ``rules/`` by ``python -m auditor.explain --write``; a test compares it with the rules."""


def facts(code: str) -> dict[str, Any]:
    """Code, name, title, severity, since, knobs and page of a rule, whatever the code's case.

    Raises :class:`auditor.errors.AuditProblem` with a suggestion when no rule of ours or of a pack has this code.
    """
    found: dict[str, Any] | None = _own().get(code.upper())
    if found is None:
        from auditor import catalogue, explain

        found = explain.facts(catalogue.rule(code))
    return found


def _own() -> dict[str, Any]:
    for folder in auditor.__path__:
        path = os.path.join(folder, "rules", PAGES)
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                pages: dict[str, Any] = json.load(file)
            return pages
    return {}
