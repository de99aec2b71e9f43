"""Findings that are certain before an audit is over: what the source proves is said before the
target begins, what its passes showed once the diagnostic pass has ended, and while its GPU path is
rehearsed.
"""

import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from auditor.cli.rule_selection import Choice
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.table import Evidence
from auditor.judging import engine
from auditor.machine import uncollected
from auditor.model import Finding, Severity
from auditor.recordings.folder import Recording
from auditor.recordings.schema import PARTS
from auditor.rule import Rule
from auditor.runs import finalize
from auditor.runs.progress import Display

MOST = 8
"""Findings that are said at a time; the table has them all."""

CAUSES = "loud"
"""The pass that shows most causes: after it come those of single rules."""


class FirstFindings:
    """Judges the main run's recording in a thread, and gives ``say`` a line for each finding that
    the final table will have. Each rule is asked once.
    """

    def __init__(self, choice: Choice, say: Callable[[str], None]) -> None:
        self._choice = choice
        self._say = say
        self._threads: list[threading.Thread] = []
        self._asked: set[type[Rule]] = set()
        self._said = False
        self._over = threading.Event()

    def announce_proven(self, lines: Iterable[str]) -> None:
        """Say what the target's source proves."""
        if self._choice.baseline is not None:
            return
        for number, line in enumerate(lines):
            if not number:
                self._say("the source proves, before anything runs:")
            self._say(f"  {line}")

    def announce(self, recording: Recording) -> None:
        """Begin to judge a recording that is whole."""
        self._begin(lambda: self._judge(Recording(recording.folder), frozenset()))

    def announce_part(self, folder: Path, later: frozenset[str]) -> None:
        """Begin to judge one under way, but for rules that ask for its ``later`` passes."""
        self._begin(lambda: self._judge_part(folder, later))

    def beside(self, display: Display, folder: Path) -> Display:
        """A display that is told as ``display`` is, of a target recorded in ``folder``."""
        return _Watch(display, lambda later: self.announce_part(folder, later))

    @contextmanager
    def until_judged(self) -> Iterator[None]:
        """Nothing is said after the block: the table is next."""
        try:
            yield
        finally:
            self._over.set()
            for thread in self._threads:
                thread.join()

    def _begin(self, judge: Callable[[], None]) -> None:
        if self._choice.baseline is not None:
            return  # what is known is not news
        before = self._threads[-1:]

        def run() -> None:
            for thread in before:
                thread.join()
            with suppress(Exception):  # the final judgement says what a fault of ours costs
                judge()

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def _judge_part(self, folder: Path, later: frozenset[str]) -> None:
        with tempfile.TemporaryDirectory(prefix="audit-") as copy:
            self._judge(finalize.as_it_stands(folder, Path(copy) / "recording"), later)

    def _judge(self, recording: Recording, later: frozenset[str]) -> None:
        rules = [
            rule
            for rule in self._choice.rules
            if rule not in self._asked and not later & _passes_of(rule)
        ]
        self._asked.update(rules)
        for finding in first(recording, self._choice, rules, self._over.is_set):
            if self._over.is_set():
                return
            if not self._said:
                self._said = True
                self._say("first findings (prices and patches follow in the table):")
            self._say(f"  {finding.site}: {finding.code} {finding.message}")


class _Watch:
    """Told of a run's progress as its display is; ``then`` is given the passes to come when the
    target's first run has done :data:`CAUSES`: its rehearsal where there is no other.
    """

    def __init__(self, display: Display, then: Callable[[frozenset[str]], None]) -> None:
        self._display = display
        self._then: Callable[[frozenset[str]], None] | None = then
        self._planned: list[str] = []
        self._name = ""

    def stage(self, name: str) -> None:
        if name != "rehearsal" or self._name not in ("", "warmup"):
            self._then = None
        self._display.stage(name)

    def outline(self, passes: list[tuple[str, int]]) -> None:
        self._planned = [name for name, _ in passes]
        self._display.outline(passes)

    def __call__(self, name: str, done: int, steps: int) -> None:
        """``done`` of ``steps`` steps of a pass are complete."""
        self._display(name, done, steps)
        if self._name == CAUSES != name and name in self._planned and self._then is not None:
            self._then(frozenset(self._planned[self._planned.index(name) :]))
            self._then = None
        self._name = name


def _passes_of(rule: type[Rule]) -> frozenset[str]:
    """Names of passes in which a part that the rule asks for is written, among other words."""
    parts = engine.parts_of([rule])
    return frozenset(
        word
        for part in parts
        for row in PARTS.get(part, ())
        for word in re.findall(r"\w+", row.when)
    )


def first(
    recording: Recording,
    choice: Choice,
    rules: Sequence[type[Rule]],
    stop: Callable[[], bool] = lambda: False,
) -> tuple[Finding, ...]:
    """Errors of ``rules``, and warnings that will not be notes, the worst first; until ``stop``."""
    settings, evidence = choice.settings, Evidence(recording)
    with uncollected():
        found = engine.settled(
            evidence,
            rules,
            knobs=settings.knobs,
            per_file_ignores=settings.per_file_ignores,
            stop=stop,
        )
        typical = evidence.get(Steps).typical
    least = settings.note_below * typical.value if typical is not None else 0.0
    return tuple(each for each in found if _is_loud(each, least))[:MOST]


def _is_loud(finding: Finding, least_us: float) -> bool:
    if finding.severity is Severity.ERROR:
        return True
    priced = finding.lost_us_per_step is not None or finding.lost_bytes is not None
    return finding.severity is Severity.WARNING and (
        not priced or (finding.lost_us_per_step or 0.0) > least_us
    )
