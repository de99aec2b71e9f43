"""From a recording and a judgement to the Report: run facts, series, excerpts, patches."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from auditor import __version__, amounts
from auditor.evidence.checkpoints import saved
from auditor.evidence.recorded.by_module import by_module
from auditor.evidence.recorded.compiles import compilation
from auditor.evidence.recorded.data_parallel import communication_of
from auditor.evidence.recorded.null_run import null_run
from auditor.evidence.recorded.steps import (
    TIMED,
    CpuContention,
    Step,
    Steps,
    Trained,
    compiled_caution,
    device_peak,
    own_times,
    queued_share,
    step_series,
    traced_series,
)
from auditor.evidence.snapshot.by_line import memory_charts
from auditor.evidence.snapshot.history import peak_allocated
from auditor.evidence.snapshot.what_if import ran_out
from auditor.evidence.source.files import excerpt
from auditor.evidence.table import BROKEN_PROBE, Evidence
from auditor.evidence.trace import facts as traces
from auditor.evidence.trace.idle import device_time
from auditor.evidence.trace.ranks import Ranks
from auditor.judging import null_beside
from auditor.judging.catalogue import page
from auditor.judging.engine import Judgement
from auditor.judging.replayed import repriced
from auditor.model import (
    Finding,
    PeakBytes,
    Report,
    Run,
    Severity,
    StepTimes,
    TargetError,
    Verdict,
    charts,
    prices,
)
from auditor.model.charts import Layers, Parts
from auditor.model.devices import DeviceInfo, Input, device_named, input_named
from auditor.patch import another_librarys, diff_bytes, shows_line
from auditor.patch import plan as plan_patches
from auditor.recordings.folder import Recording, Row
from auditor.recordings.schema.run import DeviceTimeRow, StepRow, known
from auditor.rule import NotLooked, Rule
from auditor.runs.plan import REHEARSAL
from auditor.runs.schedule import STEADY_STEPS

if TYPE_CHECKING:
    from auditor.timeline import Timeline


def step_rows(evidence: Evidence) -> list[StepRow]:
    """Rows of the ``steps`` part, with the device's times where there are any."""
    device = {(row.pass_name, row.step): row.us for row in evidence.rows(DeviceTimeRow)}
    return [
        structs.replace(row, us=device.get((row.pass_name, row.step), row.us))
        for row in evidence.rows(StepRow)
    ]


def host_peak(steps: list[StepRow]) -> int | None:
    """Of the passes without instruments, as in the chart; else of all (a rehearsal)."""
    seen = [(row.pass_name, rss) for row in steps if (rss := known(row.rss)) is not None]
    own = [rss for name, rss in seen if name in TIMED]
    return max(own or (rss for _, rss in seen), default=None)


TOP_OPERATORS = 15

NULL_DEVICE = (
    "the trace comes from a null device: no GPU ran, so launches, copies and waits are "
    "counted but not timed"
)

NO_WORK = (
    "the trace lists a GPU but holds none of its work (the profiler could not start CUPTI, or "
    "another profiler had it): kernels, copies, waits and idle time were not recorded"
)

NO_GPU = (
    "the trace holds no GPU work: it was recorded on a CPU, or without "
    "ProfilerActivity.CUDA; kernels, copies and waits were not recorded"
)

HELD_EAGER = (
    "it ended while the audit ran its compiled functions eagerly, to measure what torch.compile "
    "gains; the program alone runs them compiled, and may not end this way"
)

NULL_RUN = (
    "this ran on a null device, torch's own CUDA code without a GPU: bytes, launches, copies and "
    "waits are those of a GPU; there are no times, and what kernels compute reads as zeros, so "
    "that nothing is said of values, and a branch on one may have gone another way"
)


def report(
    evidence: Evidence,
    judgement: Judgement,
    rules: Iterable[type[Rule]],
    broken: Iterable[str] = (),
    *,
    note_below: float = prices.NOTE_BELOW,
) -> Report:
    """The report of a judged recording, in words: :func:`drawn` adds the charts.

    Reads sources as they were recorded, never the files as they are now. ``broken`` are sentences
    on rule packs left out. Findings whose price is below the share ``note_below`` of the step or
    the peak become notes.
    """
    recording, rehearsed = evidence.recording, evidence.inside(REHEARSAL)
    manifest = recording.manifest
    steps, line, rules = step_rows(evidence), traces.read(evidence), tuple(rules)
    quiet = evidence.get(Steps).quiet if evidence.has("steps") else ()
    run = _run(manifest, steps, evidence, line, quiet)
    peaks = _peaks(evidence, run, rehearsed)
    faults: list[str] = []
    judged = repriced(evidence, judgement.findings, faults)
    findings = judged.weighed(
        lambda finding: prices.weighed(
            with_diff(recording, finding), Severity.NOTE, note_below, run.step_us, peaks
        )
    )
    found = {code for finding in findings for code in finding.codes}
    trained = _trained(evidence)
    first = tuple(caveats(trained, judgement.verdicts, broken))
    unread = tuple(f"{each}: what it held is not judged" for each in recording.damage())
    series = charts.drawn(
        "step times and memory by step",
        lambda: step_series(evidence, steps) or traced_series(line),
        faults,
    )
    used = charts.drawn("where the device's time went", lambda: (device_time(evidence),), faults)
    return Report(
        run=replace(run, training=trained.state if trained is not None else None),
        verdicts=judgement.verdicts,
        findings=findings,
        warnings=(
            *unread,
            *traces.unread(evidence),
            *first,
            *manifest.get("warnings", ()),
            *_said_in(evidence),
            *_masked(manifest, recording),
            *(line.trace.warnings if line is not None else ()),
            *judgement.warnings,
            *faults,
        ),
        caveats=(*first, *unread),
        cautions=_cautions(evidence, quiet, line),
        tool={"name": "torch-step-audit", "version": __version__},
        environment=_environment(evidence, rehearsed),
        method=(
            *method_of(manifest, steps, queued_share(quiet)),
            *_rehearsed(rehearsed),
            *null_beside.method(evidence),
        ),
        series=series,
        operators=_operators(line),
        excerpts={f"{s.file}:{s.line}": excerpt(recording, s) for f in findings if (s := f.site)},
        manual={rule.code: page(rule) for rule in rules if rule.code in found},
        ranks=() if manifest.get("played") else evidence.get(Ranks).rows,  # these have times
        communication=communication_of(evidence),
        device_time=used[0] if used else None,
        compilation=compilation(evidence),
        by_module=by_module(evidence),
        what_if=judged.what_if,
        ran_out=ran_out(evidence) if "MEM015" in found else None,
        checkpoints=saved(evidence),
    )


def _operators(line: Timeline | None) -> tuple[tuple[str, int, float], ...]:
    if line is None or line.trace.info.null_device:
        return ()
    n = line.steps.count
    shown = line.operators[:TOP_OPERATORS]
    return tuple((each.name, round(each.calls / n), each.ns / 1e3 / n) for each in shown)


def _cautions(
    evidence: Evidence, quiet: tuple[Step, ...], line: Timeline | None
) -> tuple[str, ...]:
    busy = CpuContention.of(quiet).caution
    if evidence.recording.device.null:
        null = NULL_RUN
    else:
        null = NULL_DEVICE if line is not None and line.trace.info.null_device else ""
    if line is not None and evidence.bare == "trace" and not line.trace.info.null_device:
        null = NO_WORK if line.device_missing else "" if traces.devices(line) else NO_GPU
    error = evidence.recording.manifest.get("error") or {}
    held = HELD_EAGER if error.get("pass_name") == "eager_held" else ""
    return tuple(filter(None, (held, busy, null, compiled_caution(quiet))))


def _trained(evidence: Evidence) -> Trained | None:
    """What was trained; None if the run ended early, or a recording of another kind cannot
    say.
    """
    if evidence.recording.manifest.get("outcome") != "completed" or not evidence.has(
        *Trained.parts
    ):
        return None
    return evidence.get(Trained)


def drawn(report: Report, evidence: Evidence) -> Report:
    """The report with its charts. A warning says which one cannot be drawn."""
    if report.layers or report.parts:
        return report
    faults: list[str] = []
    parts = charts.drawn("what the steps are made of", lambda: _parts(evidence), faults)
    layers = charts.drawn("memory over time", lambda: _memory(evidence), faults)
    said = (each for each in faults if each not in report.warnings)
    return replace(
        report, layers=layers, parts=parts[0] if parts else None, warnings=(*report.warnings, *said)
    )


# -- the run ---------------------------------------------------------------------------------------


def _run(
    manifest: Row,
    steps: list[StepRow],
    evidence: Evidence,
    line: Timeline | None,
    quiet: tuple[Step, ...],
) -> Run:
    lone = line if evidence.bare == "trace" else None
    traced = lone.steps.count if lone is not None and lone.steps.marked else 0
    return Run(
        target=manifest.get("target", ""),
        steps=manifest.get("steps", 0) if lone is None else traced,
        warmup=manifest.get("warmup", 0),
        world_size=manifest.get("world_size", 1),
        device=manifest.get("device", "cpu")
        if lone is None
        else ", ".join(traces.devices(lone)) or "cpu",
        outcome=evidence.recording.outcome,
        error=_error(manifest.get("error"), evidence.recording),
        step_us=_quiet_times(quiet) if lone is None else _times(list(traces.step_us(lone))),
        peak_bytes=PeakBytes(
            device=device_peak(steps, peak_allocated(evidence)), host=host_peak(steps)
        ),
        torch=str(manifest.get("environment", {}).get("torch", "")),
        python=str(manifest.get("environment", {}).get("python", "")),
        recorded_at=manifest.get("recorded_at", ""),
        in_process=bool(manifest.get("in_process")),
    )


def _error(error: Row | None, recording: Recording) -> TargetError | None:
    if not error:
        return None
    site = (
        recording.site_at(error["file"], error.get("line", 0), error.get("function", ""))
        if error.get("file")
        else None
    )
    return TargetError(
        error.get("type", ""),
        error.get("message", ""),
        error.get("traceback", ""),
        recording.ended_in,
        error.get("pass_name") or "",
        site,
    )


def _quiet_times(quiet: tuple[Step, ...]) -> StepTimes | None:
    """What they took, without waits for a processor. A median's interval stays in their range."""
    times, within = _times(list(own_times(quiet))), Steps(quiet).typical
    if times is None:
        return None
    low, high = (
        (None, None)
        if within is None
        else (max(times.min, within.low), min(times.max, within.high))
    )
    return replace(times, low=low, high=high, queued=queued_share(quiet))


def _times(us: list[float]) -> StepTimes | None:
    if not us:
        return None
    ordered = sorted(us)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return StepTimes(
        statistics.median(ordered),
        p95,
        ordered[0],
        ordered[-1],
        len(ordered),
        mean=statistics.fmean(ordered),
    )


# -- charts ----------------------------------------------------------------------------------------


def _parts(evidence: Evidence) -> tuple[Parts, ...]:
    try:
        line = traces.timed_timeline(evidence)
    except NotLooked:
        return ()
    from auditor.timeline.phases import step_parts

    drawn = step_parts(line)
    return () if drawn is None else (drawn,)


def _memory(evidence: Evidence) -> tuple[Layers, ...]:
    """Charts of the device's memory: real where there was a device, else those of the rehearsal."""
    run, rehearsed = evidence.once(null_run), evidence.inside(REHEARSAL)
    if run is not None and run.memory is not None:
        return memory_charts(run.memory, predicted=True)
    layers = memory_charts(evidence, predicted=evidence.recording.device.simulated)
    return layers or (memory_charts(rehearsed, predicted=True) if rehearsed is not None else ())


# -- findings --------------------------------------------------------------------------------------


def _peaks(evidence: Evidence, run: Run, rehearsed: Evidence | None) -> dict[str, int | None]:
    """Peak memory of the device in bytes, by where a finding was seen. A host's is torch's."""
    device = run.peak_bytes.device
    simulated = device_peak(rehearsed.rows(StepRow) if rehearsed is not None else [], device)
    beside = evidence.once(null_run)
    null = device if beside is None else device_peak(beside.evidence.rows(StepRow), simulated)
    snapshot = null if beside is not None and beside.memory is not None else device
    return {
        "cuda": device,
        "snapshot": snapshot,
        "trace": device,
        "rehearsal": simulated,
        "null": null,
    }


def with_diff(recording: Recording, finding: Finding) -> Finding:
    """The finding with the diff that its edits come to, whatever diff it had."""
    remedy = finding.remedy
    if remedy is None:
        return finding
    if not remedy.edits:
        return replace(finding, remedy=replace(remedy, diff=None))
    foreign = another_librarys(remedy.edits, recording.source_bytes, recording.manifest)
    if foreign:
        return replace(finding, remedy=replace(remedy, edits=(), diff=None, refused=foreign))
    planned = plan_patches(remedy.edits, recording.source_bytes, cwd=recording.cwd)
    reasons = (*filter(None, (remedy.refused,)), *(reason for _, reason in planned.refused))
    refused = "; ".join(dict.fromkeys(reasons)) or None
    masked = recording.manifest.get("masked") or {}
    if any(
        shows_line(diff_bytes(each.before, each.after, each.path), masked.get(each.path, ()))
        for each in planned.files
    ):
        return replace(finding, remedy=replace(remedy, diff=None, refused=BESIDE_SECRET))
    diff = planned.diff.decode("utf-8", "replace") or None
    return replace(finding, remedy=replace(remedy, diff=diff, refused=refused))


BESIDE_SECRET = (
    "a diff would show a line beside it that holds a secret, masked in the recording; audit fix "
    "--apply makes the change"
)
"""Why a patch is not shown: `git apply` would not find the masked line."""


# -- the rehearsal ---------------------------------------------------------------------------------


def _environment(evidence: Evidence, rehearsed: Evidence | None) -> dict[str, str]:
    manifest, null = evidence.recording.manifest, evidence.once(null_run)
    facts = {str(k): str(v) for k, v in manifest.get("environment", {}).items()}
    if null is not None:
        facts["null device"] = null.evidence.recording.device.name.removesuffix(" (null device)")
    if rehearsed is None:
        return facts
    played = (rehearsed.recording.manifest.get("environment") or {}).get("device")
    if played:
        facts["rehearsed on"] = str(played)
        facts["rehearsed steps"] = str(rehearsed.steps_of("loud"))
    return facts


def _masked(manifest: Row, recording: Recording) -> Iterable[str]:
    """What was kept out of the recording because it looks like a secret."""
    lines = [
        f"{file}:{line}" for file, found in (manifest.get("masked") or {}).items() for line in found
    ]
    names = [*lines, *(f"the value of {name}" for name in manifest.get("masked_arguments") or ())]
    if names:
        yield f"masked in the recording, because it looks like a secret: {amounts.some(names)}"
    withheld = [recording.relative(file) for file in manifest.get("withheld") or ()]
    if withheld:
        yield (
            "left out of the recording because it may hold a secret: "
            f"{amounts.some(withheld)}; it has no patch"
        )


def _said_in(evidence: Evidence) -> Iterable[str]:
    rehearsed = evidence.inside(REHEARSAL)
    known = evidence.recording.manifest.get("warnings", ())
    for text in rehearsed.recording.manifest.get("warnings", ()) if rehearsed is not None else ():
        if text not in known:
            yield f"in the rehearsal: {text}"
    yield from null_beside.warnings(evidence)


def _rehearsed(rehearsed: Evidence | None) -> Iterable[str]:
    if rehearsed is not None:
        steps = rehearsed.steps_of("loud")
        yield (
            "rehearsal: the program's GPU path on a shadow CUDA device, with real values and no "
            f"times ({steps} steps)"
        )


# -- method ----------------------------------------------------------------------------------------
# How a report's numbers were come by, a sentence each: the passes, what was taken off, and what the
# device was.


TOLD = 0.02
"""Share of the quiet pass from which it is said that waiting for a processor was taken off."""

PASSES = {
    "warmup": "warm-up: excluded from all numbers",
    "quiet": "timing pass: only a clock runs; all times called measured come from here",
    "anomaly_off": "timing pass with anomaly mode off: the difference is the price of anomaly mode",
    "eager_held": "timing pass without torch.compile: the difference is what compiling saves",
    "compiled_again": "timing pass, compiled again: eager steps were faster than the compiled ones "
    "before them and must also be faster than these",
    "trace": "profiler pass: torch.profiler alone, for the operators' shares and the timeline",
    "loud": "diagnostic pass: call sites, loader, backward calls, "
    "graphs; causes and counts come from here, never times",
    "leaner": "what-if pass: one change at a time, to see how the peak of memory changes",
    "memory": "memory pass: allocation history with stacks, for the snapshot",
    "values": "value pass: only checks gradients and parameters of the rehearsed steps for "
    "non-finite values",
    "replay": "replay: the run repeated up to the non-finite step, operator by operator",
    "numbers": "precision pass: dtypes and value ranges of delicate operators",
    "gradients": "gradient pass: recomputes the loss with one repair and compares the gradients; checks "
    "inputs of layers and results of activations",
}


def method_of(manifest: Row, steps: list[StepRow], queued: float) -> Iterable[str]:
    """Of a manifest and its steps; ``queued``: the timing pass's share of processor waits."""
    spared, cut = manifest.get("spared", {}), manifest.get("cut", {})
    for each in manifest.get("passes", ()):
        name, count = each["name"], each["steps"]
        said = f"{count} step{'s' * (count != 1)}"
        if name in spared:
            said += f" of {count + spared[name]}: the last {STEADY_STEPS} were alike"
        elif name in cut:
            said += f" of {count + cut[name]}: steps are long"
        yield f"{PASSES.get(name, name)} ({said})"
    quiet = [row for row in steps if row.pass_name == "quiet"]
    collected = sum(row.gc_us for row in quiet)
    if collected:
        share = collected / max(1.0, sum(row.us for row in quiet))
        yield f"garbage collection took {amounts.percent(share)} of the timing pass"
    if queued >= TOLD:
        yield (
            f"waiting for a CPU took {amounts.percent(queued)} of the timing pass; step times, also "
            "in the chart, exclude it"
        )
    if "judged" in manifest:
        yield str(manifest["judged"])
    yield _FILES.get(input_named(manifest.get("device"))) or _on(
        device_named(manifest.get("device"))
    )


_FILES: dict[Input, str] = {
    "trace": "everything comes from a torch.profiler trace, whose times include the profiler's own cost",
    "checkpoint": "torch.load(weights_only=True) or safetensors read each file "
    "in its own process, and every number was checked",
    "snapshot": "everything comes from a torch memory snapshot: bytes and lines, no times",
}
"""How a file was judged that stands alone."""


def _on(device: DeviceInfo) -> str:
    """How the steps of a run were timed, on this device."""
    if device.shadow:
        return (
            "the program ran its GPU path on a shadow CUDA device: counts and bytes are those of a "
            "GPU; there are no times"
        )
    if device.simulated:
        return (
            "torch's own CUDA code ran on a device that computes nothing: counts and bytes are those "
            "of a GPU; there are no times"
        )
    if device.accelerator:
        return (
            "step times are those between device events at the step's boundaries; no "
            "synchronization was added inside a pass"
        )
    return "no GPU was used: reads that would make the host wait for a GPU are named but not priced"


# -- caveats ---------------------------------------------------------------------------------------


def caveats(
    trained: Trained | None, verdicts: Iterable[Verdict], broken: Iterable[str]
) -> Iterator[str]:
    """One sentence each; ``broken`` are those on rule packs that were left out."""
    if trained is not None and trained.caveat:
        yield trained.caveat
    for sentence in broken:
        yield f"{sentence}; its rules were not run"
    verdicts = tuple(verdicts)
    failed = [
        f"{each.code} ({_last_line(each.reason)})" for each in verdicts if each.status == "failed"
    ]
    if failed:
        one = len(failed) == 1
        yield (
            f"{amounts.count(len(failed), 'rule')} failed to run: {amounts.some(failed)}; this "
            "is a fault of "
            + ("the rule, not of the target" if one else "these rules, not of the target")
        )
    reasons = dict.fromkeys(each.reason for each in verdicts if _is_blind(each))
    for reason in reasons:
        blind = [each.code for each in verdicts if _is_blind(each) and each.reason == reason]
        yield f"{reason}: {amounts.some(blind)} could not be checked"


def _is_blind(verdict: Verdict) -> bool:
    return verdict.status == "skipped" and verdict.reason.startswith(BROKEN_PROBE)


def _last_line(reason: str) -> str:
    return reason.strip().rpartition("\n")[2]
