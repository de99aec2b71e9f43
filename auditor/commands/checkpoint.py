"""``audit checkpoint``: scan saved checkpoints, judge them, name the latest good one."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import click

from auditor import catalogue, engine
from auditor.checkpoints import settings
from auditor.checkpoints.contents import NotACheckpoint, Scan
from auditor.checkpoints.recording import CheckpointRecording
from auditor.checkpoints.scan import checkpoints_in, scan_apart
from auditor.cli import EXIT_IMPOSSIBLE
from auditor.commands import choosing, out_folder, results
from auditor.errors import AuditProblem
from auditor.evidence import Checkpoint, Checkpoints
from auditor.model import Report
from auditor.rule import Rule


def checkpoint(
    *,
    files: tuple[str, ...],
    config: str | None,
    as_json: bool,
    out: str | None,
    allow_broken_rules: bool = False,
    debug: bool,
) -> int:
    """Scan and judge; returns the exit code."""
    choice = choosing.choose((), (), allow_broken_rules=allow_broken_rules, any_family=True)
    if out is not None:
        out_folder.refuse_others_files(Path(out))
    scans, unread = _scanned(files)
    for sentence in unread:
        click.echo(f"audit: {sentence}", err=True)
    if not scans:
        raise AuditProblem("no checkpoint was read", "give files of torch.save or safetensors, or a folder of them")
    recording = CheckpointRecording(scans, settings.read(Path(config)) if config else ())
    report = results.judge(recording, rules_for_checkpoints(choice.rules), choice.settings, choice.broken)
    if as_json:
        click.echo(catalogue.renderer("json").render(report))
    else:
        _show(recording, report)
    if out is not None:
        path = results.write(report, recording, Path(out), ())
        click.echo(str(path), err=as_json)
    code = choice.ended(report, "error")
    return EXIT_IMPOSSIBLE if unread else code


def _scanned(files: tuple[str, ...]) -> tuple[tuple[Scan, ...], list[str]]:
    scans, unread = [], []
    for file in files:
        paths: Iterable[Path] = checkpoints_in(Path(file))
        if Path(file).is_dir() and not paths:
            unread.append(f"{file} holds no checkpoint")
        for path in paths:
            try:
                scans.append(scan_apart(path))
            except NotACheckpoint as problem:
                unread.append(f"{path}: {problem}")
    return tuple(scans), unread


def rules_for_checkpoints(rules: tuple[type[Rule], ...]) -> tuple[type[Rule], ...]:
    """Those that checkpoints answer."""
    return tuple(rule for rule in rules if asks_for_checkpoints(rule))


def asks_for_checkpoints(rule: type[Rule]) -> bool:
    """True if checkpoints can answer the rule, by themselves or among other things."""
    question = "detect" if rule.in_checkpoint is None else "in_checkpoint"
    try:
        return Checkpoints in engine.evidence_of(rule, question).values()
    except Exception:  # a rule that is broken: it is asked, and fails
        return True


# -- what is shown -----------------------------------------------------------------------------------------------------


def _show(recording: CheckpointRecording, report: Report) -> None:
    found = Checkpoints.build(recording)
    width = max(len(each.name) for each in found.each)
    for each in found.each:
        click.echo(f"{each.name:{width}}  {'good' if each.good else 'BAD ':4}  {_described(each)}")
    click.echo("")
    for finding in report.findings:
        severity = finding.severity.value if finding.severity is not None else ""
        click.echo(f"{severity:8}{finding.code:9}{finding.message}")
        if finding.remedy is not None:
            click.echo(f"{'':17}{finding.remedy.text}")
    for warning in report.warnings:
        click.echo(f"note: {warning}")
    good = found.latest_good
    if len(found.each) > 1:
        click.echo(f"\nlatest good: {good.scan.path}" if good is not None else "\nnone of them is good")
    sys.stdout.flush()


def _described(checkpoint: Checkpoint) -> str:
    scan = checkpoint.scan
    where = f"step {checkpoint.steps}" if checkpoint.steps is not None else ""
    parts = [f"{scan.format}", _size(scan.size), f"{len(scan.tensors)} tensors", where]
    has = (("optimizer", scan.optimizers), ("scheduler", scan.schedulers), ("scaler", scan.scaler), ("rng", scan.rng))
    return ", ".join([*(part for part in parts if part), *(name for name, there in has if there)])


def _size(size: int) -> str:
    amount = float(size)
    for unit in ("B", "KB", "MB"):
        if amount < 1000:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} GB"
