"""The style budget: short functions and short files. Names, imports and docstrings are ruff's."""

import ast
from pathlib import Path

from tests.gathered import for_each, tree_of

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(p for room in ("auditor", "rules", "reports") for p in (ROOT / room).rglob("*.py"))
MAX_FUNCTION, MAX_FILE = 80, 800


def body_lines(function):
    """Its docstring left out."""
    body = function.body[1:] if ast.get_docstring(function) else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


@for_each(SOURCES, lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(path):
    assert len(path.read_text().splitlines()) <= MAX_FILE
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef):
            assert body_lines(node) <= MAX_FUNCTION, node.name


def test_test_files_have_names_of_their_own():
    """pytest imports them by their bare names: two of one name are an error of collection."""
    found = (ROOT / "tests").rglob("test_*.py")
    names = [path.name for path in found if not (path.parent / "__init__.py").exists()]
    assert sorted(names) == sorted(set(names))


def test_dear_tests_exist():
    names = (ROOT / "tests" / "dear.txt").read_text("utf-8").split("\n")[:-1]
    for file, _, test in (name.partition("::") for name in names):
        assert f"def {test.partition('[')[0]}(" in (ROOT / file).read_text("utf-8"), test
