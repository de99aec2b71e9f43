"""Findings that point to others: a code is named only where a finding of it is in the report."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from auditor.evidence.table import Evidence, Others
from auditor.judging.catalogue import rules
from auditor.judging.engine import _pointing, judge
from auditor.model import Finding, Severity, Site
from auditor.recordings.standalone import TraceRecording
from auditor.rule import Rule, see
from tests.timeline.kineto import text, training, write

FILES = sorted(
    path
    for path in (Path(__file__).resolve().parents[2] / "rules").rglob("*.py")
    if "probes" not in path.parts
)
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


def rule(name: str, detect) -> type[Rule]:
    facts = {"code": name, "severity": Severity.NOTE, "since": "0", "__doc__": "A rule."}
    return type(name, (Rule,), {**facts, "detect": detect})


def judged(folder: Path, *asked: type[Rule], **more):
    return judge(Evidence(TraceRecording(write(folder, text(training(1))))), asked, **more)


def saying(*findings: Finding):
    def detect(self) -> Iterator[Finding]:
        yield from findings

    return detect


def test_what_the_user_silenced_was_still_found(tmp_path: Path) -> None:
    """Else the rule about what others leave over would report the same time again, as a warning of
    its own.
    """

    def late(self, others: Others) -> Iterator[Finding]:
        yield Finding(None, f"{others.silent('BBB001')}")

    late.__annotations__["others"] = Others
    silenced = rule("BBB001", saying(Finding(Site("a.py", 1), "m")))
    told = judged(tmp_path, silenced, rule("ZZZ001", late), per_file_ignores={"a.py": ("BBB",)})
    assert [verdict.status for verdict in told.verdicts] == ["clean", "found"]
    assert [one.message for one in told.findings] == ["False"]


def test_a_rule_whose_evidence_cannot_be_named_fails_alone(tmp_path):
    def odd(self, nothing: Nowhere) -> Iterator[Finding]:  # noqa: F821
        yield Finding(None, "m")

    told = judged(tmp_path, rule("AAA002", odd))
    assert [verdict.status for verdict in told.verdicts] == ["failed"]


def words(tree: ast.Module) -> Iterator[ast.Constant]:
    """Strings that can get into a report: no docstrings, no codes of the rule itself, no help of
    knobs, no arguments of see(), no codes as data.
    """
    left_out: set[int] = set()
    for node in ast.walk(tree):
        match node:
            case (
                ast.Expr(value=ast.Constant())
                | ast.Call(func=ast.Name("see" | "knob"))
                | ast.Assign(targets=[ast.Name("code" | "follows_at_line")])
                | ast.keyword(arg="follows")
            ):
                left_out.update(map(id, ast.walk(node)))
            case ast.Tuple() if all(isinstance(each, ast.Constant) for each in node.elts):
                left_out.update(map(id, node.elts))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in left_out:
                yield node


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_rule_names_another_only_by_see(path):
    found = [
        f"{path.name}:{node.lineno}: {node.value}"
        for node in words(ast.parse(path.read_text()))
        if CODES.search(node.value)
    ]
    assert not found
