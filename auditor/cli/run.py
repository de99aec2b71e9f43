"""``audit run``: record in a child process, judge, write the report."""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from auditor import null_device
from auditor.cli import launch, out_folder, progress_display, rule_selection, write_results
from auditor.cli.first_findings import FirstFindings
from auditor.cli.usage import EXIT_INTERRUPTED, Ending
from auditor.errors import AuditProblem
from auditor.evidence.table import Evidence
from auditor.judging import build_report, engine
from auditor.model import Report
from auditor.model.gpus import gpu_named
from auditor.recordings.folder import Recording
from auditor.rule import Rule
from auditor.runs import null_run, played_ranks, stages
from auditor.runs import target as targets
from auditor.runs.plan import OVERHEAD_S, Audit, Device, Plan
from auditor.runs.played_ranks import PlayedRanks
from auditor.runs.rank_meeting import RankMeeting
from auditor.syntax.silence import ignored_in, names_of

OF_RANKS = ("communication", "rank_memory")
"""Parts that no rule asks for: the report shows them where there are several ranks."""


def run(
    *,
    target: str,
    steps: int,
    warmup: int,
    out: str | None,
    device: Device,
    gpu: str,
    memory_limit: int | None,
    timeout: float | None,
    nproc: int,
    world: int | None = None,
    ranks: str = "",
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: str | None,
    allow_broken_rules: bool,
    formats: tuple[tuple[str, str], ...],
    baseline: str | None = None,
    update_baseline: bool = False,
    interactive_figures: bool = False,
    quiet: bool,
    verify: bool,
    budget: float,
    args: tuple[str, ...],
    overhead: float = OVERHEAD_S,
) -> int:
    """Audit a target; returns the exit code."""
    address = targets.parse(target)
    meeting = launch.meeting(out, nproc)
    played = _played(
        world,
        ranks,
        device,
        {"a launcher": meeting is not None, "--nproc": nproc > 1, "--verify": verify},
    )
    world_size = nproc if meeting is None else meeting.own.world_size
    if not played:
        _refuse(device, gpu, memory_limit, world_size, launched=meeting is not None)
    gpu = gpu_named(gpu).key if gpu else ""
    if device == "null" and (lacking := null_device.lacking()) is not None:
        raise AuditProblem(f"--device null: {lacking.message}", lacking.hint)
    choice = rule_selection.choose(select, ignore, allow_broken_rules=allow_broken_rules)
    choice = choice.against(baseline, update=update_baseline)
    choice = choice.with_figures(interactive=interactive_figures)
    folder, ours = launch.folder(
        meeting, lambda: claim(None if out is None else Path(out), address.label)
    )
    plan = Plan(
        target,
        args,
        steps,
        warmup,
        "auto" if device == "null" else device,
        str((folder / "recording").resolve()),
        (),
        overhead_s=overhead,
        memory_limit=memory_limit,
        gpu=gpu,
        world_size=world or world_size,
        played=played,
    )
    audit = with_parts(plan, choice.rules)
    if meeting is not None and meeting.own.rank:
        return launch.follow(meeting, audit.run, timeout, quiet=quiet)
    audit = played_ranks.planned(audit) if played else null_run.prepared(audit)
    if device == "rehearse":
        audit = replace(audit, run=audit.run.on_shadow(steps))
    recording = _recorded(audit, timeout, meeting, folder, choice, ours=ours, quiet=quiet)
    ending, evidence = Ending(), Evidence(recording)
    try:
        with ending.after_the_report(), progress_display.working("judging", quiet=quiet):
            report = choice.judged(evidence, ending.is_asked)
        if verify and report.run.outcome == "completed" and not ending.asked:
            report = _with_verification(report, evidence, folder, args, budget, quiet=quiet)
        with ending.after_the_report():
            write_results.deliver(report, evidence, folder, formats, quiet=quiet, tensorboard=True)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"what was recorded is kept: audit analyze {folder} judges it"
        ) from None
    if recording.manifest.get("unwritten"):
        raise AuditProblem(
            str(recording.manifest["unwritten"]), "the report is on what was recorded before that"
        )
    return EXIT_INTERRUPTED if ending.asked else choice.ended(report, fail_on)


def _refuse(
    device: Device, gpu: str, memory_limit: int | None, world_size: int, *, launched: bool
) -> None:
    """Raise :class:`AuditProblem` for options that go against each other."""
    if memory_limit is not None and device == "cpu":
        raise AuditProblem(
            "--memory-limit is a limit of device memory: it has no effect with --device cpu"
        )
    if world_size > 1 and device in ("rehearse", "null"):
        alone = f"start one process instead of {world_size}" if launched else "leave out --nproc"
        raise AuditProblem(
            "a rehearsal simulates one GPU in one process", f"{alone}, or use --device cpu"
        )
    if gpu and device in ("cpu", "cuda"):
        raise AuditProblem(
            f"--gpu names the GPU to simulate, and --device {device} simulates no GPU"
        )


def _recorded(
    audit: Audit,
    timeout: float | None,
    meeting: RankMeeting | None,
    folder: Path,
    choice: rule_selection.Choice,
    *,
    ours: bool,
    quiet: bool,
) -> Recording:
    """Make the recording; the folder goes where nothing could be recorded."""
    run = audit.run
    try:
        with (
            progress_display.shown(quiet=quiet) as (display, echo),
            launch.led(meeting, folder) as launched,
        ):
            ranks = PlayedRanks() if run.played else launched
            first = FirstFindings(choice, lambda words: echo(f"audit: {words}\n"))
            told = display
            if not quiet:
                first.announce_proven(_proven(run.target, choice))
            if run.world_size == 1 and not quiet:
                told = first.beside(display, Path(run.folder))
            with first.until_judged():
                return stages.record(audit, timeout, told, echo, ranks, announce=first.announce)
    except (AuditProblem, KeyboardInterrupt) as ended:
        if isinstance(ended, AuditProblem) or not any(folder.rglob("steps.jsonl")):
            shutil.rmtree(folder if ours else folder / "recording", ignore_errors=True)
        raise


def _proven(target: str, choice: rule_selection.Choice) -> Iterator[str]:
    """What the target's own file proves without a run, a line each."""
    from auditor.extensions.check import command

    address = targets.parse(target)
    file = address.path or address.module.replace(".", os.sep) + ".py"
    ignored = ignored_in(file, choice.settings.per_file_ignores)
    for proof in command.certain(Path(file), {rule.code for rule in choice.rules}):
        if not names_of(proof.code) & ignored:
            yield f"{file}:{proof.line}: {proof.code} {proof.message}"


def with_parts(plan: Plan, rules: Sequence[type[Rule]]) -> Audit:
    """The audit with the parts that the rules need, of each kind of run."""
    several = plan.world_size > 1
    rehearsed = engine.parts_of(rule for rule in rules if rule.rehearsed)
    native = engine.parts_of(rule for rule in rules if rule.native)
    parts = (*engine.parts_of(rules), *engine.REPORTED, *(OF_RANKS if several else ()))
    return Audit(replace(plan, parts=parts), rehearsed, native if rehearsed and not several else ())


def _played(
    world: int | None, ranks: str, device: Device, others: Mapping[str, bool]
) -> tuple[int, ...]:
    """The ranks of ``--world`` that are rehearsed; none without it.

    Raises :class:`AuditProblem` for ``others`` (options that are given) that go against it.
    """
    if world is None:
        if ranks:
            raise AuditProblem("--ranks needs --world: the number of ranks in the simulated job")
        return ()
    against = [name for name, given in others.items() if given]
    if device not in ("auto", "null"):
        against.append(f"--device {device}")
    if against:
        raise AuditProblem(
            f"--world {world} rehearses ranks on a null device: {against[0]} does not apply"
        )
    chosen = played_ranks.chosen(world, ranks)
    played_ranks.possible()
    return chosen


def _with_verification(
    report: Report,
    evidence: Evidence,
    folder: Path,
    args: tuple[str, ...],
    budget: float,
    *,
    quiet: bool,
) -> Report:
    """The report with what re-runs measured; the one without it stands on disk meanwhile."""
    from auditor.extensions.verify import command

    report = build_report.drawn(report, evidence)
    with suppress(AuditProblem):  # said when the whole report cannot be written, either
        write_results.write(report, evidence, folder, (), tensorboard=True)
    evidence.recording.manifest["argv"] = list(args)  # on disk it may be masked
    try:
        return command.verified(report, evidence, budget=budget, quiet=quiet) or report
    except AuditProblem as problem:
        return replace(
            report, warnings=(*report.warnings, f"the patches were not verified: {problem.message}")
        )


def claim(out: Path | None, label: str) -> tuple[Path, bool]:
    """The folder for the results, made and claimed, and whether it may be removed again."""
    while True:
        folder = out_folder.fresh(label) if out is None else out
        _refuse_recorded(folder)
        ours = not folder.exists()
        out_folder.make(folder)
        if out_folder.claimed(folder):
            break
        if out is not None:
            raise AuditProblem(
                f"another audit is writing to {out}", "choose another --out, or wait for it to end"
            )
    _refuse_recorded(folder)  # the other one may have ended meanwhile
    return folder, ours


def _refuse_recorded(folder: Path) -> None:
    if (folder / "recording").exists():
        raise AuditProblem(
            f"{folder} already holds a recording",
            "choose another --out, or remove it; a recording is never overwritten",
        )
