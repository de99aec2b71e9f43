"""Tests in forks of this process, in which a changed source is imported in a module's place: no
file is written, and a run costs no start of Python, torch or numpy.
"""

from __future__ import annotations

import importlib.machinery
import os
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.mutation.changes import Mutant

PRELOADED = ("numpy", "pandas", "torch", "hypothesis", "click", "jinja2", "msgspec", "pytest")
"""What tests import and we do not change: loaded once, before the forks."""

OPTIONS = ("-x", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:xdist")

KILLED, SURVIVED, TIMED_OUT = "killed", "survived", "timed out"

SLOWER = 6.0
"""Tests that take so many times their CPU time, and ten seconds, are stopped: the mutant loops."""


def pytest_main(files: Sequence[str], plugin: object, *, stop: bool = False) -> int:
    """Exit code of pytest for these files, in this process."""
    import pytest

    temporary = tempfile.mkdtemp(prefix="mutants-")
    options = OPTIONS if stop else OPTIONS[1:]
    try:
        return int(
            pytest.main([*options, "-o", "addopts=", f"--basetemp={temporary}/t", *files], [plugin])
        )
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


class Only:
    """Plugin of pytest: these tests, in this order; ``failed`` is the first that failed."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.places = {name: place for place, name in enumerate(ids)}
        self.failed = ""

    @property
    def hooks(self) -> object:
        """What pytest is given: only known names."""
        import pytest

        outer = self

        class Plugin:
            @pytest.hookimpl(trylast=True)
            def pytest_collection_modifyitems(self, items: list[Any]) -> None:
                kept = [item for item in items if item.nodeid in outer.places]
                items[:] = sorted(kept, key=lambda item: outer.places[item.nodeid])

            def pytest_runtest_logreport(self, report: Any) -> None:
                if report.failed and not outer.failed:
                    outer.failed = report.nodeid

            def pytest_collectreport(self, report: Any) -> None:
                if report.failed and not outer.failed:
                    outer.failed = report.nodeid

        return Plugin()


def replace(path: Path, text: str) -> None:
    """From now on this process imports this source as that file."""
    original = importlib.machinery.SourceFileLoader.get_code

    def get_code(self: importlib.machinery.SourceFileLoader, fullname: str) -> object:
        if Path(self.path) == path:
            return compile(text, str(path), "exec", dont_inherit=True)
        return original(self, fullname)

    importlib.machinery.SourceFileLoader.get_code = get_code


@dataclass
class Fork:
    """A child that does one thing in silence."""

    pid: int
    log: str
    began: float
    limit: float


def fork(work: Callable[[], int], limit: float) -> Fork:
    """Begin ``work`` in a child; its CPU time is limited to so many seconds, its time to ten times
    as many, since others use the machine too.
    """
    log = tempfile.NamedTemporaryFile(prefix="mutant-", suffix=".log", delete=False)  # noqa: SIM115
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 1, int(limit) + 2))
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            code = work()
        finally:
            os._exit(code)
    log.close()
    return Fork(pid, log.name, time.monotonic(), limit)


def ended(child: Fork) -> int | None:
    """Its wait status, or None while it runs; it is stopped when its time is over."""
    if time.monotonic() - child.began > 10 * child.limit:
        os.killpg(child.pid, signal.SIGKILL)
    pid, status = os.waitpid(child.pid, os.WNOHANG)
    return status if pid else None


def waited(child: Fork) -> int:
    """The wait status of a child, waited for."""
    while (status := ended(child)) is None:
        time.sleep(0.05)
    Path(child.log).unlink()
    return status


@dataclass(frozen=True)
class Trial:
    """A mutant and the tests it is tried against: (file, test) in rounds, each in its order."""

    mutant: Mutant
    rounds: tuple[tuple[tuple[str, str], ...], ...]
    seconds: float

    @property
    def number(self) -> int:
        """How many tests."""
        return sum(len(tests) for tests in self.rounds)

    def run(self, answer: Path) -> int:
        """In a child: 1 if a test fails, which is written to ``answer``. A round opens its files
        only if the one before it found nothing.
        """
        replace(self.mutant.file, self.mutant.text)
        for tests in self.rounds:
            only = Only([name for _, name in tests])
            files = tuple(dict.fromkeys(file for file, _ in tests))
            code = pytest_main(files, only.hooks, stop=True)
            if only.failed or code not in (0, 5):
                answer.write_text(only.failed)
                return 1
        return 0


def run(trials: Iterable[Trial], jobs: int) -> Iterator[tuple[Trial, str, str]]:
    """Each trial with its outcome and the test that failed, as they end."""
    waiting, alive = iter(trials), []
    with tempfile.TemporaryDirectory() as folder:
        while True:
            while len(alive) < jobs and (trial := next(waiting, None)) is not None:
                answer = Path(folder, str(id(trial)))
                limit = 10 + SLOWER * trial.seconds
                alive.append(
                    (trial, answer, fork(lambda t=trial, a=answer: t.run(a), limit))  # type: ignore[misc]
                )
            if not alive:
                return
            for one in list(alive):
                trial, answer, child = one
                if (status := ended(child)) is None:
                    continue
                alive.remove(one)
                Path(child.log).unlink()
                by = answer.read_text() if answer.is_file() else ""
                outcome = (
                    SURVIVED if not status else TIMED_OUT if os.WIFSIGNALED(status) else KILLED
                )
                yield trial, outcome, by
            time.sleep(0.02)
