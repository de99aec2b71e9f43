"""A look is judged in another process, at the lowest priority, while training goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from auditor.errors import AuditProblem, fault

if TYPE_CHECKING:
    from auditor.capture.here import Here
    from auditor.extensions.longrun.run import Settings


BOOT = (
    "import sys; sys.path[:] = [*filter(None, sys.path), sys.argv[1]]; "
    "from auditor.extensions.longrun.judging import main; main(*sys.argv[2:])"
)
JUDGED = "judged.json"
"""What the judge tells of its report, beside it."""

LOG = "judge.log"
"""What it prints: nothing, where all is well."""

LIMIT_S = 900.0
"""A judge that takes longer is ended."""

BYTES = 4 << 20


class Judge:
    """The process that judges one look."""

    def __init__(self, folder: Path, plan: str, codes: str, now: float) -> None:
        self.folder = folder
        self._began = now
        root = str(Path(__file__).resolve().parents[3])
        with open(folder / LOG, "wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", BOOT, root, str(folder.resolve()), plan, codes],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
                start_new_session=True,
            )

    def done(self, now: float) -> dict[str, Any] | None:
        """What it says; None as long as it works."""
        if self._process.poll() is None:
            if now - self._began < LIMIT_S:
                return None
            self._process.kill()
            self._process.wait()
            return {"error": f"judging took more than {LIMIT_S:.0f} s and was ended"}
        return self._outcome()

    def wait(self, seconds: float) -> None:
        """Wait up to ``seconds`` for the end; unfinished work continues in the background."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def _outcome(self) -> dict[str, Any]:
        try:
            with open(self.folder / JUDGED, "rb") as file:
                found = json.loads(file.read(BYTES))
        except (OSError, ValueError):
            return {"error": f"judging ended with exit code {self._process.returncode}"}
        return found if isinstance(found, dict) else {"error": "judging said nothing"}


# -- in that process -------------------------------------------------------------------------------


TOLD = 100
"""Upper bound on findings printed for one report; the report has them all."""


def main(folder: str, plan: str, codes: str) -> None:
    """Judge the recording in ``folder``, and say there what was found. Never raises."""
    _step_back()
    home = Path(folder)
    try:
        said = _judged(home, plan, codes)
    except AuditProblem as problem:
        said = {"error": problem.message}
    except Exception as error:
        said = {"error": f"judging failed ({fault(error)})"}
    fresh = home / f".{JUDGED}.new"
    with suppress(OSError):
        fresh.write_text(json.dumps(said))
        fresh.replace(home / JUDGED)


def _step_back() -> None:
    """Run at the lowest priority of processor and disk, with a time limit of our own."""
    with suppress(OSError, AttributeError):
        os.nice(19)
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (int(LIMIT_S), int(LIMIT_S)))
    with suppress(Exception):
        import psutil

        psutil.Process().ionice(psutil.IOPRIO_CLASS_IDLE)


def _judged(home: Path, plan: str, codes: str) -> dict[str, Any]:
    from auditor.cli import rule_selection, write_results
    from auditor.evidence.table import Evidence
    from auditor.judging import build_report, catalogue
    from auditor.runs.finalize import Known, seal
    from auditor.runs.plan import Plan

    text = catalogue.reports("text")
    select, ignore = json.loads(codes)
    recording = seal(Plan.from_json(plan), 0, Known())
    choice = rule_selection.choose(tuple(select), tuple(ignore), allow_broken_rules=True)
    evidence: Evidence = Evidence(recording)
    report = build_report.drawn(choice.judged(evidence), evidence)
    write_results.write(report, evidence, home, ())
    return {
        "report": str(home / "report.html"),
        "outcome": report.run.outcome,
        "findings": [
            {
                "key": each.key,
                "code": each.code,
                "severity": each.severity.value if each.severity is not None else "note",
                "site": text.one_line(str(each.site)) if each.site is not None else "",
                "message": text.one_line(each.message, 500),
                "us": each.lost_us_per_step,
                "bytes": each.lost_bytes,
            }
            for each in report.findings[:TOLD]
        ],
        "dropped": max(0, len(report.findings) - TOLD),
    }


# -- a look ----------------------------------------------------------------------------------------

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
        self._file, self._outcome = settings.file, settings.said
        self._typical_s = typical_s
        self._began = self._at = 0.0
        self._left = ExitStack()
        self._recorder: Here | None = None

    def begin(self, now: float) -> None:
        """Put the instruments on. Raises :class:`AuditProblem` if another audit is going on, or
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
                recorder.watch_told(f"a look at a long run: {self._why}", *self._outcome)
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
        """Put everything back. The plan of what was recorded; empty if nothing was."""
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
