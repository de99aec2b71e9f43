"""The one door to rules/ and reports/, and to third-party rule packs (entry points)."""

import difflib
import importlib
import re
import traceback
from collections.abc import Collection, Iterable, Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from auditor.errors import AuditProblem, fault
from auditor.model import Severity
from auditor.rule import FAMILIES, Rule

GROUP = "auditor.rules"
"""Entry points of rule packs: each loads as an iterable of rule classes."""

CODE = re.compile(r"[A-Z]{2,12}[0-9]{3}")
"""A family and three digits."""

FORMATS = ("terminal", "json", "sarif", "junit", "github", "codequality", "markdown", "agent")
"""Formats that ``--format`` offers; report.json and report.html are always written."""


def own_rules() -> tuple[type[Rule], ...]:
    """The rules of the room ``rules/``."""
    own: tuple[type[Rule], ...] = importlib.import_module("auditor.rules").CATALOGUE
    return own


def own_families(letters: str) -> tuple[type[Rule], ...]:
    """Our rules of families that begin so, in the manual's order; others are not imported."""
    room, word = importlib.import_module("auditor.rules"), letters.strip().upper()
    return tuple(
        rule
        for family in FAMILIES
        if word.isalpha() and family.startswith(word)
        for rule in room.family_of(importlib.import_module(f"{room.__name__}.{family.lower()}"))
    )


def rules(broken: list[str] | None = None) -> tuple[type[Rule], ...]:
    """Every rule class, ours first, in the order of the catalogue.

    A pack that cannot be imported, brings something else than rules, or a code that is already
    taken raises :class:`AuditProblem`; with a list ``broken`` it is left out instead, and a
    sentence on it is added there.
    """
    found = {each.code: each for each in own_rules()}
    for entry in entry_points(group=GROUP):
        try:
            brought = _brought(entry, found)
        except AuditProblem as problem:
            if broken is None:
                raise
            broken.append(problem.message)
            continue
        found |= {each.code: each for each in brought}
    return tuple(found.values())


def _brought(entry: EntryPoint, taken: Mapping[str, type[Rule]]) -> tuple[type[Rule], ...]:
    """The rules of a pack. Raises :class:`AuditProblem` that names it and its distribution."""
    dist = entry.dist
    of = f" of the distribution {dist.name} {dist.version}" if dist is not None else ""
    pack = f"the rule pack {entry.name!r} ({entry.value}){of}"
    way_out = "mend it" + (
        f" or uninstall it (pip uninstall {dist.name})" if dist is not None else ""
    )
    hint = f"{way_out}, or go on without it: --allow-broken-rules"
    try:
        brought = tuple(entry.load())
    except (Exception, SystemExit) as error:  # importing it runs whatever a stranger wrote
        said = fault(error).splitlines()[0].rstrip(": ")
        raise AuditProblem(
            f"{pack} cannot be imported: {said}", hint, traceback.format_exc()
        ) from None
    for each in brought:
        if wrong := _fault_of(each):
            raise AuditProblem(f"{pack} is broken: {wrong}", hint)
        if each.code in taken:
            other = taken[each.code].__module__
            raise AuditProblem(
                f"{pack} brings a second rule {each.code}, the code of one in {other}", hint
            )
        if each.code in LEFT:
            raise AuditProblem(f"{pack} brings {each.code}, the code of a rule that left", hint)
    return brought


def _fault_of(rule: Any) -> str:
    """Why this cannot be asked as a rule; empty if it can."""
    if not (isinstance(rule, type) and issubclass(rule, Rule)):
        return f"{rule!r} is not a class of rules"
    missing = [name for name in ("code", "severity", "since", "detect") if not hasattr(rule, name)]
    if missing:
        return f"the rule {rule.__name__} has no {' and no '.join(missing)}"
    if not isinstance(rule.code, str) or not CODE.fullmatch(rule.code):
        return (
            f"the rule {rule.__name__} has the code {rule.code!r}; a family and three digits are "
            "wanted, as in ACME001"
        )
    return (
        ""
        if isinstance(rule.severity, Severity)
        else f"{rule.code} has the severity {rule.severity!r}"
    )


def rule(code: str) -> type[Rule]:
    """The rule with this code or name. Raises :class:`AuditProblem` with a suggestion."""
    word = code.strip().upper()
    if word in LEFT:
        raise AuditProblem(instead_of(word))
    for own in own_families(word.rstrip("0123456789")):
        if own.code == word:
            return own
    known = {each.code: each for each in rules()}
    found = known.get(word) or next(
        (each for each in known.values() if each.name() == word.lower()), None
    )
    if found is None:
        raise AuditProblem(f"there is no rule {code!r}", suggestion(code, known))
    return found


def suggestion(word: str, known: Iterable[str]) -> str:
    """What an unknown code or family is meant for: SYNC001 for ``SYNC01``, SYNC for ``SYNK``."""
    word, known = word.strip().upper(), tuple(known)
    family, number = word.rstrip("0123456789"), word[len(word.rstrip("0123456789")) :]
    padded = f"{family}{int(number):03d}" if number else ""
    families = sorted({each.rstrip("0123456789") for each in known})
    close = difflib.get_close_matches(family, families, n=1, cutoff=0.6)
    sibling = f"{close[0]}{padded[len(family) :]}" if close and padded else ""
    same = [each for each in known if family and each.startswith(family)]
    guesses = (
        *(each for each in (padded, sibling) if each in known),
        *difflib.get_close_matches(
            word, same if number and family in families else known, n=1, cutoff=0.6
        ),
        *(close if not number or not same else ()),
    )
    lists = "audit rules lists them all"
    if guesses:
        return f"did you mean {guesses[0]}? {lists}"
    return f"the rules of {family} are {', '.join(same)}" if same else lists


def choose(
    select: Iterable[str], ignore: Iterable[str], broken: list[str] | None = None
) -> tuple[type[Rule], ...]:
    """Rules whose code or family is selected (all if none is) and not ignored; ``broken`` as for
    :func:`rules`. Codes of rules that left (:data:`auditor.judging.catalogue.LEFT`) choose none.

    Raises :class:`AuditProblem` for a word that is neither a code nor a family, and if no rule
    is left.
    """
    everything = rules(broken)
    known = {each.code for each in everything} | {each.family() for each in everything}
    known |= {*FAMILIES, *LEFT}
    wanted, unwanted = (
        [_checked(word, known) for word in select],
        [_checked(word, known) for word in ignore],
    )

    def among(rule: type[Rule], words: list[str]) -> bool:
        return rule.code in words or rule.family() in words

    chosen = tuple(
        each
        for each in everything
        if (not wanted or among(each, wanted)) and not among(each, unwanted)
    )
    if not chosen:
        what = f"--select {','.join(wanted)}" if wanted else "all rules"
        raise AuditProblem(
            f"no rule is left to run: {what} without {','.join(unwanted)}"
            if unwanted
            else f"no rule is left to run: {what} names no rule",
            "audit rules lists the rules; the settings of pyproject.toml count as well",
        )
    return chosen


def _checked(word: str, known: Collection[str]) -> str:
    word = word.strip().upper()
    if word not in known:
        raise AuditProblem(f"{word!r} is neither a rule code nor a family", suggestion(word, known))
    return word


def renderer(name: str) -> Any:
    """The renderer of a format. Raises :class:`AuditProblem` for an unknown one."""
    room = importlib.import_module("auditor.reports")
    if name not in room.RENDERERS:
        raise AuditProblem(f"there is no format {name!r}", f"known: {', '.join(room.RENDERERS)}")
    return room.renderer(name)


def reports(module: str) -> Any:
    """A module of the reports room: ``reports("as_json").load``."""
    return importlib.import_module(f"auditor.reports.{module}")


# -- pages of the manual ---------------------------------------------------------------------------

SECTIONS = ("What it finds", "Why it costs", "Example", "Use instead", "When to ignore", "Sources")
"""The closed list of headings of a manual page; all but the last are required, in this order."""


def page(rule: type[Rule]) -> str:
    """The manual page as Markdown."""
    facts = f"{rule.severity.value} · since {rule.since}"
    parts = [f"# {rule.code}: {rule.title()}", f"*{facts}*", rule.manual()]
    knobs = rule.knobs()
    if knobs:
        rows = "\n".join(
            f"- `{name}` (default `{default!r}`): {text}" for name, (default, text) in knobs.items()
        )
        parts.append(
            f"## Knobs\n\nSet in `pyproject.toml` under `[tool.audit.rules.{rule.code}]`.\n\n{rows}"
        )
    return "\n\n".join(parts) + "\n"


def manual(rules: tuple[type[Rule], ...]) -> str:
    """The pages of these rules as one Markdown document, with a table of contents."""
    rows = "\n".join(
        f"| [{r.code}](#{r.code.lower()}) | {r.title()} | {r.severity.value} |" for r in rules
    )
    head = f"# The rules\n\n| code | defect | severity |\n|---|---|---|\n{rows}\n"
    return head + "".join(
        f'\n<a id="{r.code.lower()}"></a>\n\n#{page(r).replace(chr(10) + "## ", chr(10) + "### ")}'
        for r in rules
    )


def facts(rule: type[Rule], *, whole: bool = True) -> dict[str, Any]:
    """What ``audit explain --json`` says of a rule, and ``audit rules --json`` without the page."""
    known = {
        "code": rule.code,
        "name": rule.name(),
        "title": rule.title(),
        "severity": rule.severity.value,
        "since": rule.since,
    }
    if not whole:
        return known
    knobs = {
        name: {"default": default, "help": text} for name, (default, text) in rule.knobs().items()
    }
    return {**known, "knobs": knobs, "page": page(rule)}


# -- left ------------------------------------------------------------------------------------------
# Codes of rules that left, and what tells of the same thing now: none of them is used again.


LEFT = {
    "CFG002": "write bias=False before a batch norm",
    "CKPT010": "CKPT006 names an old rate that a resume brings back, CKPT005 missing state",
    "COMP007": "torch logs why: TORCH_LOGS=cudagraphs",
    "COMP008": "set torch._dynamo.config.skip_nnmodule_hook_guards = False, and hooks run",
    "COMP011": "DIST003 measures what no backward hides; TORCH_LOGS=ddp_graphs shows the graphs",
    "DIST006": "torch itself warns where find_unused_parameters=True finds none",
    "DIST010": "a trace shows each call, and DIST003 what they take",
    "DIST014": "a trace shows each broadcast, and DIST003 what they take",
    "DIST015": "torch.distributed.checkpoint saves what ranks share once",
    "DIST016": "use torch.nn.SyncBatchNorm where a rank has few samples",
    "GRAPH007": "GRAPH002 names retain_graph=True; without it torch raises at the second backward",
    "KERN004": "nsys shows launches that wait for the queue",
    "KERN008": "KERN003 measures launches that come too slowly",
    "MEM012": "MEM003 says after how many steps growing memory is full",
    "MEM017": "MEM003 tells of memory that grows step over step",
    "SYNC008": "nsys analyze --rule cuda_memset_sync",
    "TIME002": "the page draws the time of each step",
}
"""Each of 0.3."""

KNOBS = {
    "AMP006": "fewest interval share",
    "DATA007": "busy costliest handed_us noticed restarted restarts several",
    "DIST002": "least",
    "DIST005": "ranks",
    "DIST007": "replicas",
    "DIST009": "ranks",
    "DIST011": "sizes",
    "DIST013": "least ranks",
    "KERN001": "least_kernels",
    "KERN002": "least_kernels",
    "KERN003": "least_kernels",
    "KERN006": "body body_of_many many noted",
    "KERN007": "elements",
    "MEM003": "counted_kib device_share host_even host_returned host_step_kib trifle_kib "
    "unended_kib",
    "MEM005": "lines",
    "MEM006": "lines",
    "MEM008": "grid known late least_mib padded small_share times wide_share",
    "MEM015": "lines",
    "TRAIN004": "least_attended",
}
"""Knobs that left in 0.3, by their rule's code."""


def instead_of(code: str) -> str:
    """What to say of one."""
    return f"{code} left in 0.3: {LEFT[code]} (docs/log/left.md)"


def that_left(words: Iterable[str]) -> tuple[str, ...]:
    """Codes of rules that left among these words, each once."""
    return tuple(dict.fromkeys(word for word in words if word in LEFT))
