"""Records a step in this process, through the same session, probes and passes as the recording
child.
"""

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import torch

from auditor.capture.instruments.environment import describe, device_of
from auditor.capture.instruments.user_frames import Frames
from auditor.capture.probes.base import Context
from auditor.capture.probes.registry import select
from auditor.capture.session import Session
from auditor.evidence.table import Evidence
from auditor.extensions.checkpoints import settings
from auditor.extensions.checkpoints.command import CheckpointRecording, asks_for_checkpoints
from auditor.extensions.checkpoints.files import checkpoints_in, scans_of
from auditor.extensions.checkpoints.reading import NotACheckpoint
from auditor.judging import engine
from auditor.model import Finding, Verdict
from auditor.patch import another_librarys
from auditor.recordings.folder import SCHEMA, SITES, Recording, RecordingWriter, write_manifest
from auditor.recordings.schema.numerics import NonfiniteRow
from auditor.recordings.writer import store_sources
from auditor.rule import Rule
from auditor.runs.plan import RANK_FOLDER, Device, Passes, Plan
from auditor.runs.rank_recordings import RankedRecording
from tests.echo_group import as_rank
from tests.recordings.strict import undeclared


def record(
    folder: Path,
    make: Callable[[], Callable[[], Any]],
    parts: tuple[str, ...],
    *,
    roots: Iterable[Path],
    steps: int = 12,
    warmup: int = 2,
    trace_steps: int = 0,
    device: Device = "auto",
    memory_limit: int | None = None,
    host_room: int | None = None,
) -> Recording:
    """Make a step (after the probes were installed, as in a real run), run all passes, return the
    recording.

    With ``host_room`` the recording says that the machine has so many bytes of RAM beyond what the
    process holds now.

    A step that runs out of memory ends the recording with that outcome. A step that left non-finite
    values behind is replayed, as the runner does: the step is made once more.
    """
    plan = Plan(
        "test:step",
        (),
        steps,
        0 if device == "rehearse" else warmup,
        device,
        str(folder),
        parts,
        purpose=Passes(trace_steps),
        memory_limit=memory_limit,
    )
    recording = _run(plan, make, tuple(roots), host_room)
    bad = NonfiniteRow.first(recording.rows(NonfiniteRow))
    if bad is not None:
        _run(plan.replay(bad.global_step, bad.last_good), make, tuple(roots))
    return recording


def _run(
    plan: Plan,
    make: Callable[[], Callable[[], Any]],
    roots: tuple[Path, ...],
    host_room: int | None = None,
) -> Recording:
    folder = Path(plan.folder)
    writer = RecordingWriter(folder)
    frames = Frames(writer, tuple(str(root) for root in roots))
    warnings: list[str] = []
    device = device_of(plan.device)
    frames.user_file = partial(_of_the_case, frames.user_file, roots)  # type: ignore[method-assign]
    context = Context(writer, frames, device=device, plan=plan, warn=warnings.append)
    session = Session(context, select(plan.parts, context), lambda name, done, total: None)
    session.install()
    environment, outcome, said = describe(device), "completed", ""
    if host_room is not None:
        environment["host_memory"] = str(psutil.Process().memory_info().rss + host_room)
    try:
        step = context.target = make()
        while not session.done:
            session.begin()
            session.gave(step())
            session.end()
    except torch.OutOfMemoryError as error:
        outcome, said = "oom", str(error)
        session.broken()
    finally:
        session.uninstall()
        writer.close()
    manifest: dict[str, Any] = {
        "schema": SCHEMA,
        "target": "test:step",
        "cwd": os.getcwd(),
        "steps": plan.steps,
        "warmup": 2,
        "device": context.device.word,
        "passes": [{"name": p.name, "steps": p.done} for p in session.passes],
        "outcome": outcome,
        "error": {"type": "OutOfMemoryError", "message": said, "traceback": ""} if said else None,
        "environment": environment,
        "warnings": warnings,
        "recorded_at": "2026-01-01T00:00:00+00:00",
    }
    write_manifest(folder, manifest)
    assert undeclared(folder) == []
    files = {row["file"] for row in Recording(folder).rows(SITES)}
    files |= {row["file"] for row in Recording(folder).rows("graphs") if row.get("file")}
    files |= {str(p) for root in roots if root.is_file() for p in [root]}
    manifest["sources"] = store_sources(folder, os.getcwd(), iter(sorted(files)))
    write_manifest(folder, manifest)
    return Recording(folder)


def _of_the_case(
    user_file: Callable[[ModuleType], str | None], roots: tuple[Path, ...], module: ModuleType
) -> str | None:
    """As ``Frames.user_file``, but none for the hundreds of modules of other tests, whose globals
    would be searched, step by step, as the program's.
    """
    file = user_file(module)
    own = not module.__name__.startswith(("tests.", "case_", "fuzz", "benchmarks"))
    own = own or any(Path(file or "").is_relative_to(root) for root in roots)
    return file if own else None


def record_ranks(
    folder: Path,
    make: Callable[[], Callable[[], Any]],
    parts: tuple[str, ...],
    *,
    roots: Iterable[Path],
    size: int = 2,
    steps: int = 12,
) -> RankedRecording:
    """As ``record`` for each of several ranks, one after the other in this process: in the place of
    what others have, a rank gets what it has itself.
    """
    for rank in range(size):
        one = folder / f"{RANK_FOLDER}{rank}"
        with as_rank(rank, size):
            made = record(one, make, parts, roots=roots, steps=steps)
        write_manifest(one, {**made.manifest, "rank": rank, "world_size": size})
    return RankedRecording(folder)


def judge_checkpoints(
    folder: Path, make: Callable[[], Callable[[], Any]], rules: tuple[type[Rule], ...]
) -> tuple[list[Finding], list[Verdict]] | None:
    """Take twelve steps in an empty folder and judge the checkpoints that they left there, against
    its ``config.json``.

    None if they left none.
    """
    folder.mkdir(parents=True)
    before = os.getcwd()
    os.chdir(folder)
    try:
        step = make()
        for _ in range(12):
            step()
    finally:
        os.chdir(before)
    config = folder / "config.json"
    paths = checkpoints_in(folder)
    scans = tuple(
        scan for scan in (scans_of(paths) if paths else ()) if not isinstance(scan, NotACheckpoint)
    )
    if not scans and all(rule.in_checkpoint is not None for rule in rules):
        return None
    judgement = engine.judge(
        Evidence(CheckpointRecording(scans, settings.read(config) if config.is_file() else ())),
        rules,
    )
    return list(judgement.findings), list(judgement.verdicts)


def judge(
    folder: Path,
    make: Callable[[], Callable[[], Any]],
    rules: tuple[type[Rule], ...],
    beside: tuple[type[Rule], ...] = (),
    **more: Any,
) -> tuple[list[Finding], list[Verdict]]:
    """Record, also what the rules ``beside`` these need, and judge with these rules; of rules on
    checkpoints, what the step saved (if a run can answer too: if it did).
    """
    parts = engine.parts_of((*rules, *beside))
    played = more.get("device") == "rehearse"  # such a step needs the device
    if rules and not played and all(asks_for_checkpoints(rule) for rule in rules):
        judged = judge_checkpoints(folder / "saved", make, rules)
        if judged is not None:
            return judged
    several = more.pop("ranks", False)
    if several:
        recording: Recording = record_ranks(
            folder, make, parts, roots=more["roots"], steps=more.get("steps", 12)
        )
    else:
        recording = record(folder, make, parts, **more)
    judgement = engine.judge(Evidence(recording), rules)
    require_own(judgement.findings, recording)
    return list(judgement.findings), list(judgement.verdicts)


def require_own(findings: Iterable[Finding], recording: Recording) -> None:
    """Raises where the call that an edit names is another library's: a report would drop it."""
    for finding in findings:
        edits = finding.remedy.edits if finding.remedy is not None else ()
        foreign = another_librarys(edits, recording.source_bytes, recording.manifest)
        assert not foreign, foreign
