"""From a recording and a judgement to the one Report: run facts, series, excerpts, patches, and how it was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

from auditor import __version__, amounts, guard, pictures, prices
from auditor.caveats import caveats
from auditor.engine import Judgement, rehearsal_of
from auditor.evidence import trace as traces
from auditor.evidence.excerpts import excerpt
from auditor.evidence.memory_charts import memory_charts
from auditor.evidence.snapshot_course import peak_allocated
from auditor.evidence.step_series import TIMED, step_series, traced_series
from auditor.evidence.steps import Step, Steps, own_times, queued_share
from auditor.evidence.trace_device import device_time
from auditor.evidence.trace_picture import trace_charts
from auditor.evidence.trace_ranks import ranks_of
from auditor.evidence.training import Trained
from auditor.evidence.unrest import Unrest
from auditor.explain import page
from auditor.model import Finding, Outcome, PeakBytes, Report, Run, Severity, StepTimes, TargetError
from auditor.patch import Permitted, diff_bytes, shows_line
from auditor.patch import plan as plan_patches
from auditor.pictures import Lanes, Layers
from auditor.recording import Recording, Row
from auditor.rule import Rule

TOP_OPERATORS = 15

TOLD = 0.02
"""Share of the quiet pass from which it is said that waiting for a processor was taken off."""


def report(
    recording: Recording,
    judgement: Judgement,
    rules: Iterable[type[Rule]],
    broken: Iterable[str] = (),
    *,
    note_below: float = prices.NOTE_BELOW,
) -> Report:
    """The report of a judged recording, in words: :func:`drawn` adds the charts.

    Reads sources as they were recorded, never the files as they are now. ``broken`` are sentences on rule packs left out.
    Findings whose price is below the share ``note_below`` of the step or the peak become notes.
    """
    manifest = recording.manifest
    steps = step_rows(recording)
    facts = traces.read(recording)
    rules = tuple(rules)
    permitted = Permitted(guard.permits_of(rules), recording.source_bytes, recording.manifest.get("sources") or ())
    rehearsed = rehearsal_of(recording)
    quiet = _quiet(recording)
    run = _run(manifest, steps, recording, facts, quiet)
    peaks = _peaks(run, rehearsed)
    findings = tuple(
        prices.weighed(
            with_diff(recording, guard.without_foreign(finding, permitted)), Severity.NOTE, note_below, run.step_us, peaks
        )
        for finding in judgement.findings
    )
    found = {code for finding in findings for code in finding.codes}
    faults: list[str] = []
    trained = _trained(recording)
    first = tuple(caveats(trained, judgement.verdicts, broken))
    series = pictures.drawn(
        "step times and memory by step", lambda: step_series(recording, steps) or traced_series(facts), faults
    )
    used = pictures.drawn("where the device's time went", lambda: (device_time(recording),), faults)
    return Report(
        run=replace(run, training=trained.state if trained is not None else None),
        verdicts=judgement.verdicts,
        findings=findings,
        warnings=(
            *first,
            *manifest.get("warnings", ()),
            *_said_in(rehearsed),
            *_masked(manifest, recording),
            *(facts.warnings if facts else ()),
            *judgement.warnings,
            *faults,
        ),
        caveats=first,
        cautions=(said,) if (said := Unrest.of(quiet).caution) else (),
        tool={"name": "torch-step-audit", "version": __version__},
        environment=_environment(manifest, rehearsed),
        method=(*_method(manifest, steps, queued_share(quiet)), *_rehearsed(rehearsed)),
        series=series,
        operators=tuple((op.name, round(op.calls), op.self_us) for op in facts.operators[:TOP_OPERATORS]) if facts else (),
        excerpts={str(f.site): excerpt(recording, f.site) for f in findings if f.site is not None},
        manual={rule.code: page(rule) for rule in rules if rule.code in found},
        ranks=ranks_of(recording),
        device_time=used[0] if used else None,
    )


def _trained(recording: Recording) -> Trained | None:
    """What was trained; None where the run ended early, or a recording of another kind cannot say."""
    if recording.manifest.get("outcome") != "completed" or not recording.has(*Trained.parts):
        return None
    return Trained.build(recording)


def drawn(report: Report, recording: Recording) -> Report:
    """The report with its charts. Where one cannot be drawn a warning says so, and everything else stands."""
    if report.layers or report.lanes:
        return report
    faults: list[str] = []
    traced = pictures.drawn("the timeline of a step", lambda: trace_charts(recording, report.findings), faults)
    memory = pictures.drawn("memory over time", lambda: (_memory(recording, rehearsal_of(recording)),), faults)
    layers, segments = memory[0] if memory else ((), ())
    said = (each for each in faults if each not in report.warnings)
    return replace(report, layers=layers, lanes=(*traced, *segments), warnings=(*report.warnings, *said))


def step_rows(recording: Recording) -> list[Row]:
    """Rows of the ``steps`` part, with the device's times where there are any."""
    device = {(row["pass"], row["step"]): row["us"] for row in recording.rows("device_times")}
    return [{**row, "us": device.get((row["pass"], row["step"]), row["us"])} for row in recording.rows("steps")]


# -- the run -----------------------------------------------------------------------------------------------------------


def _run(manifest: Row, steps: list[Row], recording: Recording, facts: traces.TraceFacts | None, quiet: tuple[Step, ...]) -> Run:
    bare = facts is not None and manifest.get("device") == "trace"
    return Run(
        target=manifest.get("target", ""),
        steps=facts.steps if facts is not None and bare else manifest.get("steps", 0),
        warmup=manifest.get("warmup", 0),
        world_size=manifest.get("world_size", 1),
        device=", ".join(facts.devices) or "cpu" if facts is not None and bare else manifest.get("device", "cpu"),
        outcome=cast("Outcome", manifest.get("outcome", "killed")),
        error=_error(manifest.get("error"), recording),
        step_us=_times(list(facts.step_us)) if facts is not None and bare else _quiet_times(quiet),
        peak_bytes=PeakBytes(
            device=max((row["peak_allocated"] for row in steps if "peak_allocated" in row), default=peak_allocated(recording)),
            host=_host_peak(steps),
        ),
        torch=str(manifest.get("environment", {}).get("torch", "")),
        python=str(manifest.get("environment", {}).get("python", "")),
        recorded_at=manifest.get("recorded_at", ""),
    )


def _error(error: Row | None, recording: Recording) -> TargetError | None:
    if not error:
        return None
    site = recording.site_at(error["file"], error.get("line", 0), error.get("function", "")) if error.get("file") else None
    return TargetError(
        error.get("type", ""),
        error.get("message", ""),
        error.get("traceback", ""),
        recording.ended_in,
        error.get("pass_name") or "",
        site,
    )


def _host_peak(steps: list[Row]) -> int | None:
    """Of the passes without instruments, as in the chart; of all where there is none of those (a rehearsal)."""
    rows = [row for row in steps if "rss" in row]
    own = [row["rss"] for row in rows if row["pass"] in TIMED]
    return max(own or (row["rss"] for row in rows), default=None)


def _quiet(recording: Recording) -> tuple[Step, ...]:
    """Steps of the pass without instruments; none where no step was recorded."""
    return Steps.build(recording).quiet if recording.has("steps") else ()


def _quiet_times(quiet: tuple[Step, ...]) -> StepTimes | None:
    """What they took, waiting for a processor taken off. No interval of their median leaves the range of the steps."""
    times, within = _times(list(own_times(quiet))), Steps(quiet).typical
    if times is None:
        return None
    low, high = (None, None) if within is None else (max(times.min, within.low), min(times.max, within.high))
    return replace(times, low=low, high=high, queued=queued_share(quiet))


def _times(us: list[float]) -> StepTimes | None:
    if not us:
        return None
    ordered = sorted(us)
    p95 = ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]
    return StepTimes(statistics.median(ordered), p95, ordered[0], ordered[-1], len(ordered), mean=statistics.fmean(ordered))


# -- charts ------------------------------------------------------------------------------------------------------------

Charts = tuple[tuple[Layers, ...], tuple[Lanes, ...]]


def _memory(recording: Recording, rehearsed: Recording | None) -> Charts:
    """Charts of the device's memory: real where there was a device, else those of the rehearsal."""
    layers, lanes = memory_charts(recording, predicted=recording.manifest.get("device") == "rehearse")
    return (layers, lanes) if layers or lanes or rehearsed is None else memory_charts(rehearsed, predicted=True)


# -- findings ----------------------------------------------------------------------------------------------------------


def _peaks(run: Run, rehearsed: Recording | None) -> dict[str, int | None]:
    """Peak memory of the device in bytes, by where a finding was seen. A host's peak is mostly Python's and torch's own."""
    device = run.peak_bytes.device
    rows = rehearsed.rows("steps") if rehearsed is not None else ()
    simulated = max((row["peak_allocated"] for row in rows if "peak_allocated" in row), default=device)
    return {"cuda": device, "snapshot": device, "trace": device, "rehearsal": simulated}


def with_diff(recording: Recording, finding: Finding) -> Finding:
    """The finding with the diff that its edits come to, whatever diff it had."""
    remedy = finding.remedy
    if remedy is None:
        return finding
    if not remedy.edits:
        return replace(finding, remedy=replace(remedy, diff=None))
    planned = plan_patches(remedy.edits, recording.source_bytes, cwd=recording.cwd)
    reasons = (*filter(None, (remedy.refused,)), *(reason for _, reason in planned.refused))
    refused = "; ".join(dict.fromkeys(reasons)) or None
    masked = recording.manifest.get("masked") or {}
    if any(shows_line(diff_bytes(each.before, each.after, each.path), masked.get(each.path, ())) for each in planned.files):
        return replace(finding, remedy=replace(remedy, diff=None, refused=BESIDE_SECRET))
    diff = planned.diff.decode("utf-8", "replace") or None
    return replace(finding, remedy=replace(remedy, diff=diff, refused=refused))


BESIDE_SECRET = (
    "a diff would show a line beside it that holds a secret, masked in the recording; audit fix --apply makes the change"
)
"""Why a patch is not shown: `git apply` would not find the masked line."""


# -- the rehearsal -----------------------------------------------------------------------------------------------------


def _environment(manifest: Row, rehearsed: Recording | None) -> dict[str, str]:
    facts = {str(k): str(v) for k, v in manifest.get("environment", {}).items()}
    played = (rehearsed.manifest.get("environment") or {}).get("device") if rehearsed is not None else None
    return {**facts, "rehearsed on": str(played)} if played else facts


def _masked(manifest: Row, recording: Recording) -> Iterable[str]:
    """What was kept out of the recording because it looks like a secret."""
    lines = [f"{file}:{line}" for file, found in (manifest.get("masked") or {}).items() for line in found]
    names = [*lines, *(f"the value of {name}" for name in manifest.get("masked_arguments") or ())]
    if names:
        yield f"masked in the recording, because it looks like a secret: {_some(names)}"
    withheld = [recording.relative(file) for file in manifest.get("withheld") or ()]
    if withheld:
        yield f"left out of the recording, because it looks as if it held a secret: {_some(withheld)}; it has no patch"


def _some(names: list[str]) -> str:
    return ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


NAMED = 5
"""Places that a warning names one by one."""


def _said_in(rehearsed: Recording | None) -> Iterable[str]:
    for text in rehearsed.manifest.get("warnings", ()) if rehearsed is not None else ():
        yield f"in the rehearsal: {text}"


def _rehearsed(rehearsed: Recording | None) -> Iterable[str]:
    if rehearsed is not None:
        steps = sum(each["steps"] for each in rehearsed.manifest.get("passes", ()) if each["name"] == "loud")
        yield f"rehearsal: the program's GPU path on a shadow CUDA device, with real values and no times ({steps} steps)"


# -- how it was measured -----------------------------------------------------------------------------------------------

PASSES = {
    "warmup": "warm-up: left out of every number",
    "quiet": "timing pass: a clock and nothing that changes the step; every time that is called measured comes from here",
    "anomaly_off": "timing pass with anomaly mode held off: the difference is anomaly mode's price",
    "trace": "profiler pass: torch.profiler alone, for the operators' shares and the timeline",
    "loud": "diagnostic pass: call sites, loader, backward calls, graphs; causes and counts come from here, never times",
    "leaner": "what-if pass: one thing changed at a time, to see what the peak of memory would be",
    "memory": "memory pass: allocation history with stacks, for the snapshot",
    "replay": "replay: the run repeated up to the step that went non-finite, its operators watched one by one",
    "numbers": "precision pass: in which dtype and range delicate operators ran",
    "origin": "data-flow pass: follows values from the model and the training device, to tell them from host tensors",
}


def _method(manifest: Row, steps: list[Row], queued: float) -> Iterable[str]:
    for each in manifest.get("passes", ()):
        count = each["steps"]
        yield f"{PASSES.get(each['name'], each['name'])} ({count} step{'s' * (count != 1)})"
    quiet: list[Any] = [row for row in steps if row["pass"] == "quiet"]
    collected = sum(row.get("gc_us", 0.0) for row in quiet)
    if collected:
        share = collected / max(1.0, sum(row["us"] for row in quiet))
        yield f"garbage collection took {amounts.percent(share)} of the timing pass"
    if queued >= TOLD:
        yield (
            f"waiting for a processor took {amounts.percent(queued)} of the timing pass: it is taken off every measured time, and "
            "stays in the chart of step times"
        )
    if "judged" in manifest:
        yield str(manifest["judged"])
    if manifest.get("device") == "trace":
        yield "everything comes from a trace that torch.profiler recorded: its times hold the profiler's own cost"
    elif manifest.get("device") == "checkpoint":
        yield "the files were read as data, tensor by tensor: nothing that they name was imported or called"
    elif manifest.get("device") == "snapshot":
        yield "everything comes from a memory snapshot that torch wrote: bytes and lines, no times"
    elif manifest.get("device") == "rehearse":
        yield "the program ran its GPU path on a shadow CUDA device: counts and bytes are those of a GPU, there are no times"
    elif manifest.get("device") == "cuda":
        yield "step times are those between device events at the step's boundaries; no synchronisation was added inside a pass"
    else:
        yield "no GPU took part: a read that would make the host wait for a GPU is named, and not priced"
