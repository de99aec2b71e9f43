"""What a command says on stderr: rich's bar on a terminal, elsewhere a line now and then."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from auditor import amounts
from auditor.cli import console
from auditor.judging import catalogue

FIRST_S, LEAST_S, SILENCE_S = 3.0, 4.0, 15.0
"""Off a terminal, seconds at least: until the first line, between two, and two of a pass."""

RUNS = {
    "target": "",
    "run up to the error": "run up to the out-of-memory error, to see which lines hold it",
    "replay": "replay of the step that went bad",
    "rehearsal": "rehearsal of the GPU path",
    "again": "again, since it ended early",
    "unwatched": "again, without the watch under which it failed",
}
"""What a run after the first is called."""


class Shown:
    """Told of a run as it goes: words (``pass 2 of 6: ...``), and how many steps are done."""

    def __init__(self, show: Callable[[str, int, int], None]) -> None:
        self._show = show
        self._run = ""
        self._passes: list[str] = []

    def stage(self, name: str) -> None:
        """Another run begins; one that is taken again keeps its name."""
        before = f"{self._run}, " if self._run and name in ("again", "unwatched") else ""
        self._run = before + RUNS.get(name, name)
        self._passes = []
        self._show(f"{self._run}: starting" if self._run else "starting the target", 0, 0)

    def outline(self, passes: list[tuple[str, int]]) -> None:
        """All passes of the run."""
        self._passes = [name for name, _ in passes]

    def __call__(self, name: str, done: int, steps: int) -> None:
        """``done`` of ``steps`` steps of a pass are complete."""
        words = [self._run] if self._run else []
        if name in self._passes:
            words.append(f"pass {self._passes.index(name) + 1} of {len(self._passes)}")
        where = f"{', '.join(words)}: " if words else ""
        self._show(f"{where}{amounts.pass_named(name)}, step {done} of {steps}", done, steps)


def in_lines(say: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> Shown:
    """One that says lines, and not too many."""
    told, last = "", now() + FIRST_S - LEAST_S

    def show(words: str, done: int, steps: int) -> None:
        nonlocal told, last
        part = words.partition(", step")[0]
        if now() - last >= (LEAST_S if part != told else SILENCE_S):
            told, last = part, now()
            say(words)

    return Shown(show)


def in_bar(bar: Any) -> Shown:
    """One that moves a bar of rich's."""
    task, told = bar.add_task("starting the target", total=None), ""

    def show(words: str, done: int, steps: int) -> None:
        nonlocal told
        part = words.partition(", step")[0]
        if part != told:  # its speed says nothing of the next pass
            bar.reset(task, total=steps or None)
        told = part
        bar.update(task, description=words, completed=done)

    return Shown(show)


class StepProgress:
    """Remembers how far a run is, for :func:`working`."""

    def __init__(self) -> None:
        self._where = ""

    def __call__(self, name: str, done: int, steps: int) -> None:
        """``done`` of ``steps`` steps are complete."""
        self._where = f"step {done} of {steps}"

    def __str__(self) -> str:
        return self._where


def on_terminal() -> bool:
    """Whether a bar may be drawn: stderr is a terminal, and ``NO_COLOR`` is not set."""
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR")


@contextmanager
def shown(*, quiet: bool) -> Iterator[tuple[Any, Callable[[str], None]]]:
    """Progress of ``audit run``, and the target's output beside it; neither with ``quiet``."""
    if quiet:
        yield (lambda name, done, steps: None), (lambda text: None)
    elif on_terminal():
        from rich import progress

        columns = (progress.BarColumn(20), progress.TimeRemainingColumn())
        with _bar(progress.TextColumn("{task.description}"), *columns) as bar:
            yield (
                in_bar(bar),
                lambda text: bar.console.print(
                    text.rstrip("\n").rpartition("\r")[2], markup=False, highlight=False
                ),
            )
    else:
        yield in_lines(lambda text: console.say(f"audit: {text}", err=True)), echo


@contextmanager
def working(what: str, detail: Callable[[], str] = lambda: "", *, quiet: bool) -> Iterator[None]:
    """Show on a terminal that something without steps works, for how long; ``detail``: words."""
    if quiet or not on_terminal():
        yield
        return
    from rich import progress
    from rich.text import Text

    class Said(progress.ProgressColumn):
        def render(self, task: Any) -> Text:
            shown = catalogue.reports("text")  # no markup in a file's name steers the terminal
            words = ", ".join(filter(None, (what, detail())))
            return Text(shown.inert(shown.visible(words)))

    with _bar(Said()) as bar:
        bar.add_task("", total=None)
        yield


def _bar(*columns: Any) -> Any:
    from rich import progress
    from rich.console import Console

    every = (progress.SpinnerColumn(), *columns, progress.TimeElapsedColumn())
    return progress.Progress(*every, console=Console(stderr=True), transient=True)


def echo(text: str) -> None:
    """What the target printed, as it is."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):  # a closed stderr costs the words, never the run
        return
