"""Which rules a command asks, with which settings, and how it ends: for all that judge."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from auditor import amounts
from auditor.cli import console, parameter_types, write_results
from auditor.cli.usage import EXIT_FOUND, EXIT_IMPOSSIBLE, EXIT_INTERRUPTED, EXIT_TARGET
from auditor.errors import AuditProblem
from auditor.evidence.table import Evidence
from auditor.judging import baseline, catalogue, config
from auditor.model import Report, Severity
from auditor.rule import Rule

UNTRAINED = ("nothing", "forward", "evaluated")
"""What ``run.training`` says of a target that trained nothing: its report answers nothing."""


@dataclass(frozen=True)
class BaselineRequest:
    """A baseline to compare with; ``update``: to be written with what is found now."""

    known: baseline.Known
    update: bool = False

    def marked(self, report: Report) -> Report:
        """The report with its findings marked as new or unchanged."""
        return baseline.marked(report, self.known)

    def settle(self, report: Report) -> Report:
        """The report, its findings accepted where the baseline is to be written. Nothing is
        written of a run that ended early: it cannot say what is gone.

        Raises :class:`AuditProblem` if the file cannot be written.
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


@dataclass(frozen=True)
class Choice:
    """The rules, the settings, and what rule packs were left out (``--allow-broken-rules``)."""

    rules: tuple[type[Rule], ...]
    settings: config.Settings
    broken: tuple[str, ...] = ()
    allow_broken_rules: bool = False
    baseline: BaselineRequest | None = None

    def against(self, file: str | None, *, update: bool) -> Choice:
        """With the baseline in ``file``, if one is named, which is read before anything runs.

        Raises :class:`AuditProblem` for one that cannot be used.
        """
        if file is None:
            if update:
                raise AuditProblem(
                    "--update-baseline does not say which file",
                    "as in --baseline .audit-baseline.json --update-baseline",
                )
            return self
        if update:
            parameter_types.require_place("--baseline", Path(file))
        new = update and not Path(file).exists()
        known = baseline.Known(file) if new else baseline.read(file)
        return replace(self, baseline=BaselineRequest(known, update))

    def with_figures(self, *, interactive: bool) -> Choice:
        """With plotly in the page, if asked for. Raises ``AuditProblem`` if it is not installed."""
        if not interactive:
            return self
        if importlib.util.find_spec("plotly") is None:
            raise AuditProblem(
                "--interactive-figures needs plotly, which is not installed",
                "pip install 'torch-step-audit[all]'",
            )
        return replace(self, settings=replace(self.settings, interactive_figures=True))

    def judged(self, evidence: Evidence, stop: Callable[[], bool] = lambda: False) -> Report:
        """The report, without charts, with the baseline's marks. Asks no rule after ``stop``."""
        report = write_results.judge(evidence, self.rules, self.settings, self.broken, stop)
        return report if self.baseline is None else self.baseline.marked(report)

    def ended(self, report: Report, fail_on: str | None) -> int:
        """The exit code for a report, with its reason on stderr where no finding explains it.

        Writes the baseline where that is asked for.
        """
        if self.baseline is not None:
            report = self.baseline.settle(report)
        code = exit_code(
            report, fail_on or self.settings.fail_on, allow_broken_rules=self.allow_broken_rules
        )
        failed = [each.code for each in report.verdicts if each.status == "failed"]
        if code == EXIT_IMPOSSIBLE and failed and not self.allow_broken_rules:
            console.say(f"audit: exit code 2, since rules broke: {', '.join(failed)}", err=True)
            console.say(
                "       the report says why; --allow-broken-rules goes on without them", err=True
            )
        elif code == EXIT_IMPOSSIBLE and report.caveats:
            console.say(f"audit: exit code 2, since {report.caveats[0]}", err=True)
        return code


def choose(
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    *,
    allow_broken_rules: bool = False,
    any_family: bool = False,
) -> Choice:
    """Rules by the command line and ``pyproject.toml``, whose ``select`` is passed over with
    ``any_family``.

    Raises :class:`auditor.errors.AuditProblem` for a setting or a code that is not known, and for a
    rule pack that cannot be imported (unless ``allow_broken_rules``).
    """
    broken: list[str] | None = [] if allow_broken_rules else None
    settings = config.load(Path.cwd(), catalogue.rules(broken), lenient=bool(broken))
    broken = [] if allow_broken_rules else None  # once more: choosing asks the catalogue itself
    selected = select or (() if any_family else settings.select)
    words = (word.strip().upper() for word in (*select, *ignore))
    for code in catalogue.that_left((*words, *settings.left)):
        console.say(f"audit: {catalogue.instead_of(code)}", err=True)
    chosen = catalogue.choose(selected, (*ignore, *settings.ignore), broken)
    return Choice(chosen, settings, tuple(broken or ()), allow_broken_rules)


def exit_code(report: Report, fail_on: str, *, allow_broken_rules: bool = False) -> int:
    """The exit code for a report, as README.md lists them.

    What keeps a report from being an answer comes before what it found: a broken rule, or a target
    that trained nothing.
    """
    if report.run.outcome == "interrupted":
        return EXIT_INTERRUPTED
    if report.run.outcome != "completed":
        return EXIT_TARGET
    broken = not allow_broken_rules and any(
        verdict.status == "failed" for verdict in report.verdicts
    )
    untrained = report.run.training in UNTRAINED
    if broken or untrained:
        return EXIT_IMPOSSIBLE
    worst = report.worst()
    if fail_on != "never" and worst is not None and worst.rank <= Severity(fail_on).rank:
        return EXIT_FOUND
    return 0
