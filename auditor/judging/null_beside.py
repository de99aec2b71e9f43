"""What the null device adds to a rehearsal: torch's own word on waits, and what it leaves open."""

from collections.abc import Iterator
from dataclasses import replace

from auditor import amounts
from auditor.evidence.recorded.null_run import NullRun, null_run, unseen_waits
from auditor.evidence.table import Evidence
from auditor.model import Finding

WAITS = frozenset(
    {"SYNC001", "SYNC002", "SYNC003", "SYNC004", "SYNC005", "SYNC006", "SYNC010", "SYNC011"}
)
"""Rules that say that the host waits on a line."""

NAMED = 3
"""Lines that a sentence names at most."""


def confirmed(finding: Finding, run: NullRun | None) -> Finding:
    """A wait that the shadow saw, with what torch's own code did on these lines."""
    if run is None or not run.steps or finding.code not in WAITS or finding.seen_on != "rehearsal":
        return finding
    sites = [finding.site, *(place.site for place in finding.places)]
    there = [asked for site in sites if site is not None and (asked := run.lines.get(site.place))]
    on = frozenset[int]().union(*(asked.waited_on for asked in there))
    calls = sorted(frozenset[str]().union(*(asked.calls for asked in there)))
    said = (
        f"the host waits here on {len(on)} of {run.steps} steps ({', '.join(calls)})"
        if on
        else f"no wait was seen here in {amounts.count(run.steps, 'step')}"
    )
    return replace(finding, facts=(*finding.facts, ("torch's own CUDA code", said)))


def warnings(evidence: Evidence) -> Iterator[str]:
    """What limits the run on the null device."""
    run = evidence.once(null_run)
    if run is None:
        return
    for text in run.evidence.recording.manifest.get("warnings", ()):
        yield f"on the null device: {text}"
    if run.parting is not None:
        yield run.parting.sentence
    elif run.sized:
        where = amounts.some((f"{site.file}:{site.line}" for site in run.sized), NAMED)
        yield (
            f"the size of a result depends on values at {where}, and on the null device these are "
            "zeros: its memory is not judged, the rehearsal's is"
        )


def method(evidence: Evidence) -> Iterator[str]:
    """How the run on the null device was made, or the one command that would add it."""
    run = evidence.once(null_run)
    said = evidence.recording.manifest.get("null_device") or {}
    if run is None:
        if said.get("lacking") and said.get("remedy"):
            yield (
                f"torch's own CUDA code was not run on a null device: {said['lacking']}; to add "
                f"its memory and its waits, {said['remedy']}"
            )
        return
    if not run.steps:
        yield "null device: the program took another path there from the first step on; nothing of it is judged"
        return
    name = run.evidence.recording.device.name.removesuffix(" (null device)")
    most = run.busiest
    where = f", most of them at {most.site.file}:{most.site.line}" if most is not None else ""
    told = (
        f", but for {run.answered} of {amounts.count(run.reads, 'scalar read')} that got the "
        "rehearsal's value"
        if run.reads
        else ""
    )
    yield (
        f"null device: {amounts.count(run.steps, 'step')} of the same program on torch's own CUDA "
        f"code, played as {name}, whose kernels compute nothing: {run.launches:.0f} launches a step"
        f"{where}; {'its allocator is judged' if run.memory else 'its allocator is not judged'}; "
        f"values are zeros{told}"
    )
    extra = unseen_waits(run, evidence)
    if extra:
        yield (
            "null device: torch's own code also makes the host wait at "
            + amounts.some(
                (
                    f"{one.site.file}:{one.site.line} ({', '.join(sorted(one.calls))})"
                    for one in extra
                ),
                NAMED,
            )
            + ", where the rehearsal saw no crossing"
        )
