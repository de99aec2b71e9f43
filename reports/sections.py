"""The sections of a report, in the order in which every format has them: :data:`SECTIONS`."""

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from auditor.model import Report, Status
from auditor.model.prices import trains_otherwise

from . import compilation, next_steps, ranks, summary, what_ifs

T = TypeVar("T")


class Section(NamedTuple):
    """What a report may have: the page's file ``<name>.html.j2``, a function of the other formats.
    ``title`` is its name in the contents of the page (empty: it is not listed there), ``tally`` the
    number that stands beside it.
    """

    name: str
    title: str
    there: Callable[[Report], object]
    tally: Callable[[Report], int] = lambda report: 0


def _trained_otherwise(report: Report) -> int:
    return sum(map(trains_otherwise, report.findings))


def _of(status: Status) -> Callable[[Report], int]:
    return lambda report: len(summary.with_status(report, status))


SECTIONS = (
    Section("summary", "Summary", lambda r: True),
    Section("caveats", "", lambda r: r.caveats),
    Section("failure", "", lambda r: r.run.outcome != "completed" or r.run.error),
    Section("cautions", "", lambda r: r.cautions),
    Section("training", "Changes what is trained", _trained_otherwise, _trained_otherwise),
    Section("headline", "", lambda r: True),
    Section("next", "Do this", next_steps.steps),
    Section("baseline", "", summary.baseline_sentences),
    Section("findings", "Findings", lambda r: r.findings, lambda r: len(r.findings)),
    Section("what-if", "What each fix saves", lambda r: what_ifs.rows(r) or what_ifs.sentences(r)),
    Section("checkpoints", "Checkpoints", lambda r: r.checkpoints, lambda r: len(r.checkpoints)),
    Section("modules", "Step by module", lambda r: r.by_module),
    Section("verdicts", "Rules", lambda r: True),
    Section("ranks", "Ranks", lambda r: ranks.table(r, 1)[1]),
    Section("communication", "Communication", lambda r: r.communication),
    Section("device", "Device time", lambda r: r.device_time),
    Section("compilation", "Compilation", compilation.sentences),
    Section("charts", "Charts", lambda r: r.series or r.layers or r.parts),
    Section("operators", "Operators", lambda r: r.operators),
    Section("clean", "Passed", _of("clean"), _of("clean")),
    Section("skipped", "Not checked", _of("skipped"), _of("skipped")),
    Section("failed", "Failed", _of("failed"), _of("failed")),
    Section("warnings", "Warnings", summary.limits, lambda r: len(summary.limits(r))),
    Section("environment", "Environment", lambda r: r.environment),
    Section("method", "How it was measured", lambda r: r.method),
)


def walk(report: Report, parts: Mapping[str, T]) -> Iterator[T]:
    """What a format has of the sections that are there, in their order."""
    return (parts[each.name] for each in SECTIONS if each.name in parts and each.there(report))
