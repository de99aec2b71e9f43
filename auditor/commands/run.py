"""``audit run``: record in a child process, judge, write the report."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from auditor import assemble, engine, further, runner
from auditor import target as targets
from auditor.commands import choosing, out_folder, results
from auditor.commands.verify import verified
from auditor.errors import AuditProblem
from auditor.model import Report
from auditor.plan import Device, Plan
from auditor.recording import Recording

LABELS = {
    "warmup": "warming up",
    "quiet": "quiet pass (times)",
    "anomaly_off": "pricing anomaly mode",
    "trace": "profiling",
    "loud": "loud pass (causes)",
    "memory": "memory pass",
    "numbers": "looking at numbers",
    "origin": "following values",
    "rehearsal": "rehearsing the GPU path",
    "replay": "replaying the bad step",
}


def run(
    *,
    target: str,
    steps: int,
    warmup: int,
    out: str | None,
    device: Device,
    memory_limit: int | None,
    timeout: float | None,
    nproc: int,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: str | None,
    allow_broken_rules: bool,
    formats: tuple[tuple[str, str], ...],
    quiet: bool,
    debug: bool,
    verify: bool,
    budget: float,
    args: tuple[str, ...],
) -> int:
    """Audit a target; returns the exit code."""
    address = targets.parse(target)
    if memory_limit is not None and device == "cpu":
        raise AuditProblem("--memory-limit is a limit of device memory: it says nothing with --device cpu")
    if nproc > 1 and device == "rehearse":
        raise AuditProblem("a rehearsal plays one GPU in one process", "leave out --nproc, or use --device cpu")
    choice = choosing.choose(select, ignore, allow_broken_rules=allow_broken_rules)
    rules = choice.rules
    folder, ours = _folder(None if out is None else Path(out), address.label)
    plan = Plan(target, args, steps, warmup, device, str((folder / "recording").resolve()), engine.parts_of(rules))
    rehearsed = engine.parts_of(rule for rule in rules if rule.rehearsed)
    plan = replace(plan, rehearsed=rehearsed, memory_limit=memory_limit, world_size=nproc)
    if device == "rehearse":
        plan = plan.on_shadow(steps)
    try:
        with _progress(quiet=quiet) as (progress, echo):
            recording = further.record(plan, timeout, progress, echo)
    except AuditProblem:
        shutil.rmtree(folder if ours else folder / "recording", ignore_errors=True)
        raise
    report = results.judge(recording, rules, choice.settings, choice.broken)
    if verify and report.run.outcome == "completed":
        report = assemble.drawn(report, recording)
        results.write(report, recording, folder, ())  # what was recorded stays, whatever becomes of the verification
        recording.manifest["argv"] = list(args)  # on disk it may be masked
        report = _verified(report, recording, budget, quiet=quiet)
    results.deliver(report, recording, folder, formats, quiet=quiet)
    return choice.ended(report, fail_on)


def _verified(report: Report, recording: Recording, budget: float, *, quiet: bool) -> Report:
    try:
        return verified(report, recording, budget=budget, quiet=quiet) or report
    except AuditProblem as problem:
        return replace(report, warnings=(*report.warnings, f"the patches were not verified: {problem.message}"))


def _folder(out: Path | None, label: str) -> tuple[Path, bool]:
    """The folder for the results, made, and whether it is ours to remove when nothing could be recorded."""
    folder = out_folder.fresh(label) if out is None else out
    if (folder / "recording").exists():
        raise AuditProblem(
            f"{out} already holds a recording", "choose another --out, or remove it; a recording is never overwritten"
        )
    ours = not folder.exists()
    out_folder.make(folder)
    return folder, ours


@contextmanager
def _progress(*, quiet: bool) -> Iterator[tuple[runner.Progress, Callable[[str], None]]]:
    """A progress bar on stderr where that is a terminal, and how to show the target's own output beside it."""
    if quiet:
        yield (lambda name, done, steps: None), (lambda text: None)
        return
    if not sys.stderr.isatty() or os.environ.get("NO_COLOR"):
        yield (lambda name, done, steps: None), _echo_plain
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns: tuple[Any, ...] = (
        SpinnerColumn(),
        TextColumn("{task.description:22}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting the target", total=None)

        def progress(name: str, done: int, steps: int) -> None:
            bar.update(task, description=LABELS.get(name, name), completed=done, total=steps)

        def echo(text: str) -> None:
            bar.console.print(text.rstrip("\n").rpartition("\r")[2], markup=False, highlight=False)

        yield progress, echo


def _echo_plain(text: str) -> None:
    sys.stderr.write(text)
    sys.stderr.flush()
