"""What rules say of tables made by hand, word by word: message, facts, price, severity, places,
advice and edits of each finding that a test here is given.

``conftest.py`` listens to the rules while a test runs and compares with ``heard.json``, so a test
of a threshold is one of the words, too. ``python -m tests.rules.hearing`` writes that file anew;
read its diff before committing it.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from auditor.model import Finding, Remedy
from auditor.rule import Rule

HEARD = Path(__file__).with_name("heard.json")
METHODS = ("detect", "in_trace", "in_snapshot", "in_checkpoint")
NUMBERS = (
    "lost_us_per_step",
    "lost_us_per_step_low",
    "lost_us_per_step_high",
    "lost_bytes",
    "per_step",
    "steps",
)
KEPT = pytest.StashKey[dict[str, list[dict[str, Any]]]]()
LIVE = (
    *("test_rules.py", "test_said.py", "test_compile_patches.py", "test_moved_waits.py"),
    *("test_train_patched.py", "test_safe_patches.py"),
)
"""Tests that run programs, whose times differ, or have their own file."""


def words(rule: Rule, finding: Finding) -> dict[str, Any]:
    """A finding as JSON keeps it, without what is empty; numbers to six digits."""
    numbers = {name: getattr(finding, name) for name in NUMBERS}
    remedy = rule.remedy(finding)
    told = {
        "rule": rule.code,
        "at": str(finding.site) if finding.site is not None else "",
        "message": finding.message,
        "severity": finding.severity.value if finding.severity is not None else "",
        "basis": finding.basis,
        "seen_on": finding.seen_on,
        "grows": finding.grows,
        "negligible": finding.negligible,
        "follows": finding.follows,
        **{name: float(f"{each:.6g}") for name, each in numbers.items() if each is not None},
        "facts": [list(fact) for fact in finding.facts],
        "places": [
            [str(place.site), place.text, place.per_step, place.code] for place in finding.places
        ],
        "remedy": None if remedy is None else advice(remedy),
    }
    return {name: each for name, each in told.items() if each or isinstance(each, float)}


def advice(remedy: Remedy) -> dict[str, Any]:
    """The same of what to do."""
    edits = [[str(edit.site), *repr(edit).split(", ", 1)[1:]] for edit in remedy.edits]
    told = {
        "text": remedy.text,
        "edits": edits,
        "config": remedy.config,
        "refused": remedy.refused,
    }
    return {name: each for name, each in told.items() if each}


class Hearing:
    """Listens to rules while one test runs."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []

    def of(self, method: Callable[..., Iterator[Finding]]) -> Callable[..., Iterator[Finding]]:
        """The method of a rule, overheard."""

        @wraps(method)
        def overheard(rule: Rule, *tables: Any, **named: Any) -> Iterator[Finding]:
            for finding in method(rule, *tables, **named):
                self.found.append(words(rule, finding))
                yield finding

        return overheard

    def listen(self, rules: tuple[type[Rule], ...], patch: pytest.MonkeyPatch) -> None:
        """To all of these from now on."""
        for rule in rules:
            for name in METHODS:
                method = getattr(rule, name, None)
                if method is not None:
                    patch.setattr(rule, name, self.of(method))


def key_of(node: pytest.Item) -> str:
    """``test_loading.py::test_doubts_are_said``."""
    return node.nodeid.rpartition("tests/rules/")[2]


def written(heard: dict[str, list[dict[str, Any]]]) -> str:
    """The file: a finding is a line."""
    tests = (
        f"{json.dumps(name)}: [\n"
        + ",\n".join(json.dumps(each, ensure_ascii=False) for each in found)
        + "\n]"
        for name, found in sorted(heard.items())
    )
    return "{\n" + ",\n".join(tests) + "\n}\n"


class Writing:
    """Plugin of pytest that keeps what is heard instead of comparing it."""

    def __init__(self) -> None:
        self.heard: dict[str, list[dict[str, Any]]] = {}

    def pytest_configure(self, config: pytest.Config) -> None:
        """The fixture finds it there."""
        config.stash[KEPT] = self.heard


def write() -> int:
    """Write the file anew, if all tests pass: the exit code of pytest."""
    writing, room = Writing(), HEARD.parent
    files = sorted(str(path) for path in room.glob("test_*.py") if path.name not in LIVE)
    code = int(pytest.main(["-q", "-n", "0", "-p", "no:cacheprovider", *files], [writing]))
    if not code:
        HEARD.write_text(written(writing.heard))
    return code


if __name__ == "__main__":
    from tests.rules import hearing  # the module that conftest.py imports, too

    sys.exit(hearing.write())
