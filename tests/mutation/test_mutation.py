"""The mutation run itself: which mutants are left out by rule, which tests a line is tried against,
and that a mutant is killed by a test that fails and by nothing else.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys

import pytest

from tests.mutation import touched
from tests.mutation.changes import EQUIVALENT, ROOT, idle_parts, modules, without_effect
from tests.mutation.touched import KnownTest, chosen_for, statements, users

TEXT = '''\
"""A module."""
LEAST = 3
OTHER = 5


@dataclass(frozen=True)
class Kept:
    number: Annotated[int, 1] = 2
    __slots__ = ("a", "b")[:1]

    def __repr__(self) -> str:
        return "x" * 2

    @cache(maxsize=16)
    def above(self, values: list[int, 4], *, last=9) -> Literal[0]:
        assert self.number > 0
        if (
            self.number
            > LEAST
        ):
            raise ValueError(f"more than {LEAST + 1}")
        return list(zip(values, values, strict=True))


if TYPE_CHECKING:
    X = 1
'''


def rule_at(needle: str) -> str:
    line = next(n for n, text in enumerate(TEXT.splitlines(), 1) if needle in text)
    where = (line, TEXT.splitlines()[line - 1].index(needle))
    parts = idle_parts(ast.parse(TEXT))
    return next((rule for rule, begin, end in parts if begin <= where < end), "")


@pytest.mark.parametrize(
    ("needle", "rule"),
    [
        ("3", ""),
        ("True)", "decorator"),
        ("1] = 2", "annotation"),
        ("= 2", ""),
        ('b")[', "slots"),
        ("2", ""),
        ("* 2", "repr"),
        ("16", "decorator"),
        ("4]", "annotation"),
        ("0]:", "annotation"),
        ("*, last", "signature"),
        ("9)", ""),
        ("> 0", "assert"),
        ("> LEAST", ""),
        ("+ 1", "error text"),
        ("True))", "strict"),
        ("X = 1", "type checking"),
    ],
)  # fmt: skip
def test_what_a_rule_leaves_out(needle, rule):
    assert rule_at(needle) == rule
    assert rule in EQUIVALENT or not rule


def test_mutants_of_the_same_bytecode_or_of_none_are_left_out():
    assert without_effect("x = 1 + 1", "x = 2") == "same code"
    assert without_effect("x = 1 + 1", "x = 1 +") == "no code"
    assert without_effect("x = 1 + 1", "x = 1 - 1") == ""


def test_a_line_stands_for_its_statement_and_a_constant_for_those_that_name_it():
    head = frozenset({17, 18, 19, 20})
    assert statements(TEXT)[18] == head
    assert users(TEXT, 18) == head
    assert users(TEXT, 2) == head | {21}  # LEAST
    everywhere = users(TEXT, 3)  # no function names OTHER
    assert {12, 16, 18, 21, 22} <= everywhere and not everywhere & {2, 3, 8}
    assert users(TEXT, 8) == head | {16}  # the field is read by its name


def test_tests_come_nearest_and_fastest_first_within_the_budget(monkeypatch):
    path = next(each for each in modules() if each.name == "steps.py")
    module = str(path.relative_to(ROOT))
    inside = min(touched.in_functions(path.read_text()))

    def one(
        file: str, seconds: float, lines: set[int], shared: set[int] = frozenset()
    ) -> KnownTest:
        kept = {module: frozenset(shared)} if shared else {}
        return KnownTest(f"{file}::{seconds}", file, seconds, {module: frozenset(lines)}, kept)

    far = one("tests/timeline/test_x.py", 0.15, {inside})
    quick = one("tests/timeline/test_x.py", 0.05, {inside})
    room = one("tests/evidence/test_x.py", 0.2, {inside})
    own = one("tests/evidence/recorded/test_steps.py", 0.4, {inside})
    faster = one("tests/evidence/recorded/test_steps.py", 0.3, {inside})
    by_fixture = one("tests/model/test_x.py", 0.1, {10**6}, {inside})
    nowhere = one("tests/evidence/recorded/test_steps.py", 0.0, {10**6})
    tests = [far, room, own, quick, faster, by_fixture, nowhere]
    assert chosen_for(tests, path, inside) == [quick, faster, own, room, by_fixture, far]
    monkeypatch.setattr(touched, "BUDGET_S", 1.4)
    assert chosen_for(tests, path, inside) == [quick, faster, own]
    assert chosen_for([nowhere], path, inside) == []
    defaults = KnownTest("x", touched.OF_ALL[0], 0.01, {}, {})
    at_import = next(
        n for n, text in enumerate(path.read_text().splitlines(), 1) if ": int = 0" in text
    )
    assert chosen_for([defaults], path, at_import) == [defaults]
    assert chosen_for([defaults], path, inside) == []


KILLING = """
from tests.mutation.changes import ROOT, mutants_of
from tests.mutation.forks import Trial, run

path = ROOT / "auditor/evidence/recorded/step_pattern.py"
before = path.read_text()
line = next(n for n, text in enumerate(before.splitlines(), 1) if "self.of != 1" in text)
found = (mutant for mutant, why in mutants_of(path) if not why and mutant.where[0] == line)
mutant = next(each for each in found if each.operator.endswith("NotEq_Eq"))
print(str(mutant).splitlines()[-1].strip()[:8])
file = "tests/evidence/recorded/test_step_pattern.py"
for name in ("words_and_share[seen0-1-the only step-1.0]", "the_documented_borders", "nowhere"):
    trial = Trial(mutant, (((file, f"{file}::test_{name}"),),), 1.0)
    for _, outcome, by in run([trial], 1):
        print(outcome, by)
assert path.read_text() == before
"""


def test_a_mutant_is_killed_by_a_test_that_fails():
    """In a process of its own: this one has imported the module."""
    pytest.importorskip("cosmic_ray", reason="needs the extra: pip install -e '.[mutants]'")
    done = subprocess.run(
        [sys.executable, "-c", KILLING], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    killer = "tests/evidence/recorded/test_step_pattern.py::test_words_and_share[seen0-1-the only"
    assert done.stdout.splitlines() == [
        "+ return",
        f"killed {killer} step-1.0]",
        "survived ",
        "survived ",
    ], done.stderr


SLICED = """
import os
from tests.mutation import touched

file = touched.TESTS / "evidence/recorded/test_backward.py"
whole = touched._record(file)
touched.SLICE_S = 0.0
for jobs in (1, 2):
    again = touched._record(file, jobs)
    assert again["tests"].keys() == whole["tests"].keys() and len(whole["tests"]) == 3
    assert again["modules"] == whole["modules"]
    assert [one["lines"] for one in again["tests"].values()] != [{}] * 3
    assert again["whole"]
touched.pytest_main = lambda files, hooks: os._exit(3)
assert not touched._record(file)["whole"]
print("sliced")
"""


def test_a_record_is_the_same_in_slices(tmp_path):
    pytest.importorskip("coverage", reason="needs the extra: pip install -e '.[mutants]'")
    done = subprocess.run(
        [sys.executable, "-c", SLICED],
        cwd=ROOT,
        env={**os.environ, "XDG_CACHE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "sliced\n", done.stderr
