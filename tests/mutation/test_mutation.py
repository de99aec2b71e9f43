"""The mutation run itself: which mutants are left out by rule, which tests a line is tried against,
and that a mutant is killed by a test that fails and by nothing else.
"""

import ast
import subprocess
import sys

import pytest

from tests.mutation import touched
from tests.mutation.changes import ROOT, idle_parts, modules
from tests.mutation.touched import KnownTest, chosen_for, statements

ROWS = """\
LEAST = 3 ##
@dataclass(frozen=True) # True # decorator
class Kept:
    number: Annotated[int, 1] = 2 # 1 # annotation
    other: int = 2 # 2 #
    def __repr__(self) -> str:
        return "x" * 2 # * # repr
    @cache(maxsize=16) # 16 # decorator
    def above(self, values: list[int, 4]) -> Literal[0]: # 4 # annotation
        assert self.number > 0 # > # assert
        if (
            self.number
            > LEAST # > #
        ):
            raise ValueError(f"more than {LEAST + 1}") # + # error text
        return list(zip(values, values, strict=True)) # True # strict
if TYPE_CHECKING:
    X = 1 # X # type checking
""".splitlines()
TEXT = "\n".join(row.split(" #")[0] for row in ROWS)


@pytest.mark.parametrize("line", [n for n, row in enumerate(ROWS, 1) if row.count("#") == 2])
def test_what_a_rule_leaves_out(line):
    source, needle, rule = map(str.strip, ROWS[line - 1].split("#"))
    where = (line, len(ROWS[line - 1]) - len(ROWS[line - 1].lstrip()) + source.rindex(needle))
    parts = idle_parts(ast.parse(TEXT))
    assert next((rule for rule, begin, end in parts if begin <= where < end), "") == rule


def test_a_line_of_a_function_stands_for_its_statement():
    assert statements(TEXT)[13] == frozenset({11, 12, 13, 14})
    assert not statements(TEXT).keys() & {1, 4, 9, 18}


def test_tests_come_nearest_and_fastest_first_within_the_budget(monkeypatch):
    path = next(each for each in modules() if each.name == "steps.py")
    module = str(path.relative_to(ROOT))
    inside = min(statements(path.read_text()))

    def one(file, seconds, lines, shared=()):
        shared = {module: frozenset(shared)}
        return KnownTest(f"{file}::{seconds}", file, seconds, {module: frozenset(lines)}, shared)

    own = "tests/evidence/recorded/test_steps.py"
    far, near = one("tests/x.py", 0.15, {inside}), one(own, 0.4, {inside})
    quick, faster = one("tests/x.py", 0.05, {inside}), one(own, 0.3, {inside})
    by_fixture, nowhere = one("tests/y.py", 0.1, {10**6}, {inside}), one(own, 0.0, {10**6})
    tests = [far, near, quick, faster, by_fixture, nowhere]
    assert chosen_for(tests, path, inside) == [quick, faster, near, by_fixture, far]
    monkeypatch.setattr(touched, "BUDGET_S", 0.85)
    assert chosen_for(tests, path, inside) == [quick, faster, near]
    defaults = KnownTest("x", touched.OF_ALL[0], 0.01, {}, {})
    assert chosen_for([nowhere, defaults], path, inside) == []
    assert chosen_for([nowhere, defaults, near], path, 1) == [defaults, near]


RUN = """
import json
from functools import partial
from tests.mutation import touched
from tests.mutation.changes import ROOT, mutants_of
from tests.mutation.forks import Task, forked, killer

path = ROOT / "auditor/evidence/recorded/step_pattern.py"
before = path.read_text()
line = next(n for n, text in enumerate(before.splitlines(), 1) if "self.of != 1" in text)
found = (mutant for mutant, why in mutants_of(path) if not why and mutant.where[0] == line)
mutant = next(each for each in found if each.operator.endswith("NotEq_Eq"))
print(str(mutant).splitlines()[-1].strip()[:8])
file = "tests/evidence/recorded/test_step_pattern.py"
for name in ("words_and_share[seen0-1-the only step-1.0]", "the_documented_borders", "nowhere"):
    work = partial(killer, path, mutant.text, [[(file, f"{file}::test_{name}")]])
    print(*(by.partition("::")[2] for _, by in forked([Task(0, work, 10)], 1)))
assert path.read_text() == before

def loops():
    while True:
        pass

print(*forked([Task("loops", loops, 0.0)], 1))
file = touched.TESTS / "evidence/recorded/test_backward.py"
((_, answer),) = forked([Task(0, partial(touched.measure, file), 60)], 1)
record = json.loads(answer)
assert len(record["tests"]) > 1 and all(record["lines"][name] for name in record["tests"])
"""


def test_a_mutant_is_killed_by_a_test_that_fails():
    """In a process of its own: this one has imported the module."""
    pytest.importorskip("cosmic_ray", reason="needs the extra: pip install -e '.[mutants]'")
    done = subprocess.run(
        [sys.executable, "-c", RUN], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    killer = "test_words_and_share[seen0-1-the only step-1.0]"
    assert done.stdout.splitlines() == ["+ return", killer, "", "", "('loops', None)"], done.stderr
