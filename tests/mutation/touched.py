"""Which test executes which line of rules/ and auditor/evidence/: recorded once with coverage.py,
kept outside the repository, and from then on the tests that a mutant is tried against.

The record of a test file holds until it or the cases of rules change. Lines of a module that
changed since are carried over by a diff.
"""

import ast
import hashlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from functools import cache, partial
from pathlib import Path
from typing import Any

from tests.mutation.changes import ROOT
from tests.mutation.forks import fork, pytest_main, waited

TESTS = ROOT / "tests"
ELSEWHERE = ("cuda", "deaths", "drill", "gpu", "patch", "seam", "security", "verify")
"""Rooms whose tests mostly start processes, which import what is on disk and not a mutant."""
USES = re.compile(r"\b(auditor\.(evidence|rules|judging)|tests\.(inprocess|timeline))\b")
"""Other test files are recorded if they name what is mutated, or what runs it."""
LONGEST_S = 900.0
"""A fork that records takes so many seconds of a processor at most."""
SLICE_S = 120.0
"""After so many seconds of a processor it ends, and the next one goes on with the other tests."""
BUDGET_S = 30.0
"""A mutant is tried against tests that take so many seconds together, nearest and fastest first."""
FILE_S = 0.3
"""What opening one more test file adds to that."""
OF_ALL = ("tests/evidence/test_defaults.py",)
"""Tests of what modules define when they are imported: they execute no function of these."""
QUICK_S = 0.1
"""Tests that take less come first, wherever they lie."""


@dataclass(frozen=True)
class KnownTest:
    """One test (a case of one) with what it takes and executes."""

    id: str
    file: str
    seconds: float
    lines: dict[str, frozenset[int]] = field(repr=False)
    shared: dict[str, frozenset[int]] = field(repr=False)
    """What the fixtures of its file execute: those of a module run within its first test only."""


# -- the record ------------------------------------------------------------------------------------


def folder() -> Path:
    """Where records are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "torch-step-audit" / "mutants"


def test_files() -> list[Path]:
    """What is recorded."""
    return [
        path
        for path in sorted(TESTS.rglob("test_*.py"))
        if path.relative_to(TESTS).parts[0] not in ELSEWHERE and USES.search(path.read_text())
    ]


def recorded(say: Any = print, jobs: int = 1) -> list[KnownTest]:
    """All tests that pass, recorded where no record holds."""
    found = []
    for file in test_files():
        kept = folder() / f"{_hash([file])}.json"
        record = json.loads(kept.read_text()) if kept.is_file() else None
        if record is None or record["beside"] != _hash(_beside(file)):
            began = time.monotonic()
            record = _record(file, jobs)
            number, name = len(record["tests"]), file.relative_to(ROOT)
            if record.pop("whole"):
                kept.write_text(json.dumps(record))
            else:
                say(f"a process that recorded {name} died: it is recorded again next time")
            say(f"recorded {number} tests of {name}, {time.monotonic() - began:.0f} s")
        found += _tests(str(file.relative_to(ROOT)), record)
    return found


def _tests(file: str, record: dict[str, Any]) -> Iterator[KnownTest]:
    digests = record["modules"]

    def now(lines: dict[str, list[int]]) -> dict[str, frozenset[int]]:
        return {
            module: frozenset(carried(module, digests[module], tuple(each)))
            for module, each in lines.items()
            if module in digests
        }

    shared = now(record["shared"])
    for name, one in record["tests"].items():
        lines = now(one["lines"])
        if lines or shared or file in OF_ALL:
            yield KnownTest(name, file, one["seconds"], lines, shared)


def carried(module: str, digest: str, lines: tuple[int, ...]) -> set[int]:
    """These lines of a module as it was recorded, in the module as it is. What takes the place
    of changed lines counts as executed where one of them was.
    """
    return {line for each in lines for line in _moved(module, digest).get(each, (each,))}


@cache
def _moved(module: str, digest: str) -> dict[int, tuple[int, ...]]:
    """Where lines of the recorded text stand now; empty where nothing changed."""
    path, then = ROOT / module, folder() / "texts" / digest
    if not path.is_file() or not then.is_file() or _hash([path]) == digest:
        return {}
    old, new = then.read_text().splitlines(), path.read_text().splitlines()
    moved: dict[int, tuple[int, ...]] = {}
    for tag, begin, end, first, last in SequenceMatcher(None, old, new, False).get_opcodes():
        for number in range(begin, end):
            same = (first + number - begin + 1,)
            moved[number + 1] = same if tag == "equal" else tuple(range(first + 1, last + 1))
    return moved


def _beside(file: Path) -> list[Path]:
    """What a test file reads of its folder: cases of rules."""
    return sorted(file.parent.glob("*/*.py")) if file.name == "test_rules.py" else []


def _hash(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.relative_to(ROOT)}\0".encode())
        digest.update(file.read_bytes() if file.is_file() else b"")
    return digest.hexdigest()[:32]


def _record(file: Path, jobs: int = 1) -> dict[str, Any]:
    """Run a test file under coverage.py in forks, each of which takes some of its tests, so that a
    long file is cut nowhere. Tests that fail or are skipped are left out.
    """
    (folder() / "texts").mkdir(parents=True, exist_ok=True)
    found = [
        path for place in ("rules", "auditor/evidence") for path in (ROOT / place).rglob("*.py")
    ]
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in found}
    digests = {module: _hash([ROOT / module]) for module in texts}
    lines: dict[str, dict[str, set[int]]] = {}
    seconds: dict[str, float] = {}
    whole = True
    for one in _slices(file, jobs):
        whole = whole and not one.get("died")
        seconds |= one["seconds"]
        for name, found in one["lines"].items():
            for module, each in found.items():
                lines.setdefault(name, {}).setdefault(module, set()).update(each)
    touched = sorted({module for one in lines.values() for module in one})
    for module in touched:
        (folder() / "texts" / digests[module]).write_text(texts[module])

    def of(name: str) -> dict[str, list[int]]:
        return {module: sorted(each) for module, each in lines.get(name, {}).items()}

    return {
        "whole": whole,
        "beside": _hash(_beside(file)),
        "modules": {module: digests[module] for module in touched},
        "shared": of(""),
        "tests": {name: {"seconds": spent, "lines": of(name)} for name, spent in seconds.items()},
    }


DEAD: dict[str, Any] = {"lines": {}, "seconds": {}, "ran": [], "more": False, "died": True}
"""What a process measured that died."""


def _slices(file: Path, jobs: int) -> Iterator[dict[str, Any]]:
    """What forks measured, ``jobs`` at a time with every ``jobs``-th test each, until none is left.
    One that dies is not begun again.
    """
    done: list[list[str]] = [[] for _ in range(jobs)]
    open_ = set(range(jobs))
    while open_:
        running = {}
        for place in sorted(open_):
            answer = folder() / f"{os.getpid()}-{place}.part"
            work = partial(_measure, file, answer, (place, jobs), frozenset(done[place]))
            running[place] = (fork(work, LONGEST_S), answer)
        for place, (child, answer) in running.items():
            waited(child)
            one = json.loads(answer.read_text()) if answer.is_file() else DEAD
            answer.unlink(missing_ok=True)
            done[place] += one["ran"]
            yield one
            if not one["more"]:
                open_.discard(place)


class _Slice:
    """Plugin of pytest: every so many-th test that is not done yet, for ``SLICE_S`` seconds."""

    def __init__(self, share: tuple[int, int], done: frozenset[str], switch: Any) -> None:
        self.share, self.done, self.switch = share, done, switch
        self.seconds: dict[str, float] = {}
        self.ran: list[str] = []
        self.left = 0
        self.session: Any = None

    @property
    def hooks(self) -> object:
        """What pytest is given: only known names."""
        import pytest

        outer, began = self, time.process_time()

        class Plugin:
            @pytest.hookimpl(trylast=True)
            def pytest_collection_modifyitems(self, session: Any, items: list[Any]) -> None:
                place, of = outer.share
                outer.session = session
                items[:] = [each for each in items[place::of] if each.nodeid not in outer.done]
                outer.left = len(items)

            @pytest.hookimpl(wrapper=True)
            def pytest_runtest_setup(self, item: Any) -> Iterator[None]:
                outer.switch("")
                return (yield)

            @pytest.hookimpl(wrapper=True)
            def pytest_runtest_call(self, item: Any) -> Iterator[None]:
                outer.switch(item.nodeid)
                return (yield)

            @pytest.hookimpl(wrapper=True)
            def pytest_runtest_teardown(self, item: Any) -> Iterator[None]:
                outer.switch("")
                return (yield)

            def pytest_runtest_logreport(self, report: Any) -> None:
                if report.when == "call" and report.passed:
                    outer.seconds[report.nodeid] = round(report.duration, 4)

            def pytest_runtest_logfinish(self, nodeid: str) -> None:
                outer.ran.append(nodeid)
                if time.process_time() - began > SLICE_S:
                    outer.session.shouldstop = "the next slice goes on"

        return Plugin()


def _measure(file: Path, answer: Path, share: tuple[int, int], done: frozenset[str]) -> int:
    import coverage

    measured = coverage.Coverage(
        data_file=None,
        config_file=False,
        include=[f"{ROOT}/rules/*", f"{ROOT}/auditor/evidence/*"],
        messages=False,
    )
    taken = _Slice(share, done, measured.switch_context)
    measured.start()
    pytest_main([str(file)], taken.hooks)
    measured.stop()
    data = measured.get_data()
    lines: dict[str, dict[str, list[int]]] = {}
    for path in data.measured_files():
        module = str(Path(path).relative_to(ROOT))
        inside = in_functions((ROOT / module).read_text())
        for line, names in data.contexts_by_lineno(path).items():
            for name in names if line in inside else ():
                lines.setdefault(name, {}).setdefault(module, []).append(line)
    more = bool(taken.ran) and len(taken.ran) < taken.left
    one = {"lines": lines, "seconds": taken.seconds, "ran": taken.ran, "more": more}
    answer.write_text(json.dumps(one))
    return 0


# -- what a mutant is tried against ----------------------------------------------------------------


@cache
def in_functions(text: str) -> frozenset[int]:
    """Lines of statements in bodies of functions: the others run when the module is imported."""
    return frozenset(
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for part in (node.body if isinstance(node.body, list) else [node.body])
        for line in range(part.lineno, (part.end_lineno or part.lineno) + 1)
    )


@cache
def statements(text: str) -> dict[int, frozenset[int]]:
    """Of each line the lines of its statement; of one with a body those of its head."""
    spans: dict[int, frozenset[int]] = {}
    for node in ast.walk(ast.parse(text)):  # outer before inner
        if isinstance(node, ast.stmt | ast.ExceptHandler | ast.match_case):
            begin = node.pattern.lineno if isinstance(node, ast.match_case) else node.lineno
            body = getattr(node, "body", None)
            end = body[0].lineno - 1 if body else getattr(node, "end_lineno", begin)
            span = range(begin, max(begin, end) + 1)
            spans.update(dict.fromkeys(span, frozenset(span)))
    return spans


def users(text: str, line: int) -> frozenset[int]:
    """Lines whose execution shows a change of this line: of its statement if that is in a
    function; else those of functions that name what the statement defines; else of all functions.
    """
    inside = in_functions(text)
    if line in inside:
        return statements(text).get(line, frozenset({line}))
    tree, names = ast.parse(text), set()
    for node in ast.walk(tree):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            names |= {each.id for each in targets if isinstance(each, ast.Name)}
    named = {
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id in names)
        or (isinstance(node, ast.Attribute) and node.attr in names)
    }
    spans = statements(text)
    using = {each for found in named & inside for each in spans.get(found, {found})}
    return frozenset(using) or inside


def chosen_for(tests: list[KnownTest], path: Path, line: int) -> list[KnownTest]:
    """Tests that execute a line of a module, up to the budget: quick ones first, then those that
    are near.
    """
    module, text = str(path.relative_to(ROOT)), path.read_text()
    wanted = users(text, line)
    nothing: frozenset[int] = frozenset()
    found = [test for test in tests if test.lines.get(module, nothing) & wanted]
    hit = set(map(id, found))
    found += [
        test for test in tests if id(test) not in hit and test.shared.get(module, nothing) & wanted
    ]
    if line not in in_functions(text):
        found = found or [
            test for test in tests if test.lines.get(module) or test.shared.get(module)
        ]
        found += [test for test in tests if test.file in OF_ALL]
    found.sort(key=lambda test: (test.seconds >= QUICK_S, _distance(test, path), test.seconds))
    return list(_within(found, BUDGET_S))


def _within(tests: list[KnownTest], budget: float) -> Iterator[KnownTest]:
    spent, files = 0.0, set()
    for test in tests:
        spent += test.seconds + FILE_S * (test.file not in files)
        files.add(test.file)
        if spent > budget and len(files) > 1:
            return
        yield test


def _distance(test: KnownTest, path: Path) -> int:
    """0 for tests of the module by its name, 1 of its room, 2 for others."""
    room = "rules" if path.parent.name == "rules" else "evidence"
    code = path.stem.split("_")[0].upper()
    mirror = Path(test.file).stem == f"test_{path.stem}"
    if mirror or (room == "rules" and f"[{code}-" in test.id) or f"/{code.lower()}/" in test.file:
        return 0
    return 1 if test.file.startswith(f"tests/{room}/") else 2
