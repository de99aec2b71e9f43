"""Baselines: findings that a project has accepted, kept in a file, so that only new ones fail.

The file may be a stranger's: it is read with bounds, and nothing of it is more than text.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from auditor.errors import AuditProblem, plain
from auditor.model import Accepted, Baseline, Finding, Part, Report, Site, finding_key

SCHEMA = "audit-baseline/1"
SIZE_LIMIT = 16 * 1024 * 1024
"""Bytes of a baseline that are read at most."""
MOST = 20_000
"""Findings of a baseline at most."""
PARTS = 1000
"""Parts of one of its findings at most."""
WORDS = 4096
"""Characters of one text in it at most."""
TEXT = 120
"""Characters of a finding's line that are written, for people."""

REWRITE = "--update-baseline writes it again"
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/")
_FIELDS = ("code", "target", "file", "text")


@dataclass(frozen=True)
class Known:
    """The findings of a baseline, and the file as it was named."""

    file: str
    findings: tuple[Accepted, ...] = ()


# -- the file --------------------------------------------------------------------------------------


def read(file: str) -> Known:
    """The baseline in a file. Raises :class:`AuditProblem` in one sentence if it is none."""
    path = Path(file)
    if path.exists() and not path.is_file():
        raise AuditProblem(f"--baseline: {file} is no file")
    try:
        with path.open("rb") as opened:
            data = opened.read(SIZE_LIMIT + 1)
    except FileNotFoundError:
        raise AuditProblem(
            f"--baseline: {file} does not exist", "--update-baseline writes it"
        ) from None
    except OSError as error:
        raise AuditProblem(f"--baseline: {file} cannot be read: {error.strerror}") from None
    try:
        return Known(file, tuple(_accepted(data)))
    except ValueError as error:
        raise AuditProblem(f"--baseline: {file}: {error}", REWRITE) from None


def _accepted(data: bytes) -> Iterator[Accepted]:
    if len(data) > SIZE_LIMIT:
        raise ValueError(f"it has more than {SIZE_LIMIT:,} bytes, which is the most that is read")
    try:
        written = json.loads(data)
    except (ValueError, RecursionError) as error:  # also an integer of too many digits
        raise ValueError(f"it is not JSON ({plain(str(error), 200)})") from None
    if not isinstance(written, dict) or written.get("schema") != SCHEMA:
        raise ValueError(f"it is no baseline: its schema is not {SCHEMA!r}")
    rows = written.get("findings")
    if not isinstance(rows, list) or len(rows) > MOST:
        raise ValueError(f"`findings` is no list of at most {MOST:,} findings")
    for number, row in enumerate(rows):
        yield _row(row, f"findings[{number}]")


def _row(row: Any, name: str) -> Accepted:
    _require(isinstance(row, dict), f"{name} is no object")
    parts = row.get("parts")
    few = isinstance(parts, list) and 0 < len(parts) <= PARTS
    _require(few, f"{name}.parts is no list of 1 to {PARTS:,} places")
    objects = all(isinstance(part, dict) for part in parts)
    _require(objects, f"{name}.parts holds what is no object")
    words = {field: _text(row, field, name) for field in _FIELDS}
    places = (Part(_text(each, "key", name), _text(each, "function", name)) for each in parts)
    return Accepted(**words, parts=tuple(places))


def _require(true: bool, otherwise: str) -> None:
    if not true:
        raise ValueError(otherwise)


def _text(row: dict[Any, Any], field: str, name: str) -> str:
    value = row.get(field)
    if not isinstance(value, str) or len(value) > WORDS:
        raise ValueError(f"`{field}` of {name} is no text of at most {WORDS:,} characters")
    return value


def written(findings: Iterable[Accepted]) -> str:
    """A baseline's text: sorted, without lines, prices and dates: only findings change it."""
    rows = sorted(
        (asdict(each) for each in findings),
        key=lambda row: (row["file"], row["code"], row["text"], row["target"], str(row["parts"])),
    )
    return json.dumps({"schema": SCHEMA, "findings": rows}, indent=2) + "\n"


# -- comparing -------------------------------------------------------------------------------------


def marked(report: Report, known: Known) -> Report:
    """The report, its findings marked as new or unchanged, and what of the baseline is gone."""
    found = [_parts(finding) for finding in report.findings]
    inside = _matched(found, _most(known.findings))
    findings = tuple(
        replace(finding, baseline_state="unchanged" if there else "new")
        for finding, there in zip(report.findings, inside, strict=True)
    )
    missing = _missing(report, known)
    looked = _looked(report)
    gone = tuple(each for each in missing if each.code in looked)
    return replace(
        report,
        findings=findings,
        baseline=Baseline(
            known.file, inside.count(False), inside.count(True), gone, len(missing) - len(gone)
        ),
    )


def updated(report: Report, known: Known) -> tuple[Accepted, ...]:
    """What the baseline holds from now on: the findings of this report, those of other targets, and
    those whose rules could not be checked this time.
    """
    target, looked = _target(report), _looked(report)
    others = (each for each in known.findings if each.target != target)
    unlooked = (each for each in _missing(report, known) if each.code not in looked)
    return (*others, *unlooked, *(_accept(finding, target) for finding in report.findings))


def _missing(report: Report, known: Known) -> tuple[Accepted, ...]:
    """Findings of the baseline, of the report's own target, that are not in the report."""
    own = [each for each in known.findings if each.target == _target(report)]
    present = Counter(part for finding in report.findings for part in _parts(finding))
    there = _matched([each.parts for each in own], present)
    return tuple(each for each, still in zip(own, there, strict=True) if not still)


def _looked(report: Report) -> set[str]:
    if report.run.outcome != "completed":
        return set()
    return {each.code for each in report.verdicts if each.status in ("found", "clean")}


def _matched(items: Sequence[Sequence[Part]], pool: Counter[Part]) -> list[bool]:
    """Which items have a part in the pool, where a part of the pool answers for one item.

    Parts of the same function come first; then those of any function, for it may be renamed.
    """
    left, found = Counter(pool), [False] * len(items)
    _take(items, left, found, lambda part: part)
    bare: Counter[str] = Counter()
    for part, number in left.items():
        bare[part.key] += number
    _take(items, bare, found, lambda part: part.key)
    return found


def _take(
    items: Sequence[Sequence[Part]], left: Counter[Any], found: list[bool], named: Any
) -> None:
    for number, parts in enumerate(items):
        if found[number]:
            continue
        there = [name for name in map(named, parts) if left[name] > 0]
        found[number] = bool(there)
        left.subtract(there)


def _most(findings: Iterable[Accepted]) -> Counter[Part]:
    """How often each part occurs, in the target that has it most often: targets share files."""
    counted: dict[str, Counter[Part]] = {}
    for each in findings:
        counted.setdefault(each.target, Counter()).update(each.parts)
    most: Counter[Part] = Counter()
    for each_target in counted.values():
        most |= each_target
    return most


# -- findings as a baseline knows them ---------------------------------------------------------


def _accept(finding: Finding, target: str) -> Accepted:
    site = finding.site
    return Accepted(
        finding.code[:WORDS],
        target,
        _portable(site.file)[:WORDS] if site is not None else "",
        " ".join(site.text.split())[:TEXT] if site is not None else "",
        _parts(finding)[:PARTS],
    )


def _parts(finding: Finding) -> tuple[Part, ...]:
    """The places of a finding, each line once."""
    sites: list[tuple[str, Site | None]] = [(finding.code, finding.site)]
    sites += [(place.code or finding.code, place.site) for place in finding.places]
    seen = {(code, site and str(site)): _part(code, site) for code, site in sites}
    return tuple(seen.values())


def _part(code: str, site: Site | None) -> Part:
    if site is None:
        return Part(finding_key(code, None)[:WORDS])
    key = finding_key(code, replace(site, file=_portable(site.file)))
    return Part(key[:WORDS], site.function[:WORDS])


def _portable(file: str) -> str:
    return _INSTALLED.sub("", file)


def _target(report: Report) -> str:
    """What was run. Names of traces and snapshots change with each of them."""
    return report.run.target[:WORDS] if report.run.recorded_at else ""
