"""The process that judges a look of a long run, while its training goes on in another one."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from auditor.errors import AuditProblem, fault
from auditor.extensions.longrun.judging import JUDGED, LIMIT_S

TOLD = 100
"""Findings that are told of one report at most; the report has them all."""


class _Ended:
    """What :func:`auditor.runs.finalize.seal` asks of a process that has ended: it goes on."""

    unwritten = ""
    seconds = 0.0
    output = b""

    def __init__(self) -> None:
        self.left: list[str] = []


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
    from auditor.runs.finalize import seal
    from auditor.runs.plan import Plan

    text = catalogue.reports("text")
    select, ignore = json.loads(codes)
    recording = seal(Plan.from_json(plan), 0, _Ended())
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
                "us_per_step": each.lost_us_per_step,
            }
            for each in report.findings[:TOLD]
        ],
        "dropped": max(0, len(report.findings) - TOLD),
    }
