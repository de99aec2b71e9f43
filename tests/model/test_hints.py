"""What ``detect`` leaves for ``remedy``: of the class that the rule declares, or nothing."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

import pytest

from auditor.model import Finding

RULES = Path(__file__).parents[2] / "rules"


@dataclass(frozen=True)
class Copied:
    bytes: int = 0


@dataclass(frozen=True)
class Pinned(Copied):
    loader: str = "none"


@dataclass(frozen=True)
class Set:
    line: int


def test_hints_come_back_as_they_were_left():
    left = Pinned(3, "train")
    assert Finding(None, "x", hints=left).hints_as(Pinned) is left
    assert Finding(None, "x", hints=left).hints_as(Copied) is left


def test_without_hints_the_defaults_stand():
    assert Finding(None, "x").hints_as(Pinned) == Pinned(0, "none")
    with pytest.raises(TypeError, match="line"):
        Finding(None, "x").hints_as(Set)


@pytest.mark.parametrize("left", [Copied(3), {"loader": "train"}])
def test_hints_of_another_class_are_never_taken_for_none(left):
    with pytest.raises(TypeError, match=f"hints of {type(left).__name__}, not Pinned"):
        Finding(None, "x", hints=left).hints_as(Pinned)


def test_a_pack_reads_its_dict_as_ever():
    found = Finding(None, "x", hints={"loader": "train"})
    assert found.hints["loader"] == "train"
    assert found.hints_as(dict) == {"loader": "train"}
    assert Finding(None, "x").hints == {}


@pytest.mark.parametrize("path", sorted(RULES.glob("*.py")), ids=lambda path: path.stem)
def test_our_rules_leave_no_dict(path):
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    left = [word.value for call in calls for word in call.keywords if word.arg == "hints"]
    assert not [each.lineno for each in left if isinstance(each, ast.Dict)]
