"""``audit run`` and ``audit verify`` with ``--on HOST``: the step runs there, and is judged here."""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import click

from auditor.cli import analyze, console, launch, open_input, rule_selection, write_results
from auditor.cli import run as run_command
from auditor.cli.usage import EXIT_IMPOSSIBLE, EXIT_INTERRUPTED
from auditor.errors import AuditProblem
from auditor.evidence.table import Evidence
from auditor.extensions.remote import project
from auditor.extensions.remote.session import Host, Session, host_named
from auditor.extensions.verify import command as verify_command
from auditor.judging import catalogue, config
from auditor.model import Report
from auditor.recordings.folder import UnreadableRecording
from auditor.runs import target as targets

JUDGING = {
    *("select", "ignore", "allow_broken_rules", "quiet"),
    *("fail_on", "formats", "baseline", "update_baseline", "interactive_figures"),
}
"""Options of ``audit run`` for the judging, which is done here."""

VERIFYING = {"on", "on_python", "budget", "quiet"}
"""Options of ``audit run --verify`` that ``audit verify`` has, too."""

NOT_THERE = {
    *("on", "on_python", "out", "verify", "budget"),
    *("fail_on", "formats", "baseline", "update_baseline", "interactive_figures"),
}

OUT, RECORDING, REPORT = "out", "out/recording", "out/report.json"
"""The folder for results there, and what comes back of it, below the private folder."""

NAMED = 5
"""Files which are named at most of those that were not sent."""


def run(given: Sequence[str], **options: Any) -> int:
    """Record on ``--on``, judge here; returns the exit code. ``given`` is the command line as it
    was typed, ``options`` what it means.
    """
    host = host_named(options["on"])
    chosen = rule_selection.choose(
        options["select"], options["ignore"], allow_broken_rules=options["allow_broken_rules"]
    )
    chosen = chosen.against(options["baseline"], update=options["update_baseline"])
    chosen.with_figures(interactive=options["interactive_figures"])
    out = None if options["out"] is None else Path(options["out"])
    folder, ours = run_command.claim(out, _label(options["target"], as_module=options["module"]))
    try:
        with tempfile.TemporaryDirectory(prefix=".audit-", dir=folder) as scratch:
            words = _passed_on(click.get_current_context(), given)
            code, there = _called(host, options["on_python"], "run", words, into=Path(scratch))
            recording = Path(scratch) / RECORDING
            if recording.is_dir():
                project.move(recording, there, os.getcwd(), host.name)
                recording.rename(folder / "recording")
    except UnreadableRecording as error:
        raise AuditProblem(f"what {host.name} sent is damaged: {error}") from None
    finally:
        recorded = (folder / "recording").is_dir()
        if ours and not recorded:
            shutil.rmtree(folder, ignore_errors=True)
    if not recorded:
        return code or EXIT_IMPOSSIBLE
    judging = {name: options[name] for name in JUDGING}
    judged = analyze.analyze(paths=(str(folder),), out=str(folder), tensorboard=True, **judging)
    if code in (EXIT_IMPOSSIBLE, EXIT_INTERRUPTED):
        return code
    if options["verify"]:
        try:
            verify(str(folder), select=(), unsafe=False, **{key: options[key] for key in VERIFYING})
        except AuditProblem as problem:
            console.say(f"audit: the patches were not verified: {problem.message}", err=True)
    return judged


def verify(
    report: str,
    *,
    on: str,
    on_python: str,
    select: tuple[str, ...],
    unsafe: bool,
    budget: float,
    quiet: bool,
) -> int:
    """Run the target of a report again on ``on``, write what was measured into the report; returns
    the exit code.
    """
    host = host_named(on)
    judged, recording = verify_command.opened(report)
    folder = Path(report) if Path(report).is_dir() else Path(report).parent
    words = [f"--budget={budget}", f"--select={','.join(select)}"]
    words += [f"--{name}" for name, chosen in (("unsafe", unsafe), ("quiet", quiet)) if chosen]
    with tempfile.TemporaryDirectory(prefix="audit-") as name:
        scratch = Path(name)

        def pack(archive: tarfile.TarFile, there: str) -> None:
            shutil.copytree(recording.folder, scratch / "sent", symlinks=True)
            project.move(scratch / "sent", recording.cwd, there)
            project.add(archive, folder / open_input.REPORT, REPORT)
            project.add(archive, scratch / "sent", RECORDING)

        code, _ = _called(host, on_python, "verify", words, into=scratch, more=pack)
        if code:
            return code
        theirs = open_input.report_of(scratch / REPORT)
    if theirs.verification is None:
        return 0
    settings = config.load(Path.cwd(), catalogue.rules(), lenient=True)
    checked = write_results.shown_with(_with_results(judged, theirs, host), recording, settings)
    write_results.deliver(checked, Evidence(recording), folder, (), quiet=quiet, tensorboard=True)
    return 0


def _called(
    host: Host,
    python: str,
    command: str,
    words: Sequence[str],
    *,
    into: Path,
    more: Callable[[tarfile.TarFile, str], None] = lambda archive, there: None,
) -> tuple[int, str]:
    """The exit code of ``audit run`` or ``audit verify`` in a copy of the working directory, and the
    directory of that copy; the results are then below ``into``. ``more`` sends more than the
    project.
    """
    name, left_out = str(PurePosixPath("project", Path.cwd().name)), list[str]()
    out = f'{"--out " if command == "run" else ""}"$home/{OUT}"'
    line = " ".join([command, out, *(project.word_there(word, os.getcwd()) for word in words)])
    wanted = RECORDING if command == "run" else REPORT
    with Session(host, python, line, name, wanted) as session:
        there = f"{session.home()}/{name}"

        def pack(archive: tarfile.TarFile) -> None:
            left_out.extend(project.pack(archive, Path.cwd(), name))
            more(archive, there)

        session.send(pack)
        if left_out:
            named, others = ", ".join(left_out[:NAMED]), len(left_out) - NAMED
            more_words = f" and {others} more" if others > 0 else ""
            console.say(f"audit: not sent to {host.name}: {named}{more_words}", err=True)
        code = session.wait()
        session.receive(into)
    return code, there


def _label(target: str, *, as_module: bool) -> str:
    if launch.is_launcher(target):
        return os.path.basename(target)
    return targets.parse(f"-m {target}" if as_module else target).label


def _passed_on(context: click.Context, given: Sequence[str]) -> list[str]:
    """The command line without what is for this machine."""
    values, _, _ = context.command.make_parser(context).parse_args(list(given))
    words = []
    for option in context.command.params:
        if isinstance(option, click.Option) and option.name in values.keys() - NOT_THERE:
            value = values[option.name]
            words.append(option.opts[-1] if option.is_flag else f"{option.opts[-1]}={value}")
    return [*words, "--", context.params["target"], *context.params["args"]]


def _with_results(report: Report, theirs: Report, host: Host) -> Report:
    """The report with what was measured there, but no patch that was made there. Raises
    :class:`AuditProblem` for a report on something else.
    """
    mine, other = ([(each.code, each.site) for each in one.findings] for one in (report, theirs))
    if mine != other or theirs.verification is None:
        raise AuditProblem(f"{host.name} sent back another report")
    proposals = tuple(replace(each, diff="") for each in theirs.verification.proposals)
    return replace(
        report,
        findings=tuple(
            replace(finding, verified=there.verified)
            for finding, there in zip(report.findings, theirs.findings, strict=True)
        ),
        verification=replace(theirs.verification, proposals=proposals),
    )
