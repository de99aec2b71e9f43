"""Asking a rule as the engine does: tables by their types, those that a test does not care about
empty.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from auditor import evidence
from auditor.model import Finding
from auditor.rule import Rule


def ask(rule: Rule, *tables: Any) -> Iterator[Finding]:
    """By whichever of its methods asks for these tables."""
    given = {type(table).__name__: table for table in tables}
    for method in (rule.detect, rule.in_trace, rule.in_snapshot):  # type: ignore[attr-defined]
        wanted = (
            []
            if method is None
            else [
                parameter.annotation for parameter in inspect.signature(method).parameters.values()
            ]
        )
        if method is not None and given.keys() <= set(wanted):
            asked = [given[name] if name in given else getattr(evidence, name)() for name in wanted]
            found: Iterator[Finding] = method(*asked)
            return found
    raise AssertionError(f"{type(rule).__name__} asks for no {sorted(given)}")
