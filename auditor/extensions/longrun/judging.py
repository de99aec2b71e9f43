"""A look is judged in another process, at the lowest priority, while training goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from auditor.errors import AuditProblem, fault

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
        return self._said()

    def wait(self, seconds: float) -> None:
        """Give it so long to end. What is not done then is done without us."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)

    def _said(self) -> dict[str, Any]:
        try:
            with open(self.folder / JUDGED, "rb") as file:
                found = json.loads(file.read(BYTES))
        except (OSError, ValueError):
            return {"error": f"judging ended with exit code {self._process.returncode}"}
        return found if isinstance(found, dict) else {"error": "judging said nothing"}


# -- in that process -------------------------------------------------------------------------------


TOLD = 100
"""Findings that are told of one report at most; the report has them all."""


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
    """Whatever else wants the processor or the disk comes first; nobody may be there to end us."""
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
    from auditor.runs.finalize import StillRuns, seal
    from auditor.runs.plan import Plan

    text = catalogue.reports("text")
    select, ignore = json.loads(codes)
    recording = seal(Plan.from_json(plan), 0, StillRuns())
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
