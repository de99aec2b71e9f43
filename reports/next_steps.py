"""What to do with a report: fixes to begin with, commands that show, make and measure patches."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from auditor import amounts
from auditor.model import Finding, Report, Severity
from auditor.model.prices import trains_otherwise

from . import page, summary, text, what_ifs
from .page import CodeLine, diff_lines
from .verified import proof

MOST = 3
"""Fixes that are named."""

FOLDER = "FOLDER"
"""Stands for the folder of the report where it is not known: the page's script fills it in."""

SAFE, UNSAFE = "safe patch", "patch that needs your judgement"

_TEXT_LIMIT, _SAID_LIMIT = 400, 240


@dataclass(frozen=True)
class Step:
    """A fix to begin with, also of several places; ``anchor``: its first finding on the page; missing
    texts are empty.
    """

    anchor: str
    code: str
    place: str
    price: str
    text: str
    patch: str
    said: str = ""
    diff: tuple[CodeLine, ...] = ()
    proven: str = ""


@dataclass(frozen=True)
class Command:
    """A command of ``audit`` (words up to the folder, and behind it), and what it does."""

    before: str
    behind: str
    does: str

    def line(self, folder: str) -> str:
        """The whole command, for a folder as a shell takes it."""
        return " ".join(word for word in ("audit", self.before, folder, self.behind) if word)


def steps(report: Report) -> tuple[Step, ...]:
    """The fixes with the largest joint saving by replay, else the first findings with a remedy."""
    numbered = [
        (f"finding-{number}", finding)
        for number, finding in enumerate(report.findings, 1)
        if finding.remedy is not None and summary.severity(finding) is not Severity.NOTE
    ]
    replayed = [row.anchor for row in what_ifs.rows(report)]
    places = {anchor: place for place, anchor in enumerate(replayed)}
    numbered.sort(key=lambda pair: places.get(pair[0], len(places)))
    alike: dict[object, list[tuple[str, Finding]]] = {}
    for anchor, each in numbered:  # of one remedy without a price or a patch, all together
        alone = summary.short_price(each) or patch_of(each) or each.verified is not None
        key = anchor if alone or each.remedy is None else (each.code, each.remedy.text)
        alike.setdefault(key, []).append((anchor, each))
    return tuple(_step(*group) for group in islice(alike.values(), MOST))


def _step(first: tuple[str, Finding], *others: tuple[str, Finding]) -> Step:
    anchor, finding = first
    remedy = finding.remedy
    assert remedy is not None, "only findings with something to do are steps"
    sites = [str(each.site) for _, each in (first, *others) if each.site]
    return Step(
        anchor=anchor,
        code=text.one_line(finding.code, 20),
        place=amounts.some(sites, MOST),
        price=text.micro(summary.short_price(finding)),
        text=text.one_line(remedy.text or page.title(finding.name), _TEXT_LIMIT),
        patch=(patch := patch_of(finding)),
        # of what changes the training the page says it above
        said="" if trains_otherwise(finding) else text.one_line(finding.message, _SAID_LIMIT),
        diff=tuple(diff_lines(remedy.diff or "")) if patch else (),
        proven=proof(finding.verified).words if finding.verified is not None else "",
    )


def patch_of(finding: Finding) -> str:
    """:data:`SAFE` or :data:`UNSAFE`; empty if it has none, or a re-run has shown it broken."""
    remedy = finding.remedy
    if remedy is None or not remedy.diff:
        return ""
    if finding.verified is not None and finding.verified.status == "broken":
        return ""
    return SAFE if remedy.safe else UNSAFE


def commands(report: Report) -> tuple[Command, ...]:
    """The commands that there is something for."""
    return tuple(_commands(report))


def _commands(report: Report) -> Iterator[Command]:
    patches = [patch for patch in map(patch_of, report.findings) if patch]
    safe = patches.count(SAFE)
    if safe:
        count = amounts.count(safe, "safe patch", "safe patches")
        yield Command("fix", "", f"prints {count}{_codes(report, SAFE)}")
        yield Command("fix", "--apply", "makes these changes in your files")
    if len(patches) > safe:
        others = amounts.count(len(patches) - safe, "patch", "patches")
        prints = "also prints" if safe else "prints"
        yield Command(
            "fix",
            "--unsafe",
            f"{prints} {others}{_codes(report, UNSAFE)}, which may change training results",
        )
    run = report.run
    tried = report.verification is not None or run.outcome != "completed"
    if patches and not tried and run.world_size == 1 and not run.in_process:
        yield Command(
            "verify",
            "" if safe else "--unsafe",
            "runs the target again with each patch and measures it",
        )


def _codes(report: Report, patch: str) -> str:
    """`` (SYNC001, OPT005)``: the rules that propose them, where they are few."""
    codes = dict.fromkeys(each.code for each in report.findings if patch_of(each) == patch)
    return f" ({', '.join(text.one_line(code, 20) for code in codes)})" if len(codes) < 4 else ""


def unmeasured(report: Report) -> str:
    """Why no command measures the patches, and what would; empty if one does, or there is
    none.
    """
    if not report.run.in_process or not any(map(patch_of, report.findings)):
        return ""
    return (
        "This step was audited in its own process, so audit verify cannot measure the patches. For "
        "that, put the step into a module and audit it with audit run module:function."
    )
