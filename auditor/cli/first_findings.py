"""Findings that are certain before an audit is over: said while the GPU path is rehearsed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from auditor.cli.rule_selection import Choice
from auditor.evidence.recorded.steps import Steps
from auditor.evidence.snapshot.unpickle import no_collections
from auditor.evidence.table import Evidence
from auditor.judging import engine
from auditor.model import Finding, Severity
from auditor.recordings.folder import Recording

MOST = 8
"""Findings that are said; the table has them all."""


class FirstFindings:
    """Judges the main run's recording in a thread, and gives ``say`` a line for each finding that
    the final table will have.
    """

    def __init__(self, choice: Choice, say: Callable[[str], None]) -> None:
        self._choice = choice
        self._say = say
        self._thread: threading.Thread | None = None
        self._over = threading.Event()

    def announce(self, recording: Recording) -> None:
        """Begin to judge a recording that is whole."""
        if self._choice.baseline is not None:
            return  # what is known is not news
        self._thread = threading.Thread(target=self._judge, args=(recording,), daemon=True)
        self._thread.start()

    @contextmanager
    def until_judged(self) -> Iterator[None]:
        """Nothing is said after the block: the table is next."""
        try:
            yield
        finally:
            self._over.set()
            if self._thread is not None:
                self._thread.join()

    def _judge(self, recording: Recording) -> None:
        with suppress(Exception):  # the final judgement says what a fault of ours costs
            found = first(Recording(recording.folder), self._choice, self._over.is_set)
            for number, finding in enumerate(found):
                if self._over.is_set():
                    return
                if number == 0:
                    self._say("certain so far; prices and patches come with the final table:")
                self._say(f"  {finding.site}: {finding.code} {finding.message}")


def first(
    recording: Recording, choice: Choice, stop: Callable[[], bool] = lambda: False
) -> tuple[Finding, ...]:
    """The errors, and warnings that will not be notes for what little they cost, the worst first.
    None once ``stop`` is true.
    """
    settings, evidence = choice.settings, Evidence(recording)
    with no_collections():
        found = engine.settled(
            evidence,
            choice.rules,
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
