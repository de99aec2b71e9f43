"""``audit analyze``: judge a recording that is already there."""

import gc
import importlib.util
from pathlib import Path

from auditor.cli import console, out_folder, progress_display, rule_selection, write_results
from auditor.cli.open_input import ranked_recording_of, recording_of, require_exists
from auditor.cli.usage import EXIT_INTERRUPTED, Ending
from auditor.errors import AuditProblem
from auditor.evidence.snapshot.file import snapshot_of
from auditor.evidence.table import Evidence
from auditor.evidence.trace.facts import timeline_of
from auditor.recordings.folder import MANIFEST, Recording
from auditor.recordings.standalone import NAMES as PICKLES
from auditor.recordings.standalone import (
    RankedTraces,
    SnapshotRecording,
    TraceRecording,
    is_pickle,
    snapshot_files,
)
from auditor.rule import NotLooked
from auditor.runs.rank_recordings import RankedRecording


def analyze(
    *,
    paths: tuple[str, ...],
    out: str | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: str | None,
    allow_broken_rules: bool = False,
    formats: tuple[tuple[str, str], ...],
    baseline: str | None = None,
    update_baseline: bool = False,
    interactive_figures: bool = False,
    tensorboard: bool = False,
    quiet: bool,
) -> int:
    """Judge each recording; returns the worst exit code. A folder of traces is one job."""
    if out is not None and len(paths) > 1:
        raise AuditProblem(
            "--out takes one folder, and there are several paths to analyze",
            "analyze them one by one",
        )
    if update_baseline and len(paths) > 1:
        raise AuditProblem(
            "--update-baseline takes the findings of one path, and there are several",
            "analyze them one by one",
        )
    choice = rule_selection.choose(select, ignore, allow_broken_rules=allow_broken_rules)
    choice = choice.against(baseline, update=update_baseline)
    choice = choice.with_figures(interactive=interactive_figures)
    gc.set_threshold(100_000)  # rows are trees: looking for cycles is a tenth of the time
    codes, ending = [], Ending()
    for path in paths:
        with progress_display.working(f"reading {Path(path).name or path}", quiet=quiet):
            evidence = _open(Path(path))
            folder = Path(out) if out else _home(evidence.recording)
            out_folder.refuse_others_files(folder)
            with ending.after_the_report():
                report = choice.judged(evidence, ending.is_asked)
        with ending.after_the_report():
            write_results.deliver(
                report, evidence, folder, formats, quiet=quiet, tensorboard=tensorboard
            )
        if tensorboard and not quiet and importlib.util.find_spec("tensorboard") is None:
            console.say(
                f"audit: {folder}/tensorboard holds no scalars: tensorboard is not installed (pip "
                "install 'torch-step-audit[all]')",
                err=True,
            )
        if ending.asked:
            return EXIT_INTERRUPTED
        codes.append(choice.ended(report, fail_on))
    return max(codes)


def _open(path: Path) -> Evidence:
    if path.is_file():
        _require_recorded(path)
    require_exists(path, GIVE)
    if path.is_file():
        if is_pickle(path):
            return _open_snapshot(path)
        return _open_trace(path)
    recording = recording_of(path)
    if recording is not None:
        if recording.manifest.get("outcome") == "not run":
            raise AuditProblem(f"{recording.folder} recorded no step: its target could not be run")
        return Evidence(recording)
    ranked = ranked_recording_of(path)
    return Evidence(ranked) if ranked is not None else _open_folder(path)


def _open_folder(folder: Path) -> Evidence:
    """The traces of all ranks, or one memory snapshot."""
    snapshots = snapshot_files(folder)
    try:
        ranks = _open_ranks(folder)
    except AuditProblem:
        if not snapshots:
            raise
        return _open_snapshot(_only(snapshots, folder))
    for path in snapshots:
        ranks.manifest["warnings"].append(
            f"{path.name} beside the traces was not looked at: give its own path to judge it"
        )
    return Evidence(ranks)


def _only(snapshots: list[Path], folder: Path) -> Path:
    """Raises :class:`AuditProblem` for several: unlike traces, snapshots tell nothing of others."""
    if len(snapshots) > 1:
        shown = ", ".join(path.name for path in snapshots[:3]) + (
            ", ..." if len(snapshots) > 3 else ""
        )
        both = " ".join(str(path) for path in snapshots[:2]) + (
            " ..." if len(snapshots) > 2 else ""
        )
        raise AuditProblem(
            f"{folder} holds {len(snapshots)} memory snapshots ({shown}): each has a report of its "
            "own",
            f"audit analyze {both}",
        )
    return snapshots[0]


def _open_ranks(folder: Path) -> Recording:
    from auditor.timeline import fleet, trace_files

    try:
        files = trace_files(folder)
    except AuditProblem:
        raise AuditProblem(
            f"{folder} holds no recording ({MANIFEST} is missing), no trace and no memory snapshot",
            GIVE,
        ) from None
    return RankedTraces(folder, fleet(files))


GIVE = (
    "give the folder that audit run wrote, a trace of torch.profiler, a memory snapshot, or a "
    "folder with all ranks' traces"
)


def _require_recorded(path: Path) -> None:
    """Raises :class:`AuditProblem` for a file whose name is not that of a recording."""
    if path.name in ("report.json", "report.html"):
        raise AuditProblem(
            f"{path} is a report, not a recording",
            f"give its folder, which holds one: audit analyze {path.parent}",
        )
    if path.suffix == ".py":
        raise AuditProblem(f"{path} is a program, not a recording", f"audit run {path} runs it")
    if path.suffix in (".pt", ".pth", ".ckpt", ".safetensors"):
        raise AuditProblem(
            f"{path} looks like a checkpoint, not like a recording", f"audit checkpoint {path}"
        )


def _open_snapshot(path: Path) -> Evidence:
    evidence = Evidence(SnapshotRecording(path))
    try:
        snapshot_of(evidence)
    except NotLooked as problem:
        raise AuditProblem(str(problem)) from None
    return evidence


def _open_trace(path: Path) -> Evidence:
    evidence = Evidence(TraceRecording(path))
    try:
        timeline_of(evidence)
    except NotLooked as problem:
        named = path.name.endswith(PICKLES)
        what = f"{path} is not a pickle, although its name says so" if named else str(problem)
        raise AuditProblem(what, GIVE) from None
    return evidence


def _home(recording: Recording) -> Path:
    """``audits/x`` for ``audits/x/recording``: results stand beside the recording, never inside."""
    if isinstance(recording, RankedTraces):
        return Path("audits") / recording.home.resolve().name
    if isinstance(recording, TraceRecording) and recording.trace is not None:
        name = recording.trace.name.removesuffix(".gz").removesuffix(".json")
        return Path("audits") / name
    if isinstance(recording, SnapshotRecording):
        return Path("audits") / recording.name
    folder = recording.home if isinstance(recording, RankedRecording) else recording.folder
    return (
        folder.parent if folder.name == "recording" else folder.with_name(folder.name + "-report")
    )
