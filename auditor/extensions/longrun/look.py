"""A few steps under full instruments, inside a run that goes on."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from auditor.errors import AuditProblem
from auditor.extensions.longrun.judging import Judge

if TYPE_CHECKING:
    from auditor.capture.here import Here
    from auditor.extensions.longrun.run import Settings

LONGEST_S = 600.0
"""A look that adds more to its steps ends with the one that it is in."""

SHORT = "the look took {} of its steps, so that some passes are missing"


class Look:
    """``typical_s`` is what one of its steps takes without instruments."""

    def __init__(self, settings: Settings, folder: Path, typical_s: float) -> None:
        self.folder = folder
        self._why = f"every {settings.every:,} steps"
        self.steps = 0
        plan = settings.plan
        self._plan = replace(plan, folder=str((folder / "recording").resolve()))
        self._file, self._said = settings.file, settings.said
        self._typical_s = typical_s
        self._began = self._at = 0.0
        self._left = ExitStack()
        self._recorder: Here | None = None

    def begin(self, now: float) -> None:
        """Put the instruments on. Raises :class:`AuditProblem` where another audit is going on, or
        this is not the main thread.
        """
        from auditor.capture import here

        self._began, self._at = now, perf_counter()
        with ExitStack() as left:
            left.enter_context(here.alone())
            recorder = here.Here(self._plan, self._file)
            recorder.save()
            try:
                if recorder.writer.lost:
                    raise AuditProblem(recorder.writer.lost)
                recorder.watch_told(f"a look at a long run: {self._why}", *self._said)
            except BaseException:
                recorder.leave(None)
                raise
            self._recorder = recorder
            self._left = left.pop_all()

    def step(self) -> None:
        """A step has ended; the first one begins what is recorded."""
        if self._recorder is not None and not self.over:
            self.steps += 1
            self._recorder.on_step()

    @property
    def over(self) -> bool:
        """Whether all of its steps are taken."""
        recorder = self._recorder
        added = perf_counter() - self._at - self.steps * self._typical_s
        return recorder is None or recorder.over or added > LONGEST_S

    def leave(self, error: BaseException | None) -> str:
        """Put everything back. The plan of what was recorded; empty where nothing was."""
        recorder, self._recorder = self._recorder, None
        with self._left:
            if recorder is None:
                return ""
            if recorder.short:
                recorder.warnings.append(SHORT.format(recorder.short))
            recorder.leave(error)
            seen = recorder.session is not None and bool(recorder.session.passes)
        return self._plan.to_json() if seen else ""

    def added(self, now: float) -> float:
        """Seconds that it took more than its steps would have."""
        return max(0.0, now - self._began - self.steps * self._typical_s)

    def judged(self, plan: str, codes: str, now: float) -> Judge:
        """The process that judges it, begun."""
        return Judge(self.folder, plan, codes, now)
