"""``audit checkpoint``: scan saved checkpoints, judge them, name the latest good one."""

from pathlib import Path

from auditor import amounts
from auditor.cli import console, out_folder, rule_selection, write_results
from auditor.cli.usage import EXIT_FOUND, EXIT_IMPOSSIBLE
from auditor.errors import AuditProblem
from auditor.evidence.checkpoints import Checkpoints
from auditor.evidence.scans import Scan, Setting
from auditor.evidence.table import Evidence
from auditor.extensions.checkpoints import settings
from auditor.extensions.checkpoints.files import checkpoints_in, passed_over, scans_of
from auditor.extensions.checkpoints.reading import NotACheckpoint
from auditor.judging import catalogue, engine
from auditor.model import Report
from auditor.recordings.standalone import StandaloneRecording
from auditor.rule import Rule

# -- recording -------------------------------------------------------------------------------------
# Checkpoints in the place of a recording: what ``audit checkpoint`` judges.


class CheckpointRecording(StandaloneRecording):
    """Scanned checkpoints and the settings to compare them with."""

    def __init__(self, scans: tuple[Scan, ...], settings: tuple[Setting, ...] = ()) -> None:
        names = [Path(scan.path).name for scan in scans]
        target = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        limits = tuple(
            f"{Path(scan.path).name}: {sentence}"
            for scan in scans
            for sentence in (*scan.limits, *scan.aside)
        )
        super().__init__(Path(scans[0].path).parent, target, "checkpoint", limits)
        self.scans, self.settings = scans, settings


# -- command ---------------------------------------------------------------------------------------

NAMED = 10
"""Names of files that are not read; the rest are counted."""


def checkpoint(
    *,
    files: tuple[str, ...],
    config: str | None,
    as_json: bool,
    out: str | None,
    allow_broken_rules: bool = False,
) -> int:
    """Scan and judge; returns the exit code."""
    choice = rule_selection.choose((), (), allow_broken_rules=allow_broken_rules, any_family=True)
    if out is not None:
        out_folder.refuse_others_files(Path(out))
    scans, unread = _scanned(files)
    for sentence in unread:
        console.say(f"audit: {sentence}", err=True)
    if not scans:
        raise AuditProblem(
            "no checkpoint was read", "give files of torch.save or safetensors, or a folder of them"
        )
    evidence = Evidence(CheckpointRecording(scans, settings.read(Path(config)) if config else ()))
    rules = tuple(filter(asks_for_checkpoints, choice.rules))
    report = write_results.judge(evidence, rules, choice.settings, choice.broken)
    if as_json:
        console.hand_over(catalogue.renderer("json").render(report), form="json")
    else:
        _show(evidence, report)
    if out is not None:
        path = write_results.write(report, evidence, Path(out), ())
        console.say(str(path), err=as_json)
    code = choice.ended(report, "error")
    if not code and not all(each.good for each in evidence.get(Checkpoints).each):
        code = EXIT_FOUND
    return EXIT_IMPOSSIBLE if unread else code


def _scanned(files: tuple[str, ...]) -> tuple[tuple[Scan, ...], list[str]]:
    paths: list[Path] = []
    unread = []
    for file in files:
        found = checkpoints_in(Path(file))
        paths += found
        if Path(file).is_dir() and not found:
            unread.append(f"{file} holds no checkpoint")
        over = passed_over(Path(file))
        if over:
            console.say(f"note: not read in {file}: {amounts.some(over, NAMED)}", err=True)
    scans = []
    for path, scan in zip(paths, scans_of(paths), strict=True):
        if isinstance(scan, NotACheckpoint):
            unread.append(f"{path}: {scan}")
        else:
            scans.append(scan)
    return tuple(scans), unread


def asks_for_checkpoints(rule: type[Rule]) -> bool:
    """True if checkpoints can answer the rule, by themselves or among other things."""
    question = "detect" if rule.in_checkpoint is None else "in_checkpoint"
    try:
        return Checkpoints in engine.evidence_of(rule, question).values()
    except Exception:  # a rule that is broken: it is asked, and fails
        return True


# -- what is shown ---------------------------------------------------------------------------------


def _show(evidence: Evidence, report: Report) -> None:
    found = evidence.get(Checkpoints)
    width, room = (
        max(len(getattr(each, what)) for each in found.each) for what in ("name", "verdict")
    )
    for each in found.each:
        console.say(f"{each.name:{width}}  {each.verdict:{room}}  {each.said}")
    console.say("")
    for finding in report.findings:
        severity = finding.severity.value if finding.severity is not None else ""
        console.say(f"{severity:8}{finding.code:9}{finding.message}")
        if finding.remedy is not None:
            console.say(f"{'':17}{finding.remedy.text}")
    for warning in report.warnings:
        console.say(f"note: {warning}")
    good = found.latest_good
    if len(found.each) > 1:
        console.say("")
        console.say(
            f"latest good: {good.scan.path}" if good is not None else "no checkpoint is good"
        )
