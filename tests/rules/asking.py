"""Asking a rule as the engine does: tables by their types, those that a test does not care about empty."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from auditor import evidence
from auditor.model import Finding
from auditor.rule import Rule


def ask(rule: Rule, *tables: Any) -> Iterator[Finding]:
    given = {type(table).__name__: table for table in tables}
    wanted = [parameter.annotation for parameter in inspect.signature(rule.detect).parameters.values()]  # type: ignore[attr-defined]
    assert given.keys() <= set(wanted), f"{type(rule).__name__} asks for no {given.keys() - set(wanted)}"
    found: Iterator[Finding] = rule.detect(*(given[name] if name in given else getattr(evidence, name)() for name in wanted))  # type: ignore[attr-defined]
    return found
