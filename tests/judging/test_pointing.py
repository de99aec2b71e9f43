"""Findings that point to others: a code is named only where a finding of it is in the report."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from auditor.evidence.table import Evidence, Others
from auditor.judging.catalogue import rules
from auditor.judging.engine import _pointing, judge
from auditor.model import Finding, Severity, Site
from auditor.recordings.standalone import TraceRecording
from auditor.rule import Rule, see
from tests.timeline.kineto import text, training, write

FILES = sorted((Path(__file__).resolve().parents[2] / "rules").glob("*.py"))
CODES = re.compile("|".join(rule.code for rule in rules()))


def test_a_message_points_only_to_findings_that_are_there():
    """Codes of rules and of families; without one nothing is said, and nobody's braces are
    touched.
    """
    one = Finding(
        None, f"idle{see('DATA007')}, held{see('SYNC001', 'MEM')}, {{see}} {{x}}", code="KERN001"
    )
    other = Finding(None, "m", code="SYNC001")
    assert [each.message for each in _pointing([one])] == ["idle, held, {see} {x}"]
    both = _pointing([one, other, replace(other, code="MEM004"), replace(other, code="MEM001")])
    assert both[0].message == "idle, held (MEM001, MEM004, SYNC001), {see} {x}"
    joined = replace(one, facts=(("on the CPU", one.message),))
    assert _pointing([joined, other])[0].facts == (
        ("on the CPU", "idle, held (SYNC001), {see} {x}"),
    )


def test_a_rule_that_asks_about_the_others_is_asked_last(tmp_path):
    @dataclass(frozen=True)
    class Early(Rule):
        """Is asked last, though it comes first."""

        code, severity, since = "AAA001", Severity.NOTE, "0"

        def detect(self, others: Others) -> Iterator[Finding]:
            yield Finding(
                None,
                f"{sorted(others.asked)} {sorted(others.found)} {others.silent('BBB001')} "
                f"{others.silent('CCC001')}",
            )

    def rule(name: str, *messages: str) -> type[Rule]:
        @dataclass(frozen=True)
        class Other(Rule):
            """Says what it is told to."""

            code, severity, since = name, Severity.NOTE, "0"

            def detect(self) -> Iterator[Finding]:
                yield from (Finding(None, message) for message in messages)

        return Other

    judged = judge(
        Evidence(TraceRecording(write(tmp_path, text(training(1))))),
        [Early, rule("BBB001"), rule("CCC001", "m")],
    )
    assert [verdict.code for verdict in judged.verdicts] == ["AAA001", "BBB001", "CCC001"]
    assert [one.message for one in judged.findings if one.code == "AAA001"] == [
        "['BBB001', 'CCC001'] ['CCC001'] True False"
    ]


def test_what_the_user_silenced_was_still_found(tmp_path: Path) -> None:
    """Else the rule about what others leave over would report the same time again, as a warning of
    its own.
    """

    @dataclass(frozen=True)
    class Late(Rule):
        """Says what it knows."""

        code, severity, since = "ZZZ001", Severity.NOTE, "0"

        def detect(self, others: Others) -> Iterator[Finding]:
            yield Finding(None, f"{others.silent('BBB001')}")

    @dataclass(frozen=True)
    class Silenced(Rule):
        """Finds something on a line with a comment."""

        code, severity, since = "BBB001", Severity.WARNING, "0"

        def detect(self) -> Iterator[Finding]:
            yield Finding(Site("a.py", 1), "m")

    trace = TraceRecording(write(tmp_path, text(training(1))))
    judged = judge(Evidence(trace), [Silenced, Late], per_file_ignores={"a.py": ("BBB",)})
    assert [verdict.status for verdict in judged.verdicts] == ["clean", "found"]
    assert [one.message for one in judged.findings] == ["False"]


def words(tree: ast.Module) -> Iterator[ast.Constant]:
    """Strings that can get into a report: no docstrings, no codes of the rule itself, no help of
    knobs, no arguments of see().
    """
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            left_out.add(id(node.value))
        named = (
            node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        )
        own = isinstance(node, ast.Assign) and [
            getattr(target, "id", "") for target in node.targets
        ] == ["code"]
        if named in ("see", "knob") or own:
            left_out.update(id(each) for each in ast.walk(node))
        if isinstance(node, ast.keyword) and node.arg == "follows":
            left_out.update(
                id(each) for each in ast.walk(node.value)
            )  # whose consequence it is: data
        if isinstance(node, ast.Tuple) and all(
            isinstance(each, ast.Constant) for each in node.elts
        ):
            left_out.update(id(each) for each in node.elts)  # codes as data
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in left_out
        ):
            yield node


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_rule_names_another_only_by_see(path):
    found = [
        f"{path.name}:{node.lineno}: {node.value}"
        for node in words(ast.parse(path.read_text()))
        if CODES.search(node.value)
    ]
    assert not found


def test_a_rule_whose_evidence_cannot_be_named_fails_alone(tmp_path):
    @dataclass(frozen=True)
    class Odd(Rule):
        """Asks for something that is nowhere."""

        code, severity, since = "AAA002", Severity.NOTE, "0"

        def detect(self, nothing: Nowhere) -> Iterator[Finding]:  # noqa: F821
            yield Finding(None, "m")

    judged = judge(Evidence(TraceRecording(write(tmp_path, text(training(1))))), [Odd])
    assert [verdict.status for verdict in judged.verdicts] == ["failed"]
