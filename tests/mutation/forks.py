"""Tests in forks of this process, in which a changed source is imported in a module's place: no
file is written, and a run costs no start of Python, torch or numpy.
"""

from __future__ import annotations

import importlib.machinery
import os
import resource
import signal
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PRELOADED = ("numpy", "pandas", "torch", "hypothesis", "click", "jinja2", "msgspec", "pytest")
"""What tests import and we do not change: loaded once, before the forks."""

OPTIONS = ("-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=")


class Task(NamedTuple):
    """What a fork does: it returns the text of its answer."""

    key: Any
    work: Callable[[], str]
    limit: float
    """Seconds of a processor; it may take ten times as long, since others use the machine too."""


def forked(tasks: Iterable[Task], jobs: int) -> Iterator[tuple[Any, str | None]]:
    """Keys of tasks as they end, with the answer, or None if it died or its time was over."""
    waiting, alive = iter(tasks), {}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        while True:
            while len(alive) < jobs and (task := next(waiting, None)) is not None:
                if not (pid := os.fork()):
                    _work(task, Path(folder, str(os.getpid())))
                alive[pid] = task.key
            if not alive:
                return
            pid, status = os.wait()
            answer = Path(folder, str(pid))
            yield alive.pop(pid), answer.read_text() if not status else None


def _work(task: Task, answer: Path) -> None:
    code = 1
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (int(task.limit) + 1, int(task.limit) + 2))
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(10 * task.limit))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        answer.write_text(task.work())
        code = 0
    finally:
        os._exit(code)


def pytest_main(files: Sequence[str], plugin: object, *options: str) -> int:
    """Exit code of pytest for these files, in this process."""
    import pytest

    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        return int(pytest.main([*OPTIONS, *options, f"--basetemp={folder}/t", *files], [plugin]))


def replace(path: Path, text: str) -> None:
    """From now on this process imports this source as that file."""
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> object:
        if Path(self.path) == path:
            return compile(text, str(path), "exec", dont_inherit=True)
        return original(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code


class Only:
    """Plugin of pytest: these tests, in this order; ``failed`` is the first that failed."""

    def __init__(self, names: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(names)}
        self.failed: list[str] = []

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        kept = [item for item in items if item.nodeid in self._places]
        items[:] = sorted(kept, key=lambda item: self._places[item.nodeid])

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.failed += [report.nodeid] if report.failed else []

    pytest_collectreport = pytest_runtest_logreport


def killer(path: Path, text: str, rounds: Sequence[Sequence[tuple[str, str]]]) -> str:
    """In a fork: the test that fails with this source, or "". A round, of (file, test), opens its
    files only if the one before it found nothing.
    """
    replace(path, text)
    for tests in rounds:
        only = Only([name for _, name in tests])
        files = tuple(dict.fromkeys(file for file, _ in tests))
        code = pytest_main(files, only, "-x")
        if only.failed or code not in (0, 5):
            return only.failed[0] if only.failed else "import"
    return ""
