"""``audit check``: files looked at without running them, for pre-commit and editors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from auditor import __version__, amounts
from auditor.cli import console
from auditor.cli.usage import EXIT_FOUND
from auditor.errors import AuditProblem
from auditor.extensions.check.proofs import Proof, proofs
from auditor.model import Finding, PeakBytes, Report, Run, Severity, Site, Verdict, finding_key
from auditor.recordings.sources import decode_source
from auditor.syntax.silence import names_of, silenced

LARGEST = 4 << 20
"""Bytes of a file that is read: one that people write is smaller."""

REST = "source alone proves little: audit run measures the rest"


def check(
    *,
    files: tuple[str, ...],
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    fail_on: str,
    form: str,
) -> int:
    """Look at the files; returns the exit code."""
    found: list[tuple[str, Proof, str]] = []
    paths = list(_python(files))
    for path in paths:
        text = _read(path)
        try:
            proven = proofs(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            console.say(
                f"audit: {path} is not looked at: {type(error).__name__}: {error}", err=True
            )
            continue
        lines = text.split("\n")
        found += (
            (str(path), each, lines[each.line - 1].strip())
            for each in proven
            if _wanted(each.code, select, ignore)
            and not names_of(each.code) & (silenced(lines[each.line - 1]) or set())
        )
    if form == "sarif":
        console.hand_over(_sarif(found), form=form)
    else:
        for file, each, _ in found:
            place = f"{file}:{each.line}:{each.column}"
            console.say(f"{place}: {each.code} {each.severity.value}: {each.message}")
        said = f"{amounts.count(len(found), 'finding')} in {amounts.count(len(paths), 'file')}"
        console.say(f"{said}; {REST}", err=True)
    least = Severity(fail_on).rank if fail_on != "never" else -1
    return EXIT_FOUND if any(each.severity.rank <= least for _, each, _ in found) else 0


def _python(files: Iterable[str]) -> Iterator[Path]:
    """The Python files among these, and those below folders. Raises :class:`AuditProblem` for what
    is not there.
    """
    for file in files:
        path = Path(file)
        if path.is_dir():
            yield from sorted(each for each in path.rglob("*.py") if each.is_file())
        elif not path.exists():
            raise AuditProblem(f"there is no file {file}")
        elif path.suffix == ".py":
            yield path


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST + 1)
    except OSError as error:
        raise AuditProblem(f"{path} cannot be read: {error.strerror}") from None
    if len(raw) > LARGEST:
        raise AuditProblem(f"{path} is larger than {amounts.size(LARGEST)}", "leave it out")
    return decode_source(raw)


def _wanted(code: str, select: tuple[str, ...], ignore: tuple[str, ...]) -> bool:
    names = names_of(code)
    return (not select or bool(names & set(select))) and not names & set(ignore)


def _sarif(found: list[tuple[str, Proof, str]]) -> str:
    from auditor.judging import catalogue

    findings = tuple(
        Finding(
            site := Site(file, each.line, "", text),
            each.message,
            severity=each.severity,
            code=each.code,
            name=catalogue.rule(each.code).name(),
            key=finding_key(each.code, site),
            seen_on="source",
        )
        for file, each, text in found
    )
    codes = dict.fromkeys((each.code, each.name) for each in findings)
    run = Run("check", 0, 0, 1, "cpu", "completed", None, None, PeakBytes(), "", "", "")
    verdicts = tuple(Verdict(code, name, "found") for code, name in codes)
    tool = {"name": "torch-step-audit", "version": __version__}
    report = Report(run, verdicts, findings, (), tool=tool)
    return str(catalogue.renderer("sarif").render(report))
