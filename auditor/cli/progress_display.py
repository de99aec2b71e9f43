"""What a command says while it works: on a terminal a bar with a clock, elsewhere a line every few
seconds, all of it on stderr.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from auditor import amounts
from auditor.cli import console
from auditor.judging import catalogue

FIRST_S, LEAST_S, SILENCE_S = 3.0, 4.0, 15.0
"""Off a terminal: the first line comes after so long, two lines are never closer than the second,
nor in one pass than the third.
"""

STILL_S = 15.0
"""Without a step for so long, that is said."""

RUNS = {
    "target": "",
    "run up to the error": "run up to the out-of-memory error, to see which lines hold it",
    "replay": "replay of the step that went bad",
    "rehearsal": "rehearsal of the GPU path",
    "again": "again, since it ended early",
}
"""What a run after the first is called."""

Clock = Callable[[], float]


class Where:
    """Where a run stands. ``now`` is a clock in s."""

    def __init__(self, now: Clock = time.monotonic) -> None:
        self._now = now
        self.run = ""
        self.begin("target")

    def begin(self, run: str) -> None:
        """Another run begins; one that is taken again keeps its name."""
        before = f"{self.run}, " if self.run and run == "again" else ""
        self.run = before + RUNS.get(run, run)
        self.passes: list[tuple[str, int]] = []
        self.name, self.done, self.steps = "", 0, 0
        self._seen = self._now()

    def step(self, name: str, done: int, steps: int) -> None:
        """``done`` of ``steps`` steps of a pass are complete."""
        self.name, self.done, self.steps, self._seen = name, done, steps, self._now()

    def __str__(self) -> str:
        """``pass 2 of 6: timing pass, step 12 of 50``."""
        words = [self.run] if self.run else []
        if not self.name:
            return ": ".join((*words, "starting the target"))
        names = [name for name, _ in self.passes]
        if self.name in names and len(names) > 1:
            words.append(f"pass {names.index(self.name) + 1} of {len(names)}")
        where = f"{', '.join(words)}: " if words else ""
        still = self._now() - self._seen
        quiet = f", no step for {about(still)}" if still >= STILL_S else ""
        said = amounts.pass_named(self.name)
        return f"{where}{said}, step {self.done} of {self.steps}{quiet}"


def about(seconds: float) -> str:
    """``about 40 s``, ``about 3 min``: no more exact than it is known."""
    if seconds < 5:
        return "a few seconds"
    if seconds < 100:
        return f"about {5 * max(1, round(seconds / 5))} s"
    return f"about {round(seconds / 60)} min" if seconds < 5400 else f"about {seconds / 3600:.1f} h"


def clock(seconds: float) -> str:
    """``0:45``, ``1:02:03``."""
    minutes, rest = divmod(int(seconds), 60)
    return (
        f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
    )


class Shown:
    """Told of a run as it goes; ``_show`` says so. :meth:`tick` must be called about once a
    second, from any thread.
    """

    def __init__(self, now: Clock = time.monotonic) -> None:
        self._now = now
        self._where = Where(now)
        self._lock = threading.Lock()

    def _show(self, where: Where) -> None:
        raise NotImplementedError

    def stage(self, name: str) -> None:
        """Another run begins."""
        with self._lock:
            self._where.begin(name)
        self.tick()

    def outline(self, passes: list[tuple[str, int]]) -> None:
        """All passes of the run."""
        with self._lock:
            self._where.passes = passes

    def __call__(self, name: str, done: int, steps: int) -> None:
        """``done`` of ``steps`` steps of a pass are complete."""
        with self._lock:
            self._where.step(name, done, steps)
        self.tick()

    def tick(self) -> None:
        """Time goes on."""
        with self._lock:
            self._show(self._where)


class Lines(Shown):
    """Says on stderr, line by line, when a pass begins, and now and then that it goes on."""

    def __init__(self, say: Callable[[str], None], now: Clock = time.monotonic) -> None:
        super().__init__(now)
        self._say = say
        self._told = ("", "")
        self._last = now() + FIRST_S - LEAST_S

    def _show(self, where: Where) -> None:
        told = where.run, where.name
        if self._now() - self._last >= (LEAST_S if told != self._told else SILENCE_S):
            self._told, self._last = told, self._now()
            self._say(str(where))


class Bar(Shown):
    """The same as a bar on a terminal, with a clock of its own."""

    def __init__(self, bar: Any) -> None:
        super().__init__()
        self._bar = bar
        self._task = bar.add_task("starting the target", total=None)
        self._drawn = ("", "")

    def _show(self, where: Where) -> None:
        if self._drawn != (where.run, where.name):  # its speed says nothing of the next pass
            self._drawn = where.run, where.name
            self._bar.reset(self._task, total=where.steps or None)
        self._bar.update(self._task, description=str(where), completed=where.done)


class Steps:
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
        from rich.console import Console

        columns: tuple[Any, ...] = (
            progress.SpinnerColumn(),
            progress.TextColumn("{task.description}"),
            progress.BarColumn(20),
            progress.TimeElapsedColumn(),
            progress.TimeRemainingColumn(),
        )
        with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            drawn = Bar(bar)
            with _every_second(drawn.tick):
                yield (
                    drawn,
                    lambda text: bar.console.print(_last_line(text), markup=False, highlight=False),
                )
    else:
        lines = Lines(lambda text: console.say(f"audit: {text}", err=True))
        with _every_second(lines.tick):
            yield lines, echo


@contextmanager
def working(what: str, detail: Callable[[], str] = lambda: "", *, quiet: bool) -> Iterator[None]:
    """Show that a command works at something that has no steps, and for how long: ``verify: 0:45,
    run 3``.

    ``detail`` gives words that stand behind the clock. Off a terminal the first line comes after
    :data:`SILENCE_S`.
    """
    if quiet:
        yield
        return
    began = time.monotonic()

    def said() -> str:
        words = ", ".join(word for word in (clock(time.monotonic() - began), detail()) if word)
        return f"{what}: {words}"

    if on_terminal():
        from rich.console import Console

        with (
            Console(stderr=True).status(_plain(said())) as status,
            _every_second(lambda: status.update(_plain(said()))),
        ):
            yield
        return
    last = began

    def tick() -> None:
        nonlocal last
        if time.monotonic() - last >= SILENCE_S:
            last = time.monotonic()
            console.say(said(), err=True)

    with _every_second(tick):
        yield


def _plain(words: str) -> Any:
    """Words that may hold a file's name, for rich: no markup in them steers the terminal."""
    from rich.text import Text

    shown = catalogue.reports("text")
    return Text(shown.inert(shown.visible(words)))


@contextmanager
def _every_second(do: Callable[[], None]) -> Iterator[None]:
    """Call ``do`` once a second from a thread of its own."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(1.0):
            do()

    thread = threading.Thread(target=run, name="audit-clock", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=2.0)


def _last_line(text: str) -> str:
    return text.rstrip("\n").rpartition("\r")[2]


def echo(text: str) -> None:
    """What the target printed, as it is."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):  # a closed stderr costs the words, never the run
        return
