"""The manual page of a rule: one text for the terminal, the report, ``rules/README.md`` and the
editor's hover.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

from auditor.judging.manual_cache import PAGES
from auditor.rule import Rule

SECTIONS = ("What it finds", "Why it costs", "Example", "Use instead", "When to ignore", "Sources")
"""The closed list of headings of a manual page; all but the last are required, in this order."""


def page(rule: type[Rule]) -> str:
    """The manual page as Markdown."""
    _, _, body = (inspect.getdoc(rule) or "").partition("\n\n")
    facts = (
        f"{rule.severity.value} · since {rule.since} · needs "
        f"{', '.join(_evidence_names(rule)) or 'nothing'}"
    )
    parts = [f"# {rule.code}: {rule.title()}", f"*{facts}*", body.strip()]
    knobs = rule.knobs()
    if knobs:
        rows = "\n".join(
            f"- `{name}` (default `{default!r}`): {text}" for name, (default, text) in knobs.items()
        )
        parts.append(
            f"## Knobs\n\nSet in `pyproject.toml` under `[tool.audit.rules.{rule.code}]`.\n\n{rows}"
        )
    return "\n\n".join(parts) + "\n"


def _evidence_names(rule: type[Rule]) -> list[str]:
    parameters = inspect.signature(rule.detect).parameters.values()
    return [
        str(p.annotation) if isinstance(p.annotation, str) else p.annotation.__name__
        for p in parameters
        if p.name != "self"
    ]


def manual(rules: tuple[type[Rule], ...]) -> str:
    """The whole manual: what ``rules/README.md`` holds."""
    rows = "\n".join(
        f"| [{r.code}](#{r.code.lower()}) | {r.title()} | {r.severity.value} |" for r in rules
    )
    head = (
        "# The rules\n\nWritten by `python -m auditor.cli.manual --write` from the rules' own "
        "docstrings; do not edit.\n\n"
        f"| code | defect | severity |\n|---|---|---|\n{rows}\n"
    )
    return head + "".join(
        f'\n<a id="{r.code.lower()}"></a>\n\n#{page(r).replace(chr(10) + "## ", chr(10) + "### ")}'
        for r in rules
    )


def facts(rule: type[Rule]) -> dict[str, Any]:
    """What ``audit rules --json`` and ``audit explain --json`` say of a rule."""
    knobs = {
        name: {"default": default, "help": text} for name, (default, text) in rule.knobs().items()
    }
    return {
        "code": rule.code,
        "name": rule.name(),
        "title": rule.title(),
        "severity": rule.severity.value,
        "since": rule.since,
        "knobs": knobs,
        "page": page(rule),
    }


def written(rules: tuple[type[Rule], ...]) -> dict[str, str]:
    """The generated files of the room ``rules/`` by name: the manual for readers, and the same for
    the command line.
    """
    pages = {rule.code: facts(rule) for rule in rules}
    return {
        "README.md": manual(rules),
        PAGES: json.dumps(pages, indent=1, ensure_ascii=False) + "\n",
    }
