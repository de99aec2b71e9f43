"""GitLab's Code Quality report: findings beside the lines of a merge request."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from auditor.model import Finding, Report, Severity

from . import summary, text

_SEVERITIES = {Severity.ERROR: "critical", Severity.WARNING: "major", Severity.NOTE: "minor"}
_MESSAGE_LIMIT = 1000
_NOWHERE = "pyproject.toml"
"""Where a finding without a place stands: GitLab shows none without one."""


class CodeQuality:
    """One object a finding, in the report's order; those of the baseline are left out."""

    name = "codequality"
    suffix = ".json"

    def render(self, report: Report) -> str:
        """A JSON list, as CodeClimate's specification and GitLab's subset of it have it."""
        dumped = json.dumps(list(_issues(report)), ensure_ascii=True, indent=2)
        return text.escaped_json(dumped) + "\n"


def _issues(report: Report) -> Iterator[dict[str, Any]]:
    seen: dict[str, int] = {}
    for finding in report.findings:
        if summary.accepted(finding):
            continue
        key = finding.key or f"{finding.code} {finding.site}"
        seen[key] = seen.get(key, 0) + 1
        yield _issue(finding, key if seen[key] == 1 else f"{key} {seen[key]}")


def _issue(finding: Finding, key: str) -> dict[str, Any]:
    site = finding.site
    return {
        "description": _description(finding),
        "check_name": text.one_line(finding.code, 40),
        "fingerprint": hashlib.sha256(key.encode("utf-8", "backslashreplace")).hexdigest(),
        "severity": _SEVERITIES[summary.severity(finding)],
        "location": {
            "path": text.path(site.file) if site is not None else _NOWHERE,
            "lines": {"begin": max(1, site.line) if site is not None else 1},
        },
    }


def _description(finding: Finding) -> str:
    price = summary.price(finding)
    words = [finding.message, f"({price})" if price else ""]
    words.append(finding.remedy.text if finding.remedy is not None else "")
    return text.one_line(" ".join(word for word in words if word), _MESSAGE_LIMIT)
