"""Judging a recording and writing what a run leaves: report.json, report.html, fixes.patch ..."""

import contextlib
import functools
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from auditor.cli import console, out_folder, tensorboard_files
from auditor.errors import AuditProblem
from auditor.evidence.table import Evidence
from auditor.judging import build_report, catalogue, engine
from auditor.judging.config import Settings
from auditor.machine import uncollected
from auditor.model import Finding, Report, Site, editors
from auditor.patch import plan as plan_patches
from auditor.recordings.folder import Recording
from auditor.rule import Rule


def judge(
    evidence: Evidence,
    rules: tuple[type[Rule], ...],
    settings: Settings,
    broken: Iterable[str] = (),
    stop: Callable[[], bool] = lambda: False,
) -> Report:
    """The report on a recording, without its charts; ``broken`` are sentences on rule packs that
    were left out. No further rule is asked when ``stop`` becomes true.
    """
    below = settings.note_below
    with uncollected():  # rows and syntax are millions of objects, alive until the report is
        judgement = engine.judge(
            evidence,
            rules,
            knobs=settings.knobs,
            per_file_ignores=settings.per_file_ignores,
            stop=stop,
        )
        report = build_report.report(evidence, judgement, rules, broken, note_below=below)
    return shown_with(report, evidence.recording, settings)


def shown_with(report: Report, recording: Recording, settings: Settings) -> Report:
    """The report with what its page is to have on this machine: links into an editor, plotly."""
    sites = (finding.site for finding in report.findings)
    opened = links(recording, sites, settings.editor)
    return replace(report, editor_links=opened, interactive_figures=settings.interactive_figures)


def write(
    report: Report,
    evidence: Evidence,
    out: Path,
    formats: Iterable[tuple[str, str]],
    *,
    tensorboard: bool = False,
) -> Path:
    """Write all files; returns the path of report.html. Raises :class:`AuditProblem` if they
    cannot be written.

    ``tensorboard`` adds the folder of that name: it holds a copy of the trace, which takes longer
    than judging it.
    """
    _write_report(report, evidence.recording, out)
    for name, file in formats:
        if file:
            _write_elsewhere(Path(file), catalogue.renderer(name).render(report))
    if tensorboard:
        tensorboard_files.write(report, evidence, out / "tensorboard")
    return out / "report.html"


def _write_report(report: Report, recording: Recording, out: Path) -> None:
    """The report and its patches. Raises :class:`AuditProblem` if they cannot be written."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        report = replace(report, folder=out.resolve().name)
        for name, file in (("json", "report.json"), ("html", "report.html")):
            write_whole(out / file, catalogue.renderer(name).render(report))
        _write_patch(report, recording, out / "fixes.patch")
    except OSError as error:  # a full disk, a quota; what was written before is whole
        raise AuditProblem(
            f"the report cannot be written to {out}: {error.strerror}",
            f"make room, then: audit analyze {recording.folder}",
        ) from None


def _write_elsewhere(path: Path, content: str | bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(_encoded(content))  # it may be a device, or a link that the user made
    except OSError as error:
        raise AuditProblem(f"--format: {path} cannot be written: {error.strerror}") from None


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file of a run's folder, all of it or nothing; a link in its place is replaced, never
    written through.

    The folder may be a stranger's, and the file may be a report that took an hour to make. Raises
    ``OSError``.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    fresh = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_encoded(content))
            os.fchmod(handle, 0o666 & ~_umask())  # mkstemp's are for the user alone
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


@functools.cache
def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _encoded(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode("utf-8", "replace")


def _write_patch(report: Report, recording: Recording, path: Path) -> None:
    path.unlink(missing_ok=True)
    shown = (f for f in report.findings if f.remedy is not None and f.remedy.diff is not None)
    safe = (f.remedy for f in shown if f.remedy is not None and f.remedy.safe and not is_broken(f))
    edits = [edit for remedy in safe for edit in remedy.edits]
    diff = plan_patches(edits, recording.source_bytes, cwd=recording.cwd).diff if edits else b""
    if diff:
        write_whole(path, diff)


def is_broken(finding: Finding) -> bool:
    """A re-run showed that the finding's patch changes results or makes the target fail."""
    return finding.verified is not None and finding.verified.status == "broken"


def deliver(
    report: Report,
    evidence: Evidence,
    out: Path,
    formats: Iterable[tuple[str, str]],
    *,
    quiet: bool,
    tensorboard: bool = False,
) -> None:
    """Print the table of findings, write all files, draw, write them again with the charts, and
    print the report's path.

    With ``quiet`` only the path is printed. The findings are on disk before anything is said, for a
    terminal may be gone or stopped; the table is printed even where no file can be written, and
    charts, which take as long as the judging, come last. Formats without a file are printed to
    stdout alone, for other programs to read; the table and the path then go to stderr.
    """
    formats = tuple(formats)
    asked = [name for name, file in formats if not file and name != "terminal"]
    with contextlib.suppress(OSError):  # said below, after the table
        out.mkdir(parents=True, exist_ok=True)
        write_whole(out / "report.json", catalogue.renderer("json").render(report))
        out_folder.point_last(out)
    if not quiet:
        show(report, err=bool(asked))
    whole = report
    try:
        # first: whatever becomes of the charts, the report is there
        _write_report(report, evidence.recording, out)
        whole = build_report.drawn(report, evidence)
        for sentence in whole.warnings[len(report.warnings) :]:
            console.say(f"audit: {sentence}", err=True)
        path = write(whole, evidence, out, formats, tensorboard=tensorboard)
    finally:  # where no file can be written, at least what was asked for on stdout is there
        for name in asked:
            rendered = catalogue.renderer(name).render(whole)
            console.hand_over(rendered, form=name)
    if not quiet:
        err = bool(asked)
        for command in catalogue.reports("next_steps").commands(whole):
            console.say(f"{command.line(shlex.quote(str(out)))}  # {command.does}", err=err)
    console.say(str(path), err=bool(asked))


def show(report: Report, *, err: bool) -> None:
    """Print the table of findings."""
    stream = sys.stderr if err else sys.stdout
    console.styled(
        catalogue.reports("terminal").Terminal.for_stream(stream).render(report), err=err
    )


# -- links to the editor ---------------------------------------------------------------------------


def links(recording: Recording, sites: Iterable[Site | None], template: str) -> dict[str, str]:
    """By ``file:line``; none where ``template`` is empty."""
    found: dict[str, str] = {}
    local: dict[str, Path | None] = {}
    for site in sites if template else ():
        if site is None:
            continue
        if site.file not in local:
            local[site.file] = _local(recording, site.file)
        path = local[site.file]
        if path is not None:
            found[str(site)] = editors.link(template, path.as_posix(), site.line)
    return found


def _local(recording: Recording, file: str) -> Path | None:
    """Where a recorded file lies here; None if it does not, or holds something else by now."""
    recorded = recording.original_bytes(file)
    if recorded is None or not recording.cwd:
        return None
    try:
        path = (Path(recording.cwd) / file).absolute()
        same = path.is_file() and path.stat().st_size == len(recorded)
        return path if same and path.read_bytes() == recorded else None
    except (OSError, ValueError):
        return None
