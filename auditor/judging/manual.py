"""The manual page of a rule: one text for the terminal, the report, the site and the editor's
hover.
"""

from __future__ import annotations

from typing import Any

from auditor.rule import Rule

SECTIONS = ("What it finds", "Why it costs", "Example", "Use instead", "When to ignore", "Sources")
"""The closed list of headings of a manual page; all but the last are required, in this order."""


def page(rule: type[Rule]) -> str:
    """The manual page as Markdown."""
    facts = f"{rule.severity.value} · since {rule.since}"
    parts = [f"# {rule.code}: {rule.title()}", f"*{facts}*", rule.manual()]
    knobs = rule.knobs()
    if knobs:
        rows = "\n".join(
            f"- `{name}` (default `{default!r}`): {text}" for name, (default, text) in knobs.items()
        )
        parts.append(
            f"## Knobs\n\nSet in `pyproject.toml` under `[tool.audit.rules.{rule.code}]`.\n\n{rows}"
        )
    return "\n\n".join(parts) + "\n"


def manual(rules: tuple[type[Rule], ...]) -> str:
    """The pages of these rules as one Markdown document, with a table of contents."""
    rows = "\n".join(
        f"| [{r.code}](#{r.code.lower()}) | {r.title()} | {r.severity.value} |" for r in rules
    )
    head = f"# The rules\n\n| code | defect | severity |\n|---|---|---|\n{rows}\n"
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
