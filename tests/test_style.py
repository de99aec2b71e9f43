"""The style budget: short functions, short files, every module says what it is for, public things
are documented.
"""

from __future__ import annotations

import ast
import statistics
from collections.abc import Iterator
from pathlib import Path

from tests.gathered import for_each, tree_of

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(p for room in ("auditor", "rules", "reports") for p in (ROOT / room).rglob("*.py"))
MAX_FUNCTION, MAX_P95, MAX_MEDIAN, MAX_FILE = 60, 40, 10, 480


def is_overload(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(each) == "overload" for each in node.decorator_list)


def functions(path: Path) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef):
            yield node


def body_lines(function: ast.FunctionDef) -> int:
    body = function.body
    if (
        isinstance(body[0], ast.Expr)
        and isinstance(body[0].value, ast.Constant)
        and isinstance(body[0].value.value, str)
    ):
        body = body[1:]
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def test_function_lengths() -> None:
    lengths = {f"{p.name}:{f.name}": body_lines(f) for p in SOURCES for f in functions(p)}
    ordered = sorted(lengths.values())
    longest = max(lengths, key=lambda name: lengths[name])
    assert ordered[-1] <= MAX_FUNCTION, f"{longest} has {lengths[longest]} lines"
    assert ordered[int(0.95 * len(ordered))] <= MAX_P95
    assert statistics.median(ordered) <= MAX_MEDIAN


@for_each(SOURCES, lambda path: str(path.relative_to(ROOT)))
def test_file_is_short_and_says_what_it_is_for(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_FILE
    assert ast.get_docstring(tree_of(path)), (
        "every module opens with one line saying what the room is for"
    )


@for_each(SOURCES, lambda path: str(path.relative_to(ROOT)))
def test_public_things_are_documented(path: Path) -> None:
    missing = []
    for node in tree_of(path).body:
        if isinstance(node, ast.FunctionDef) and is_overload(node):
            continue
        if (
            isinstance(node, (ast.FunctionDef, ast.ClassDef))
            and not node.name.startswith("_")
            and not ast.get_docstring(node)
        ):
            missing.append(node.name)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef) and is_overload(inner):
                    continue
                if (
                    isinstance(inner, ast.FunctionDef)
                    and not inner.name.startswith("_")
                    and not ast.get_docstring(inner)
                ):
                    overrides = {
                        "detect",
                        "in_trace",
                        "in_snapshot",
                        "in_checkpoint",
                        "remedy",
                        "build",
                        "render",
                        "install",
                        "start",
                        "stop",
                        "step_begin",
                        "step_end",
                        "uninstall",
                        "watch",
                        "wants",
                        "before",
                        "after",
                        "raised",
                        "before_optimizer",
                        "after_optimizer",
                        "backward_begins",
                        "backward_ends",
                        "backward_lost",
                        "crossing",
                        "allocated",
                        "freed",
                        "workspace",
                    }
                    if inner.name not in overrides:
                        missing.append(f"{node.name}.{inner.name}")
    assert not missing, missing


def test_test_files_have_names_of_their_own() -> None:
    """pytest imports them by their bare names: two of one name are an error of collection."""
    found = (ROOT / "tests").rglob("test_*.py")
    names = [path.name for path in found if not (path.parent / "__init__.py").exists()]
    assert sorted(names) == sorted(set(names))
