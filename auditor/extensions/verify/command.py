"""``audit verify``: run the target with each patch and without, in turn, and report it."""

import importlib.util
import os
import shlex
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from auditor import patch
from auditor.cli import console, open_input, progress_display, rejudged, write_results
from auditor.errors import AuditProblem
from auditor.evidence.table import Evidence
from auditor.extensions.verify.arms import Candidate, candidates, require_unchanged
from auditor.extensions.verify.experiment import Experiment
from auditor.extensions.verify.intervals import LEAST_PAIRS
from auditor.extensions.verify.trials import SLOW_SECONDS, Budget, Laboratory, files_read
from auditor.judging import catalogue, config
from auditor.model import Report
from auditor.recordings.folder import Recording
from auditor.runs import target as targets
from auditor.runs.plan import NULL_RUN, REHEARSAL


def require_own_program(recording: Recording) -> None:
    """Raise :class:`AuditProblem` if the target that a recording names is not a source of the
    user's, as it was recorded.

    Its arguments may still be a stranger's: they are shown before anything runs.
    """
    home = recording.folder.resolve().parent
    try:
        address = targets.parse(str(recording.manifest.get("target", "")))
        file = address.path or _file_of(address.module, recording.cwd)
        if Path(recording.cwd, file).resolve().is_relative_to(home):
            raise patch.Refused(f"{file} came with the report")
        whole = os.path.normpath(os.path.join(recording.cwd, file))
        beside = patch.leads_out(os.path.relpath(whole, recording.cwd))
        if beside and not patch.is_theirs(whole, recording.cwd):
            raise patch.Refused(
                f"{file} lies outside {recording.cwd} (PYTHONPATH={os.path.dirname(whole)} before "
                "the command says that it is yours)"
            )
        if not beside and recording.relative(whole) not in (
            recording.manifest.get("sources") or {}
        ):
            raise patch.Refused(f"{file} is not among the files that were recorded")
        patch.require_own_file(Path(recording.cwd), file, "set_keyword")
    except patch.Refused as reason:
        raise AuditProblem(
            f"what {recording.folder} would run is no source of this project: {reason}", AGAIN
        ) from None


def _file_of(module: str, cwd: str) -> str:
    """A module's source, found without imports. Raises :class:`patch.Refused` if installed."""
    inside = module.replace(".", "/")
    for name in (f"{inside}.py", f"{inside}/__main__.py", f"{inside}/__init__.py"):
        if Path(cwd, name).is_file():
            return name
    top = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    places = [spec.origin, *(spec.submodule_search_locations or ())] if spec is not None else []
    theirs = (
        str(each)
        for each in places
        if each and os.path.isabs(each) and patch.is_theirs(str(each), cwd)
    )
    found = next((each for each in theirs if each.endswith(".py")), None)
    if found is None:
        raise patch.Refused(f"the module {module} lies in no source tree of yours")
    return found


AGAIN = "audit run TARGET --verify measures the patches of a run of your own"


def run(*, report: str, select: tuple[str, ...], unsafe: bool, budget: float, quiet: bool) -> int:
    """Verify the patches of a report, rewrite its folder, print what came out. Exit code."""
    judged, recording = opened(report)
    path = Path(report)
    folder = path if path.is_dir() else path.parent
    settings = config.load(Path.cwd(), catalogue.rules(), lenient=True)
    if not quiet:
        words = shlex.join(
            [str(recording.manifest["target"]), *map(str, recording.manifest.get("argv", ()))]
        )
        _say(f"what runs, in copies of {recording.cwd}: {words}")
    evidence = Evidence(recording)
    checked = verified(judged, evidence, select=select, unsafe=unsafe, budget=budget, quiet=quiet)
    if checked is None:
        hint = "" if unsafe else " (--unsafe also tries patches that may change training results)"
        console.say(f"audit: nothing to verify: no selected finding has a patch{hint}", err=True)
        return 0
    checked = write_results.shown_with(checked, recording, settings)
    write_results.deliver(checked, evidence, folder, (), quiet=quiet, tensorboard=True)
    return 0


def opened(name: str) -> tuple[Report, Recording]:
    """A report whose patches can be tried here, and its recording. Raises :class:`AuditProblem`."""
    report = open_input.report_of(Path(name))
    recording = open_input.recording_of(Path(name))
    if recording is None:
        raise AuditProblem(
            f"{name}: the recording that says how to run the target again is not beside it"
        )
    # a report that was sent must not say where to run what
    if not recording.cwd or Path(recording.cwd).resolve() != Path.cwd().resolve():
        raise AuditProblem(
            f"this was recorded in {recording.cwd}, and only there it can be run again",
            f"cd {recording.cwd}",
        )
    require_own_program(recording)
    require_unchanged(recording)
    return rejudged.judged_again(report, recording), recording


def verified(
    report: Report,
    evidence: Evidence,
    *,
    select: Collection[str] = (),
    unsafe: bool = False,
    budget: float,
    quiet: bool,
) -> Report | None:
    """The report with what the re-runs measured; None if there is nothing to try.

    Raises :class:`AuditProblem` when the target cannot be run again as it was recorded.
    """
    recording = evidence.recording
    require_unchanged(recording)
    asked, notes = _asked(report, evidence, select, unsafe=unsafe)
    say = (lambda text: None) if quiet else _say
    if not asked:
        for note in notes:
            say(note)
        return None
    fewest, of = LEAST_PAIRS * (len(asked) + 2), f", of a budget of {budget:.0f} s" * (budget > 0)
    with (
        Laboratory(evidence, budget / fewest or SLOW_SECONDS) as laboratory,
        progress_display.working("verify", lambda: f"run {laboratory.runs}{of}", quiet=quiet),
    ):
        found, verification = Experiment(laboratory, recording, Budget(budget), say).run(asked)
    return replace(
        report,
        findings=tuple(
            replace(finding, verified=found.get(number, finding.verified))
            for number, finding in enumerate(report.findings)
        ),
        verification=replace(verification, notes=(*verification.notes, *notes)),
    )


def _asked(
    report: Report, evidence: Evidence, select: Collection[str], *, unsafe: bool
) -> tuple[tuple[Candidate, ...], tuple[str, ...]]:
    """The patches to try, and sentences on those that cannot be."""
    found = candidates(report, evidence.recording, select, unsafe=unsafe)
    runs = (evidence, evidence.inside(REHEARSAL), evidence.inside(NULL_RUN))
    read = frozenset[str]().union(*(files_read(run.recording) for run in runs if run is not None))
    notes = (
        f"{each.name}: not tried; the target reads no {', '.join(sorted(each.paths - read))}"
        for each in found
        if not each.paths <= read
    )
    return tuple(each for each in found if each.paths <= read), tuple(notes)


def _say(text: str) -> None:
    console.say(f"verify: {text}", err=True)
