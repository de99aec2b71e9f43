"""What a report says in a few words and sums: read by every renderer, so that no two disagree."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import get_args

from auditor import amounts
from auditor.model import Finding, Report, Run, SeenOn, Severity, Status, Verdict
from auditor.model.devices import Input, device_named, input_named
from auditor.model.prices import costs_nothing, priced, share_of_step, trains_otherwise

from . import communication, text

SELDOM = 0.01
"""Times per step below which the number is not printed."""

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
"""What is judged where it is no run, in words, and how it is said that it comes from there."""


def device(report: Report) -> str:
    """What the step ran on, in words."""
    word = report.run.device
    on = device_named(word)
    if on.simulated:
        return "a null device (no GPU)" if on.null else "a rehearsed GPU"
    return _FILES.get(input_named(word), text.one_line(word, 80))


def rehearsed(report: Report) -> str:
    """What was rehearsed beside the run on the CPU, and for how many steps, since findings count
    those; empty if nothing was.
    """
    played = text.one_line(report.environment.get("rehearsed on", ""), 120).removesuffix(
        " (rehearsed on the CPU)"
    )
    if not played:
        return ""
    article = "an" if played.startswith("NVIDIA") else "a"
    null = " and on a null device (torch's own CUDA code)"
    also = null if report.environment.get("null device") else ""
    taken = rehearsed_steps(report)
    steps = f" for {amounts.count(taken, 'step')}" if taken else ""
    return f"GPU path rehearsed{steps} on the CPU{also} as if on {article} {played}, without times"


def rehearsed_steps(report: Report) -> int:
    """Steps that the rehearsal diagnosed, which its findings count; 0 if that is not known."""
    taken = report.environment.get("rehearsed steps", "")
    return int(taken) if taken.isdecimal() and len(taken) < 10 else 0


def asked(report: Report) -> str:
    """How the first sentence begins: ``Audited for 50 steps,``, ``Judged from a trace of ...``."""
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
    """`` in 8 processes``, ``, rank 3 of 8`` of a trace that stands alone; empty for one."""
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
    """``30 steps``, or how many were to be taken; empty if steps are not what was looked at."""
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
    """``median 116 ms, mean 120 ms, p95 201 ms, 55 ms to 374 ms (30 steps)``; empty if untimed."""
    times = report.run.step_us
    if times is None:
        return ""
    median, timed = amounts.duration(times.median), f"({amounts.count(times.n, 'step')})"
    if times.low is not None and times.high is not None:
        between = f"{amounts.duration(times.low)} to {amounts.duration(times.high)}"
        median += f" (95% interval {between})"
    if times.n < 2:
        return f"{median} {timed}"
    p95 = f"p95 {amounts.duration(times.p95)}, " if times.n >= TELLS_P95 else ""
    mean = f"mean {amounts.duration(times.mean)}, " if times.mean is not None else ""
    extremes = ""
    if (times.low, times.high) != (times.min, times.max):
        extremes = f"fastest {amounts.duration(times.min)}, slowest {amounts.duration(times.max)}, "
    return f"median {median}, {mean}{p95}{extremes}".removesuffix(", ") + f" {timed}"


def with_status(report: Report, status: Status) -> tuple[Verdict, ...]:
    """Verdicts of one status, in the report's order."""
    return tuple(verdict for verdict in report.verdicts if verdict.status == status)


def outcome(report: Report) -> str:
    """How the run ended, in words: ``completed``, ``the target raised an exception`` ..."""
    return _OUTCOMES[report.run.outcome]


def severity(finding: Finding) -> Severity:
    """The finding's severity; a note if it has none."""
    return finding.severity or Severity.NOTE


def worst(report: Report, code: str) -> Severity:
    """The highest severity among a rule's findings; a note if it has none."""
    severities = [severity(each) for each in report.findings if each.code == code]
    return min(severities, key=lambda each: each.rank, default=Severity.NOTE)


def seen_on(finding: Finding) -> SeenOn:
    """Where it was seen; by default on the host."""
    return finding.seen_on or "cpu"


def severities(report: Report) -> str:
    """``1 error, 2 warnings and 3 notes``; severities without findings are left out."""
    counted = Counter(severity(finding) for finding in report.findings)
    return joined(
        amounts.count(counted[level], level.value) for level in Severity if counted[level]
    )


def cost(finding: Finding) -> str:
    """Time per step or bytes that would come back, without the basis; empty if neither is
    known.
    """
    lost = priced(finding)
    if lost is not None:
        return f"{amounts.duration(lost)} / step"
    if not finding.lost_bytes:
        return "0 us / step" if costs_nothing(finding) else ""
    return f"{amounts.size(finding.lost_bytes)}{' / step' if finding.grows else ''}"


def per_step(finding: Finding) -> str:
    """How often it happens in a step: ``<0.01``, ``once`` on one of many; empty if not counted."""
    return "once" if _on_one_step(finding) else seldom(finding.per_step)


def _on_one_step(finding: Finding) -> bool:
    return finding.steps == 1 and 0 < finding.per_step < 1


def seldom(times: float) -> str:
    """A number of times per step; empty for none."""
    if times <= 0:
        return ""
    return amounts.digits(times) if times >= SELDOM else f"<{SELDOM}"


def frequency(finding: Finding, report: Report) -> str:
    """``2 per step, on all 50 steps``; empty if it was not counted by steps."""
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


# -- families --------------------------------------------------------------------------------------
# Verdicts by family of rules, as pages list them.


STATUSES: tuple[Status, ...] = get_args(Status)

FAMILIES = {
    "SYNC": "Host waits for the device",
    "DATA": "Input pipeline",
    "GRAPH": "Autograd graph",
    "MEM": "Memory",
    "NUM": "Numerics",
    "AMP": "Mixed precision",
    "CFG": "Settings",
    "OPT": "Optimizer",
    "KERN": "Kernels",
    "DIST": "Distributed",
    "CKPT": "Checkpoints",
    "TIME": "Step time",
    "WASTE": "Work thrown away",
    "COMP": "torch.compile",
    "TRAIN": "Training correctness",
}


@dataclass(frozen=True)
class Family:
    """The verdicts of one family of rules, found first."""

    code: str
    label: str
    verdicts: tuple[Verdict, ...]

    def count(self, status: Status) -> int:
        """How many rules of the family came to ``status``."""
        return sum(verdict.status == status for verdict in self.verdicts)


def family_of(code: str) -> str:
    """The letters of a rule's code: ``SYNC`` of ``SYNC001``."""
    return code.rstrip("0123456789") or code


def families(report: Report) -> tuple[Family, ...]:
    """All verdicts by family: known families in their fixed order, others after them."""
    grouped: dict[str, list[Verdict]] = {code: [] for code in FAMILIES}
    for verdict in report.verdicts:
        grouped.setdefault(family_of(verdict.code), []).append(verdict)
    return tuple(
        Family(
            code,
            FAMILIES.get(code, code),
            tuple(sorted(verdicts, key=lambda v: (STATUSES.index(v.status), v.code))),
        )
        for code, verdicts in grouped.items()
        if verdicts
    )


# -- costs -----------------------------------------------------------------------------------------
# A finding's price as pages say it: with its interval and its basis, and that it is not proven
# where the interval reaches zero.


NOT_PROVEN = "not proven"


def basis(finding: Finding) -> str:
    """``measured``, ``estimated``, or ``not proven`` where a price's interval reaches zero."""
    return (
        NOT_PROVEN if priced(finding) is not None and finding.proven_us is None else finding.basis
    )


def short_price(finding: Finding) -> str:
    """:func:`cost` as one number: ``not proven`` if a price's interval reaches zero."""
    return NOT_PROVEN if basis(finding) == NOT_PROVEN else cost(finding)


def between(finding: Finding) -> str:
    """``between 8.9 ms and 9.4 ms``: where the price lies; empty if that is not known."""
    low, high = finding.lost_us_per_step_low, finding.lost_us_per_step_high
    if priced(finding) is None or low is None or high is None:
        return ""
    return f"between {amounts.duration(low)} and {amounts.duration(high)}"


def price(finding: Finding) -> str:
    """:func:`cost` with interval and basis: ``9.17 ms [8.9 to 9.4] / step measured``; or empty."""
    lost = priced(finding)
    if lost is None:
        return f"{said} {finding.basis}" if (said := cost(finding)) else ""
    spanned = amounts.within(lost, finding.lost_us_per_step_low, finding.lost_us_per_step_high)
    return f"{spanned} / step {basis(finding)}"


def unpriced(finding: Finding) -> str:
    """What stands in the place of a price that is not known."""
    return "correctness" if trains_otherwise(finding) else "not priced"


# -- shares ----------------------------------------------------------------------------------------
# What shares on the pages are of, and how charts count steps: said in one place, so that no two
# pages differ.


def step_axis(report: Report) -> str:
    """How the steps of charts are counted."""
    return "step of the run, from 0, warm-up included" if report.run.recorded_at else "step"


def usual_step(report: Report) -> str:
    """What shares are of: ``mean step``, in reports of earlier versions ``median step``."""
    times = report.run.step_us
    return "median step" if times is not None and times.mean is None else "mean step"


def share(finding: Finding, report: Report) -> str:
    """``31%``: what its price is of the mean step; empty if one of the two is not known."""
    lost = priced(finding) if finding.proven_us is not None else None
    found = None if lost is None else share_of_step(lost, report.run.step_us)
    if found is None:
        return ""
    return amounts.percent(found) if found <= 1 else "more than 100%"


def beside_step(us: float, report: Report, findings: int) -> str:
    """``38% of the mean step``, or more than all of it and why; empty without timed steps."""
    found = share_of_step(us, report.run.step_us)
    if found is None:
        return ""
    if found <= 1:
        return f"{amounts.percent(found)} of the {usual_step(report)}"
    why = "their prices share time, or some of it" if findings > 1 else "some of it"
    return f"more than the whole {usual_step(report)}: {why} lies outside the steps"


def one_by_one(together_us: float, alone_us: float) -> str:
    """What single prices come to, and why that is another number than all together."""
    why = "they overlap" if alone_us > together_us else "together they save more"
    return f"{amounts.duration(alone_us)} one by one: {why}"


# -- baselines -------------------------------------------------------------------------------------
# What a report says of the baseline that it was compared with.


BASELINE_WORDS = {"new": "new", "unchanged": "known"}
"""The states of a finding, as people read them."""


def baseline_word(finding: Finding) -> str:
    """``new`` or ``known``; empty if there was none."""
    return BASELINE_WORDS[finding.baseline_state] if finding.baseline_state else ""


def accepted(finding: Finding) -> bool:
    """Whether it is in the baseline."""
    return finding.baseline_state == "unchanged"


def baseline_sentences(report: Report) -> tuple[str, ...]:
    """How many findings are new, which are gone, and which were not looked for; else nothing."""
    return tuple(_of_baseline(report))


def _of_baseline(report: Report) -> Iterator[str]:
    known = report.baseline
    if known is None:
        return
    new = amounts.count(known.new, "new finding")
    yield f"baseline {text.path(known.file)}: {new}, {known.unchanged:,} known"
    if known.gone:
        are = "is" if len(known.gone) == 1 else "are"
        gone = amounts.some(text.path(f"{each.code} {each.file}".strip()) for each in known.gone)
        yield (
            f"{amounts.count(len(known.gone), 'finding')} of the baseline {are} gone "
            f"({gone}): --update-baseline"
        )
    if known.unlooked:
        yield (
            f"nothing is known of {amounts.count(known.unlooked, 'finding')} of the baseline: "
            "their rules were not checked this time"
        )
