"""What a report says in a few words and sums: read by every renderer, so that no two pages
disagree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from auditor import amounts
from auditor.model import Finding, Report, Run, SeenOn, Severity, Status, Verdict
from auditor.model.devices import Input, device_named, input_named
from auditor.model.prices import costs_nothing, priced

from . import communication, text
from .families import STATUSES

SELDOM = 0.01
"""Times per step below which the number says nothing."""

TELLS_P95 = 20
"""Steps below which the 95th percentile is the slowest one."""

_CHIEF = 3
"""Reasons for skipping that are said in one line."""

_OUTCOMES = {
    "completed": "completed",
    "raised": "the target raised an exception",
    "oom": "the target ran out of memory",
    "killed": "the target was killed",
    "timeout": "the target timed out",
    "interrupted": "interrupted",
}


def limits(report: Report) -> tuple[str, ...]:
    """The warnings that stand below the findings: all but the caveats, which stand above them."""
    return tuple(each for each in report.warnings if each not in report.caveats)


_FILES: dict[Input, str] = {
    "trace": "an unknown device",
    "snapshot": "a memory snapshot",
    "checkpoint": "saved checkpoints",
}
_FROM: dict[Input, str] = dict.fromkeys(("snapshot", "checkpoint"), "from")
"""What is judged where it is no run, in words, and how it is said that something comes from
there.
"""


def device(report: Report) -> str:
    """What the step ran on, in words."""
    word = report.run.device
    on = device_named(word)
    if on.simulated:
        return "a null device (no GPU)" if on.null else "a rehearsed GPU"
    return _FILES.get(input_named(word), text.one_line(word, 80))


def rehearsed(report: Report) -> str:
    """What was rehearsed beside the run on the CPU; empty if nothing was."""
    played = text.one_line(report.environment.get("rehearsed on", ""), 120).removesuffix(
        " (rehearsed on the CPU)"
    )
    if not played:
        return ""
    article = "an" if played.startswith("NVIDIA") else "a"
    null = " and on a null device (torch's own CUDA code)"
    also = null if report.environment.get("null device") else ""
    return f"GPU path rehearsed on the CPU{also} as if on {article} {played}, without times"


def asked(report: Report) -> str:
    """How the first sentence begins: ``Audited for 50 steps, after 5 warm-up steps,``, ``Judged
    from a trace of 6 steps,``.
    """
    run = report.run
    if not run.steps:
        return "Judged"
    number = amounts.count(run.steps, "step")
    if run.outcome == "completed" and not run.recorded_at:
        several = len(report.ranks) > 1
        return f"Judged from {f'the traces of {len(report.ranks)} ranks, {number} each' if several else f'a trace of {number}'},"
    words = f"Audited for {_taken(run)}" if run.outcome == "completed" else f"Asked for {number}"
    return words + (f", after {amounts.count(run.warmup, 'warm-up step')}," if run.warmup else "")


def processes(report: Report) -> str:
    """`` in 8 processes``, ``, rank 3 of 8`` of a trace that stands alone; empty for one
    process.
    """
    world, ranks = report.run.world_size, report.ranks
    if world <= 1:
        return ""
    if report.communication is not None and report.communication.played:
        rehearsed = tuple(each.rank for each in report.communication.ranks)
        return f", {communication.named(rehearsed)} of {world} rehearsed"
    return (
        f", rank {ranks[0].rank} of {world}"
        if len(ranks) == 1 and ranks[0].rank is not None
        else f" in {world} processes"
    )


def place(report: Report) -> str:
    """``on cpu``, ``from a memory snapshot``."""
    return f"{_FROM.get(input_named(report.run.device), 'on')} {device(report)}"


def steps(report: Report) -> str:
    """``30 steps``, or how many of them were to be taken; empty where steps are not what was looked
    at.
    """
    run = report.run
    if not run.steps:
        return ""
    return (
        f"{amounts.count(run.steps, 'step')} asked for,"
        if run.outcome != "completed"
        else _taken(run)
    )


def _taken(run: Run) -> str:
    """``30 steps``; ``13 of 30 steps`` where the target ended too early to time them all."""
    timed = run.step_us.n if run.step_us is not None and run.recorded_at else run.steps
    return (
        f"{timed:,} of {amounts.count(run.steps, 'step')}"
        if timed < run.steps
        else amounts.count(run.steps, "step")
    )


def step_time(report: Report) -> str:
    """``median 116 ms, mean 120 ms, p95 201 ms, 55 ms to 374 ms (30 steps)``, of few steps without
    what they cannot tell; empty if none was timed.
    """
    times = report.run.step_us
    if times is None:
        return ""
    median, timed = (
        amounts.within(times.median, times.low, times.high),
        f"({amounts.count(times.n, 'step')})",
    )
    if times.n < 2:
        return f"{median} {timed}"
    p95 = f"p95 {amounts.duration(times.p95)}, " if times.n >= TELLS_P95 else ""
    mean = f"mean {amounts.duration(times.mean)}, " if times.mean is not None else ""
    return (
        f"median {median}, {mean}{p95}{amounts.duration(times.min)} to "
        f"{amounts.duration(times.max)} {timed}"
    )


def with_status(report: Report, status: Status) -> tuple[Verdict, ...]:
    """Verdicts of one status, in the report's order."""
    return tuple(verdict for verdict in report.verdicts if verdict.status == status)


def outcome(report: Report) -> str:
    """How the run ended, in words: ``completed``, ``the target raised an exception`` ..."""
    return _OUTCOMES[report.run.outcome]


def severity(finding: Finding) -> Severity:
    """The finding's severity; a note where nobody said."""
    return finding.severity or Severity.NOTE


def seen_on(finding: Finding) -> SeenOn:
    """Where it was seen; on the host where nobody said."""
    return finding.seen_on or "cpu"


def severities(report: Report) -> str:
    """``1 error, 2 warnings and 3 notes``; severities without findings are left out."""
    counted = Counter(severity(finding) for finding in report.findings)
    return joined(
        amounts.count(counted[level], level.value) for level in Severity if counted[level]
    )


def cost(finding: Finding, micro: str = "us") -> str:
    """Time per step or bytes that would come back, without the basis; empty where neither is
    known.
    """
    lost = priced(finding)
    if lost is not None:
        return f"{amounts.duration(lost, micro)} / step"
    if not finding.lost_bytes:
        return f"0 {micro} / step" if costs_nothing(finding) else ""
    return f"{amounts.size(finding.lost_bytes)}{' / step' if finding.grows else ''}"


def per_step(finding: Finding) -> str:
    """How often it happens in a step, ``<0.01`` where that is hardly ever, ``once`` where it was on
    one step of many; empty where it was not counted.
    """
    return "once" if _on_one_step(finding) else seldom(finding.per_step)


def _on_one_step(finding: Finding) -> bool:
    return finding.steps == 1 and 0 < finding.per_step < 1


def seldom(times: float) -> str:
    """A number of times per step; empty for none."""
    if times <= 0:
        return ""
    return amounts.digits(times) if times >= SELDOM else f"<{SELDOM}"


def frequency(finding: Finding, report: Report) -> str:
    """``2 per step, on all 50 steps``, ``1 per step, on 12 rehearsed steps``; empty where it was
    not counted by steps.
    """
    if _on_one_step(finding):
        return "once"
    words = []
    if finding.per_step >= SELDOM:
        words.append(f"{amounts.digits(finding.per_step)} per step")
    if finding.steps > 0:
        words.append(f"on {_steps(finding, report)}")
    return ", ".join(words)


def _steps(finding: Finding, report: Report) -> str:
    # No "of 50": some rules look at 3 steps, some at the 12 of a rehearsal, and their facts say at
    # how many.
    if finding.seen_on == "rehearsal" and not device_named(report.run.device).simulated:
        return amounts.count(finding.steps, "rehearsed step")
    if finding.steps != report.run.steps:
        return amounts.count(finding.steps, "step")
    return f"all {finding.steps} steps" if finding.steps > 1 else "the only step"


def looked(report: Report) -> str:
    """``31 rules passed; 6 could not be checked``."""
    clean, skipped, failed = (len(with_status(report, status)) for status in STATUSES[1:])
    words = f"{amounts.count(clean, 'rule')} passed"
    if skipped:
        words += f"; {skipped} could not be checked"
    if failed:
        words += f"; {failed} failed"
    return words


def reasons(verdicts: tuple[Verdict, ...]) -> tuple[tuple[str, tuple[Verdict, ...]], ...]:
    """Verdicts grouped by their reason, largest group first."""
    grouped: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        grouped.setdefault(verdict.reason, []).append(verdict)
    return tuple(
        (reason, tuple(group))
        for reason, group in sorted(grouped.items(), key=lambda item: -len(item[1]))
    )


def chief_reasons(verdicts: tuple[Verdict, ...]) -> str:
    """The reasons of most of them in one line: ``the trace shows no GPU; ...; 11 other reasons``."""
    groups = reasons(verdicts)
    first = [text.one_line(reason, 200) or "no reason given" for reason, _ in groups[:_CHIEF]]
    rest = len(groups) - len(first)
    return "; ".join([*first, amounts.count(rest, "other reason")] if rest else first)


def joined(words: Iterator[str]) -> str:
    """``a``, ``a and b``, ``a, b and c``."""
    *most, last = tuple(words) or ("",)
    return f"{', '.join(most)} and {last}" if most else last
