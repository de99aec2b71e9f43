"""A mutation run over rules/ and auditor/evidence/, by hand: ``make mutants N=200 SEED=1``.

cosmic-ray changes one thing of a module (a border, a number, ``and`` for ``or``, a condition
negated, a sign), and the tests that mirror the module are run in a fork of this process, in which
the changed source is imported in the module's place: no file is written, and a run costs no start
of Python, torch or numpy. A mutant is killed if a test fails or none ends in time; it survives if
all pass. A process that a test starts imports what is on disk: what only such tests would see
survives here.

The figure is that of a sample, and some mutants differ from their module in nothing that can be
observed.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.machinery
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PRELOADED = ("numpy", "pandas", "torch", "hypothesis", "click", "jinja2", "msgspec", "pytest")
"""What tests import and we do not change: loaded once, before the forks."""

SWAPS = (
    "Lt_LtE",
    "LtE_Lt",
    "Gt_GtE",
    "GtE_Gt",
    "Lt_Gt",
    "Gt_Lt",
    "Eq_NotEq",
    "NotEq_Eq",
    "Is_IsNot",
    "IsNot_Is",
)
SIGNS = ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Pow_Mul", "Mod_Add")
OPERATORS = (
    *(f"core/ReplaceComparisonOperator_{each}" for each in SWAPS),
    *(f"core/ReplaceBinaryOperator_{each}" for each in SIGNS),
    "core/NumberReplacer",
    "core/ReplaceTrueWithFalse",
    "core/ReplaceFalseWithTrue",
    "core/ReplaceAndWithOr",
    "core/ReplaceOrWithAnd",
    "core/AddNot",
    "core/ReplaceUnaryOperator_Delete_Not",
    "core/ReplaceUnaryOperator_Delete_USub",
    "core/ReplaceBreakWithContinue",
    "core/ReplaceContinueWithBreak",
)
"""Of cosmic-ray's: one neighbour of each comparison and sign, where all pairs would be five in six
of the mutants.
"""

KILLED, SURVIVED = "killed", "survived"

CASE = "case:"
"""Before the code of a rule whose own cases (tests/rules/test_rules.py) are meant."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file, ``where`` is its line and column."""

    file: Path
    operator: str
    occurrence: int
    where: tuple[int, int]

    @property
    def text(self) -> str:
        """The file with the change."""
        from cosmic_ray.mutating import mutate_code
        from cosmic_ray.plugins import get_operator

        return str(
            mutate_code(self.file.read_text(), get_operator(self.operator)(), self.occurrence)
        )

    def __str__(self) -> str:
        changed = self.text.splitlines()
        line = changed[self.where[0] - 1].strip() if len(changed) >= self.where[0] else ""
        return (
            f"{self.file.relative_to(ROOT)}:{self.where[0]}:{self.where[1]}  {self.operator[5:]}  "
            f"{line[:110]}"
        )


# -- modules, their mutants and their tests --------------------------------------------------------


def modules() -> list[Path]:
    """What is mutated."""
    found = [*(ROOT / "rules").glob("*.py"), *(ROOT / "auditor/evidence").rglob("*.py")]
    return sorted(path for path in found if path.name != "__init__.py")


def mutants_of(path: Path) -> Iterator[Mutant]:
    """All mutants of a file, less those that nothing can tell apart from it."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.plugins import get_operator

    text = path.read_text()
    nodes, idle = list(ast_nodes(get_ast(text))), list(_idle(ast.parse(text)))
    for name in OPERATORS:
        operator = get_operator(name)()
        places = [begin for node in nodes for begin, _ in operator.mutation_positions(node)]
        for occurrence, where in enumerate(places):
            if not any(begin <= where < end for begin, end in idle):
                yield Mutant(path, name, occurrence, where)


def _idle(tree: ast.Module) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Stretches of source that do nothing at run time: annotations, imports for them, and what
    decorators are given.
    """
    for node in ast.walk(tree):
        parts: list[ast.AST | None] = []
        if isinstance(node, ast.AnnAssign):
            parts = [node.annotation]
        elif isinstance(node, ast.arg):
            parts = [node.annotation]
        elif isinstance(node, ast.FunctionDef):
            parts = [node.returns, *node.decorator_list]
        elif isinstance(node, ast.ClassDef):
            parts = [*node.decorator_list]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            parts = [node]
        elif isinstance(node, ast.Call) and any(word.arg == "strict" for word in node.keywords):
            parts = [
                word.value for word in node.keywords if word.arg == "strict"
            ]  # of zip: equal lengths, or a fault
        for part in parts:
            if part is not None:
                yield (part.lineno, part.col_offset), (part.end_lineno, part.end_col_offset)


@cache
def _imported() -> dict[Path, frozenset[str]]:
    """Dotted names that each test file imports."""
    return {path: _names(path) for path in sorted((ROOT / "tests").rglob("test_*.py"))}


@cache
def _names(path: Path) -> frozenset[str]:
    """Dotted names that a file imports."""
    names, package = set(), _dotted(path.parent)
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = f"{package}.{node.module}" if node.level == 1 else node.module
            names |= {module, *(f"{module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
    return frozenset(names)


@cache
def _called(path: Path) -> frozenset[str]:
    """Names under which others import a module or, of a table, its classes; some tests import
    rules/ as it lies.
    """
    dotted = _dotted(path)
    if path.parent.name == "rules":
        return frozenset({dotted, dotted.removeprefix("auditor.")})
    classes = (
        node.name for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)
    )
    return frozenset({dotted, *(f"auditor.evidence.{name}" for name in classes)})


ROOMS = ("evidence", "rules", "model")
"""Folders of tests that may mirror any module, in this order."""

FILES, CASES = 4, 8
"""At most so many test files where none mirrors a module, and so many rules whose cases use it."""

NEXT = {"trace": "timeline", "snapshot": "allocator", "checkpoints": "checkpoints"}
"""One more of them for parts of auditor/evidence/."""


@cache
def tests_of(path: Path) -> tuple[str, ...]:
    """What a module is tested by, as arguments of pytest: its mirrors, then the cases of the rules
    that come to it by imports.
    """
    near = [path]
    for each in near:  # grows: nearest first
        near += [user for user in modules() if user not in near and _names(user) & _called(each)]
    mirrors = [test for each in near for test in _mirrors(each)]
    files = [test for test in mirrors if not test.startswith(CASE)]
    cases = [test for test in mirrors if test.startswith(CASE)]
    return (*dict.fromkeys(_mirrors(path) or files[:FILES]), *dict.fromkeys(cases[:CASES]))


@cache
def _mirrors(path: Path) -> tuple[str, ...]:
    """Test files that import a module or its tables, and a rule's own cases."""
    rooms = (*ROOMS, *(room for part, room in NEXT.items() if part in path.parts))
    files = [
        file
        for file, imported in _imported().items()
        if imported & _called(path) and _room(file) in rooms
    ]
    files.sort(
        key=lambda file: (file.name != f"test_{path.stem}.py", rooms.index(_room(file)), file)
    )
    cases = (
        ROOT / "tests/rules" / path.stem.split("_")[0]
    ).is_dir() and path.parent.name == "rules"
    return (
        *(str(file) for file in files),
        *([CASE + path.stem.split("_")[0].upper()] if cases else []),
    )


def _room(file: Path) -> str:
    return file.relative_to(ROOT / "tests").parts[0]


def _dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "auditor" else ("auditor", *parts))


# -- running ---------------------------------------------------------------------------------------


@dataclass
class Running:
    """A fork that runs the tests of one mutant (of none: the tests as they are)."""

    mutant: Mutant | None
    folder: str
    began: float


def _replace(path: Path, text: str) -> None:
    """From now on this process imports this source as that file."""
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> object:
        if Path(self.path) == path:
            return compile(text, str(path), "exec", dont_inherit=True)
        return original(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code


def _in_fork(tests: tuple[str, ...], mutant: Mutant | None, folder: str) -> int:
    """Exit code of pytest for these tests (see :func:`tests_of`), which see the mutant."""
    import pytest

    silent = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_CREAT)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    if mutant is not None:
        _replace(mutant.file, mutant.text)
    options = [
        "-x",
        "-q",
        "-m",
        "not slow",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-o",
        "addopts=",
        f"--basetemp={folder}/t",
    ]
    files = [each for each in tests if not each.startswith(CASE)]
    cases = [each.removeprefix(CASE) for each in tests if each.startswith(CASE)]
    code = int(pytest.main([*options, *files])) if files else 0
    if not code and cases:
        code = int(
            pytest.main(
                [*options, str(ROOT / "tests/rules/test_rules.py"), "-k", " or ".join(cases)]
            )
        )
    return code


def _start(tests: tuple[str, ...], mutant: Mutant | None) -> tuple[int, Running]:
    folder = tempfile.mkdtemp(prefix="mutant-")
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.setsid()
            code = _in_fork(tests, mutant, folder)
        finally:
            os._exit(code)
    return pid, Running(mutant, folder, time.monotonic())


def run(
    work: Iterable[tuple[tuple[str, ...], Mutant | None]], jobs: int, limit: float
) -> Iterator[tuple[Running, str]]:
    """Each of these tests and mutants with its outcome, as they end; ``limit`` is in seconds."""
    work, alive = iter(work), {}
    while True:
        while len(alive) < jobs and (one := next(work, None)) is not None:
            pid, running = _start(*one)
            alive[pid] = running
        if not alive:
            return
        for number, each in alive.items():
            if time.monotonic() - each.began > limit:
                os.killpg(number, signal.SIGKILL)
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            time.sleep(0.05)
            continue
        running = alive.pop(pid)
        yield running, KILLED if status else SURVIVED
        shutil.rmtree(running.folder, ignore_errors=True)


def _check(sample: list[Mutant], limit: float) -> None:
    """Run the tests as they are. If one fails, no mutant can be judged, and this exits."""
    every = tuple(dict.fromkeys(test for mutant in sample for test in tests_of(mutant.file)))
    for running, outcome in run([(every, None)], 1, 20 * limit):
        if outcome != SURVIVED:
            sys.exit(
                "a test fails without any mutant:\n"
                + Path(running.folder, "log").read_text(errors="replace")[-3000:]
            )


def _judged(
    sample: list[Mutant], jobs: int, deadline: float, limit: float
) -> Iterator[tuple[Mutant, str]]:
    """Of each the outcome, as they end."""
    work = ((tests_of(mutant.file), mutant) for mutant in sample if time.monotonic() < deadline)
    for running, outcome in run(work, jobs, limit):
        assert running.mutant is not None
        yield running.mutant, outcome


def _table(outcomes: list[tuple[Mutant, str]]) -> str:
    by_file = Counter(
        (str(mutant.file.relative_to(ROOT)), outcome == SURVIVED) for mutant, outcome in outcomes
    )
    files = sorted({file for file, _ in by_file})
    rows = [f"| {file} | {by_file[file, False]} | {by_file[file, True]} |" for file in files]
    killed = sum(outcome != SURVIVED for _, outcome in outcomes)
    share = f"{killed} of {len(outcomes)} killed, {100 * killed / max(1, len(outcomes)):.1f} %"
    return "\n".join(["| file | killed | survived |", "|---|---|---|", *rows, "", share])


def main() -> None:
    """Prints each survivor as it is found, then the table."""
    parser = argparse.ArgumentParser(
        description="Mutants of rules/ and auditor/evidence/ against the tests that mirror them."
    )
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="part of the path of the files to mutate")
    parser.add_argument("--minutes", type=float, default=600.0, help="no mutant is begun later")
    parser.add_argument(
        "--limit",
        type=float,
        default=120.0,
        help="seconds after which a mutant's tests count as failed",
    )
    parser.add_argument(
        "--unchecked",
        action="store_true",
        help="do not run the tests as they are first: they are known to pass",
    )
    asked = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    deadline = time.monotonic() + 60 * asked.minutes
    for name in PRELOADED:
        importlib.import_module(name)
    paths = [path for path in modules() if asked.only in str(path.relative_to(ROOT))]
    everything = [mutant for path in paths for mutant in mutants_of(path)]
    sample = random.Random(asked.seed).sample(everything, min(asked.number, len(everything)))
    print(
        f"{len(everything)} mutants of {len(paths)} files; a sample of {len(sample)}, seed "
        f"{asked.seed}",
        flush=True,
    )
    if not asked.unchecked:
        _check(sample, asked.limit)
    outcomes = []
    for mutant, outcome in _judged(sample, asked.jobs, deadline, asked.limit):
        outcomes.append((mutant, outcome))
        if outcome == SURVIVED:
            print(f"survived: {mutant}", flush=True)
    print(_table(outcomes))


if __name__ == "__main__":
    main()
