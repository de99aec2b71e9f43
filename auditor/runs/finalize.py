"""Sealing a recording from outside, however it ended: outcome, sources, the target's last words."""

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from auditor import redaction
from auditor.errors import AuditProblem, TargetProblem, signal_told
from auditor.recordings.folder import Recording, Row, read_manifest, write_manifest
from auditor.recordings.schema.data import LoaderRow
from auditor.recordings.schema.graph import GraphRow
from auditor.recordings.schema.run import CompileRow, SiteRow, StepRow
from auditor.recordings.schema.sync import GrowingRow, KeptRow, WorkerKeptRow, WorkerPagesRow
from auditor.recordings.writer import SOURCES, has_content, masked_lines, store_sources
from auditor.runs.plan import BESIDE, Plan
from auditor.syntax.config_files import worth_keeping

FOLLOWED = "alone"
"""How a process ended that was stopped because another rank had failed."""


class Known:
    """What is known of a recording process: here of one that goes on, and records its own steps."""

    unwritten = ""

    @property
    def seconds(self) -> float:
        """How long ago it was started."""
        return 0.0

    @property
    def output(self) -> bytes:
        """The last part of what the target printed."""
        return b""


def seal(plan: Plan, ended: str | int, child: Known) -> Recording:
    """Complete the manifest from outside, keep sources and output; it tells of a full disk."""
    folder = Path(plan.folder)
    try:
        manifest = read_manifest(folder)
    except Exception as error:
        if ended == "interrupted":
            raise KeyboardInterrupt from None
        if child.unwritten:
            raise AuditProblem(child.unwritten, MAKE_ROOM) from None
        raise AuditProblem(
            f"the recording process ended before it began (exit code {ended})",
            "",
            child.output.decode("utf-8", "replace"),
        ) from error
    problem = manifest.get("error") or {}
    if manifest["outcome"] == "not run":
        told = (problem["problem"], problem.get("hint", ""), problem.get("detail", ""))
        not_run = TargetProblem(*told)
        not_run.raised = problem.get("raised", False)
        raise not_run
    manifest["passes"] = _passes(folder)
    _settle_outcome(manifest, ended, plan)
    if ended == "timeout":
        manifest["error"]["message"] += compiled_for(Recording(folder), child.seconds)
    if child.unwritten:
        _settle_unwritten(manifest, child.unwritten)
    try:
        _keep(plan, manifest, child)
    except OSError as error:
        _settle_unwritten(manifest, f"{folder} cannot be written: {error.strerror}")
    return Recording(folder, manifest)


def as_it_stands(folder: Path, to: Path) -> Recording:
    """A copy of a recording under way, its snapshots left out, as if the run had completed with the
    steps that it has. Raises :class:`UnreadableRecording` and ``OSError``.
    """
    shutil.copytree(folder, to, ignore=shutil.ignore_patterns("*.pickle*", BESIDE))
    manifest = read_manifest(to)
    passes = _passes(to)
    sources = store_sources(to, manifest["cwd"], iter(files_of(to, manifest)))
    return Recording(to, {**manifest, "outcome": "completed", "passes": passes, "sources": sources})


def _passes(folder: Path) -> list[Row]:
    return [{"name": name, "steps": steps} for name, steps in counted(folder).items()]


MAKE_ROOM = "make room, or choose another --out"


def _settle_unwritten(manifest: Row, sentence: str) -> None:
    """The disk took no more: the run was cut off by us, not by the target."""
    manifest["unwritten"] = sentence
    left = (manifest.get("error") or {}).get(
        "type"
    ) == "os._exit"  # how it ended could not be written down
    if manifest["outcome"] in ("completed", "killed") or left:
        manifest["outcome"] = "interrupted"
        manifest["error"] = {
            **(manifest.get("error") or {}),
            "type": "OSError",
            "message": sentence,
            "traceback": "",
        }


def _keep(plan: Plan, manifest: Row, child: Known) -> None:
    """Store what the parent adds. Raises ``OSError``."""
    folder = Path(plan.folder)
    _, names, secrets = redaction.redacted_arguments(plan.args)
    output = redaction.redacted_text(
        _spelled(plan, child.output.decode("utf-8", "surrogateescape")), secrets
    )
    # what a program says as it fails often holds the address or the token that did not work
    error = manifest.get("error")
    for field in ("message", "traceback"):
        if error and isinstance(error.get(field), str):
            error[field] = redaction.redacted_text(error[field], secrets)
    manifest["configs"], manifest["withheld"] = worth_keeping(
        manifest.get("configs") or (), manifest["cwd"]
    )
    ran = str if plan.copied is None else plan.copied.moved
    files = [*files_of(folder, manifest, ran), *manifest["configs"]]
    manifest.update(
        sources={}, masked=masked_lines(manifest["cwd"], files, ran), masked_arguments=list(names)
    )
    with suppress(OSError):
        (folder / STACKS_FILE).unlink(missing_ok=True)
    manifest["sources"] = store_sources(folder, manifest["cwd"], iter(files), ran)
    (folder / "output.txt").write_bytes(output.encode("utf-8", "surrogateescape"))
    write_manifest(folder, manifest)


def _spelled(plan: Plan, text: str) -> str:
    return text if plan.copied is None else plan.copied.spelled(text)


STACKS_FILE = "stacks.txt"


def _settle_outcome(manifest: Row, ended: str | int, plan: Plan) -> None:
    if isinstance(ended, str):  # timeout, interrupted, or another rank failed
        # Ctrl-C as a whole run winds up still ends the audit: no further run follows it
        over = ("oom", "raised", *(("completed",) if ended == FOLLOWED else ()))
        if ended == "timeout" or not (manifest.get("finished") and manifest["outcome"] in over):
            manifest["outcome"] = "killed" if ended == FOLLOWED else ended
        if ended == "timeout":
            manifest["error"] = _error(
                "Timeout",
                "the target did not finish in the time given",
                manifest,
                _where_it_hung(plan),
            )
        elif ended == "interrupted" and not manifest.get("finished"):
            manifest["error"] = _error(
                "KeyboardInterrupt", "it did not stop when asked to", manifest, _where_it_hung(plan)
            )
        elif manifest["outcome"] == "killed":
            manifest["error"] = _error(
                FOLLOWED,
                "it was ended because another rank had failed, or was done, before it",
                manifest,
            )
        return
    if manifest.get("finished") or (
        manifest["outcome"] in ("raised", "oom") and manifest.get("error")
    ):
        return  # the second: it raised, and the process ended while that was written down
    if ended < 0:
        name = signal_told(-ended).partition(" ")[0]
        manifest["outcome"] = "killed"
        manifest["error"] = _error(
            name, f"the process was ended by {signal_told(-ended)}", manifest
        )
    else:
        manifest["outcome"] = "raised"
        message = (
            f"the target left the process with exit code {ended} without returning (os._exit or a "
            "crash of the interpreter)"
        )
        manifest["error"] = _error("os._exit", message, manifest)


MOST = 0.5
"""Share of the time from which it is said that ``torch.compile`` used it up."""


def compiled_for(recording: Recording, seconds: float) -> str:
    """Words to add where ``torch.compile`` took most of the ``seconds`` that a run had."""
    done = [row.us for row in recording.rows(CompileRow) if row.what in ("compile", "backward")]
    took = sum(done) / 1e6
    if not done or took < MOST * seconds:
        return ""
    each = f"{len(done)} compilation{'s' * (len(done) != 1)}"
    return f": torch.compile took {took:.0f} of {seconds:.0f} s ({each})"


def _error(kind: str, message: str, manifest: Row, trace: str = "") -> Row:
    last = manifest["passes"][-1] if manifest["passes"] else None
    where = {"step": last["steps"], "pass_name": last["name"]} if last else {}
    return {
        **where,
        **(manifest.get("error") or {}),
        "type": kind,
        "message": message,
        "traceback": trace,
    }


def _where_it_hung(plan: Plan) -> str:
    path = Path(plan.folder) / STACKS_FILE
    text = _spelled(plan, path.read_text(errors="replace")) if path.is_file() else ""
    package = Path(__file__).resolve().parents[1]
    own = (f'"{package}{os.sep}', f'"{package.parent / "rules"}{os.sep}', '"<string>"')
    return "\n".join(line for line in text.splitlines() if not any(map(line.__contains__, own)))


def counted(folder: Path) -> dict[str, int]:
    """Completed steps by pass, from the rows themselves (the manifest of a killed child is old)."""
    counts: dict[str, int] = {}
    for row in Recording(folder).rows(StepRow):
        counts[row.pass_name] = counts.get(row.pass_name, 0) + 1
    return counts


def files_of(folder: Path, manifest: Row, ran: Callable[[str], str] = str) -> list[str]:
    """The user's files that a recording names. ``ran`` gives the path from which a file ran."""
    files: dict[str, None] = dict.fromkeys(manifest.get("target_files", ()))
    recording = Recording(folder)
    files.update(dict.fromkeys(row.file for row in recording.rows(SiteRow)))
    for row in recording.rows(LoaderRow):
        files.update(dict.fromkeys(file for file in (row.dataset_file, row.collate_file) if file))
    kept: list[GraphRow | GrowingRow | WorkerPagesRow] = [
        *recording.rows(GraphRow),
        *recording.rows(KeptRow),
        *recording.rows(WorkerKeptRow),
        *recording.rows(WorkerPagesRow),
    ]
    files.update(dict.fromkeys(each.file for each in kept if each.file))
    return [file for file in files if has_content(ran(file))]


def keep_sources(recording: Recording, further: Recording) -> None:
    """A line found by a further run may lie in a file that no site of the main recording names."""
    manifest = recording.manifest
    files = [*files_of(further.folder, further.manifest), *further.manifest.get("configs", ())]
    sources = store_sources(recording.folder, manifest["cwd"], iter(files))
    manifest["sources"] = {**sources, **manifest["sources"]}
    manifest["masked"] = {**masked_lines(manifest["cwd"], files), **manifest.get("masked", {})}
    write_manifest(recording.folder, manifest)


def clear(folder: Path) -> None:
    """Remove a recording's files, so that it can be made again."""
    for entry in folder.iterdir():
        if entry.is_file():
            entry.unlink()
    for entry in (folder / SOURCES).glob("*"):
        entry.unlink()


def shortened(recording: Recording, whole: int) -> str:
    """What to say of a target that ended after ``whole`` steps; a script's loop had one more."""
    steps = whole + (recording.manifest.get("kind") == "script")
    return f"the target ends after {steps} steps, so the passes were shortened to fit"


def add_warning(recording: Recording, text: str) -> None:
    """Add a sentence to the recording's warnings, on disk too."""
    manifest: dict[str, Any] = recording.manifest
    manifest["warnings"] = [*manifest.get("warnings", []), text]
    write_manifest(recording.folder, manifest)


def raised(manifest: Row) -> tuple[str, str]:
    """What the target raised, in a line, and where (`` at train.py:7``); else its outcome alone."""
    error = manifest.get("error") or {}
    if not error:
        return manifest["outcome"], ""
    said = f"{error.get('type', '')}: {error.get('message', '')}".splitlines()[0]
    where = f" at {os.path.basename(error['file'])}:{error['line']}" if error.get("file") else ""
    return said, where
