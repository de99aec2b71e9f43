"""Which test executes which line of rules/ and auditor/evidence/: recorded once with coverage.py,
kept outside the repository, and from then on the tests that a mutant is tried against.

The record of a test file holds until it, the cases of rules or a module that it executes change.
"""

import ast
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import accumulate, chain
from pathlib import Path
from typing import Any, NamedTuple

from tests.mutation.changes import ROOT
from tests.mutation.forks import Task, forked, pytest_main

TESTS = ROOT / "tests"
ELSEWHERE = ("cuda", "deaths", "drill", "gpu", "patch", "seam", "security", "verify")
"""Rooms whose tests mostly start processes, which import what is on disk and not a mutant."""
USES = re.compile(r"\b(auditor\.(evidence|rules|judging)|tests\.(inprocess|timeline))\b")
"""Other test files are recorded if they name what is mutated, or what runs it."""
LONGEST_S = 3600.0  # of a processor, for a fork that records
BUDGET_S, FILE_S = 30.0, 0.02
"""A mutant is tried against tests that take so many seconds together, nearest and fastest first;
what collecting a test adds to them.
"""
QUICK_S = 0.1  # tests that take less come first, wherever they lie

Lines = dict[str, frozenset[int]]


class KnownTest(NamedTuple):
    """One test (a case of one) with what it takes and executes; ``shared`` is what the fixtures of
    its file execute: those of a module run within its first test only.
    """

    id: str
    file: str
    seconds: float
    lines: Lines
    shared: Lines


def recorded(jobs: int) -> list[KnownTest]:
    """All tests that pass, recorded where no record holds."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = folder / "torch-step-audit" / "mutants"
    folder.mkdir(parents=True, exist_ok=True)
    records, tasks = {}, []
    for path in sorted(TESTS.rglob("test_*.py")):
        if path.relative_to(TESTS).parts[0] in ELSEWHERE or not USES.search(path.read_text()):
            continue
        file = str(path.relative_to(ROOT))
        kept = folder / f"{file.replace('/', '.')}.json"
        record = json.loads(kept.read_text()) if kept.is_file() else None
        if record and record["hash"] == digest(path, record["modules"]):
            records[file] = record
        else:
            tasks.append(Task((file, kept), partial(measure, path), LONGEST_S))
    for (file, kept), answer in forked(tasks, jobs):
        print(f"recorded {file}" if answer else f"recording {file} died", flush=True)
        if answer:
            kept.write_text(answer)
            records[file] = json.loads(answer)
    found = []
    for file, record in records.items():
        of = {
            name: {module: frozenset(lines) for module, lines in one.items()}
            for name, one in record["lines"].items()
        }
        for name, seconds in record["tests"].items():
            found.append(KnownTest(name, file, seconds, of.get(name, {}), of.get("", {})))
    return found


def digest(path: Path, modules: Iterable[str]) -> str:
    """Of a test file, the cases beside it and these modules."""
    cases = sorted(path.parent.glob("*/*.py")) if path.name == "test_rules.py" else []
    found = hashlib.sha256()
    for file in [path, *cases, *(ROOT / module for module in modules)]:
        found.update(f"{file}\0".encode() + (file.read_bytes() if file.is_file() else b""))
    return found.hexdigest()


class _Contexts:
    """Plugin of pytest: each test is a context of its own while it is called."""

    def __init__(self, switch: Callable[[str], None]) -> None:
        self._switch = switch
        self.seconds: dict[str, float] = {}

    def pytest_pyfunc_call(self, pyfuncitem: Any) -> None:
        self._switch(pyfuncitem.nodeid)

    def pytest_runtest_teardown(self) -> None:
        self._switch("")

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" and report.passed:
            self.seconds[report.nodeid] = round(report.duration, 4)


def measure(path: Path) -> str:
    """The record of a test file, made in this process."""
    import coverage

    include = [f"{ROOT}/rules/*", f"{ROOT}/auditor/evidence/*"]
    measured = coverage.Coverage(data_file=None, config_file=False, include=include, messages=False)
    contexts = _Contexts(measured.switch_context)
    measured.start()
    pytest_main([str(path)], contexts)
    measured.stop()
    data = measured.get_data()
    lines: dict[str, dict[str, list[int]]] = {}
    for file in data.measured_files():
        module, inside = str(Path(file).relative_to(ROOT)), statements(Path(file).read_text())
        for line, names in data.contexts_by_lineno(file).items():
            for name in names if line in inside else ():
                lines.setdefault(name, {}).setdefault(module, []).append(line)
    modules = sorted(set(chain.from_iterable(lines.values())))
    found = {"hash": digest(path, modules), "modules": modules}
    return json.dumps(found | {"tests": contexts.seconds, "lines": lines})


# -- what a mutant is tried against ----------------------------------------------------------------


@cache
def statements(text: str) -> Lines:
    """Of each line in a function the lines of its statement; of one with a body those of its head.
    The other lines run when the module is imported.
    """
    spans: dict[int, frozenset[int]] = {}
    functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
    for node in chain.from_iterable(ast.walk(part) for each in functions for part in each.body):
        if isinstance(node, ast.stmt | ast.ExceptHandler):  # outer before inner
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body else node.end_lineno or 0
            span = frozenset(range(node.lineno, max(node.lineno, end) + 1))
            spans.update(dict.fromkeys(span, span))
    return spans


def chosen_for(tests: list[KnownTest], path: Path, line: int) -> list[KnownTest]:
    """Tests that execute a line of a module, up to the budget: quick ones first, then those that
    are near. What runs at import is tried against all tests of the module.
    """
    module, spans = str(path.relative_to(ROOT)), statements(path.read_text())
    wanted = spans.get(line, frozenset(spans))
    found = [
        test
        for test in tests
        if any(wanted & each.get(module, frozenset()) for each in (test.lines, test.shared))
    ]
    found.sort(key=lambda test: (test.seconds >= QUICK_S, _distance(test, path), test.seconds))
    spent = accumulate(test.seconds + FILE_S for test in found)
    return [test for test, until in zip(found, spent, strict=True) if until <= BUDGET_S]


def _distance(test: KnownTest, path: Path) -> int:
    """0 for tests of the module by its name or its rule's code, 1 for others."""
    code = path.stem.split("_")[0].upper()
    return int(Path(test.file).stem != f"test_{path.stem}" and f"[{code}-" not in test.id)
