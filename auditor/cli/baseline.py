"""``--baseline`` and ``--update-baseline``: read before anything runs, written with the report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from auditor import amounts
from auditor.cli import console, parameter_types, write_results
from auditor.cli.main import UNTRAINED
from auditor.errors import AuditProblem
from auditor.judging import baseline
from auditor.model import Report


@dataclass(frozen=True)
class Asked:
    """A baseline to compare with; ``update``: to be written with what is found now."""

    known: baseline.Known
    update: bool = False

    def marked(self, report: Report) -> Report:
        """The report with its findings marked as new or unchanged."""
        return baseline.marked(report, self.known)

    def settle(self, report: Report) -> Report:
        """The report, its findings accepted where the baseline is to be written. Nothing is
        written of a run that ended early: it cannot say what is gone.

        Raises :class:`AuditProblem` where the file cannot be written.
        """
        if not self.update:
            return report
        path = Path(self.known.file)
        if report.run.outcome != "completed" or report.run.training in UNTRAINED:
            console.say(f"audit: {path} stays as it was: this run was not completed", err=True)
            return report
        accepted = baseline.updated(report, self.known)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_results.write_whole(path, baseline.written(accepted))
        except OSError as error:
            raise AuditProblem(
                f"--update-baseline: {path} cannot be written: {error.strerror}"
            ) from None
        console.say(f"audit: {path} holds {amounts.count(len(accepted), 'finding')} now", err=True)
        found = (replace(each, baseline_state="unchanged") for each in report.findings)
        return replace(report, findings=tuple(found))


def asked(file: str | None, *, update: bool) -> Asked | None:
    """None without ``--baseline``. Raises :class:`AuditProblem` for an unusable file."""
    if file is None:
        if update:
            raise AuditProblem(
                "--update-baseline does not say which file",
                "as in --baseline .audit-baseline.json --update-baseline",
            )
        return None
    if update:
        parameter_types.require_place("--baseline", Path(file))
    if update and not Path(file).exists():
        return Asked(baseline.Known(file), update)
    return Asked(baseline.read(file), update)
