"""What each rule declares to the engine.

``python -m tests.rules.test_declared`` writes ``declared.json`` anew; read its diff before committing
it.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from auditor.judging import catalogue

DECLARED = Path(__file__).with_name("declared.json")
ATTRIBUTES = (
    "severity",
    "since",
    "rehearsed",
    "native",
    "cause",
    "leads",
    "edits",
)


def declared() -> dict[str, dict[str, Any]]:
    """Of each rule what the engine reads of its class, and the defaults of its knobs."""
    found = {}
    for rule in catalogue.own_rules():
        told = {name: getattr(rule, name) for name in ATTRIBUTES if hasattr(rule, name)}
        told["knobs"] = {field.name: field.default for field in dataclasses.fields(rule)}
        found[rule.code] = json.loads(json.dumps(told, default=_plain))
    return found


def _plain(value: Any) -> Any:
    """What JSON does not know."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return value.__qualname__ if callable(value) else sorted(value)


def test_what_rules_declare_is_what_was_declared() -> None:
    known, found = json.loads(DECLARED.read_text()), declared()
    said = "if it is meant: python -m tests.rules.test_declared"
    for code, told in found.items():
        assert told == known.get(code), f"{code}: {said}"
    assert found.keys() == known.keys(), said


if __name__ == "__main__":
    rows = (f"{json.dumps(code)}: {json.dumps(told)}" for code, told in declared().items())
    DECLARED.write_text("{\n" + ",\n".join(rows) + "\n}\n")
