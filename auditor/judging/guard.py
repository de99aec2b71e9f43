"""What a report may have done: the one gate before anything that it names is patched, printed as a
patch, or run again.

Reports and recordings may be a stranger's. What passes is what the installed rules could have asked
for, of the user's own files.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from auditor import patch
from auditor.errors import AuditProblem
from auditor.model import Edit, Finding, Report
from auditor.permit import Permit
from auditor.recordings.folder import Recording
from auditor.rule import Rule
from auditor.runs import target as targets

CHANGED = "the report was changed, or is another version's: make a new one with audit run"

Read = Callable[[str], "bytes | None"]


def permits_of(rules: Iterable[type[Rule]]) -> Mapping[str, tuple[Permit, ...]]:
    """What each rule may ask for, by its code."""
    return {rule.code: tuple(rule.edits) for rule in rules}


def without_foreign(finding: Finding, permitted: patch.Permitted) -> Finding:
    """The finding without its edits if one of them would not be made for a report: then the remedy
    says why.
    """
    remedy = finding.remedy
    if remedy is None or not remedy.edits:
        return finding
    try:
        for edit in remedy.edits:
            permitted.require(finding.codes, edit)
    except patch.Refused as reason:
        return replace(finding, remedy=replace(remedy, edits=(), diff=None, refused=str(reason)))
    return finding


def require_permitted(
    name: str, report: Report, rules: Iterable[type[Rule]], root: Path, read: Read
) -> None:
    """Raise :class:`AuditProblem` if one edit of the report, asked for or not, is none that its
    rule could have made here.

    ``read`` gives the files as they were audited, ``root`` is the directory that they are patched
    in.
    """
    edits = list(_edits(report))
    named = [site.file for finding in report.findings if (site := finding.site) is not None]
    own = patch.OwnFiles(root, (*named, *(_sources(root) if edits else ())))
    permitted = patch.Permitted(permits_of(rules), read, own.names, own.read)
    for codes, edit in edits:
        try:
            permitted.require(codes, edit)
            patch.require_own_file(root, edit.site.file, edit.action)
        except patch.Refused as reason:
            raise AuditProblem(
                f"{name}: {_short(str(edit.site))}: {_short(str(reason))}", CHANGED
            ) from None


def require_own_program(recording: Recording) -> None:
    """Raise :class:`AuditProblem` if the target that a recording names is not a source of the
    user's, as it was recorded.

    Its arguments may still be a stranger's: they are shown before anything runs.
    """
    home = recording.folder.resolve().parent
    try:
        address = targets.parse(str(recording.manifest.get("target", "")))
        file = address.path or _file_of(address.module, recording.cwd)
        if Path(recording.cwd, file).resolve().is_relative_to(home):
            raise patch.Refused(f"{file} came with the report")
        whole = os.path.normpath(os.path.join(recording.cwd, file))
        beside = patch.leads_out(os.path.relpath(whole, recording.cwd))
        if beside and not patch.is_theirs(whole, recording.cwd):
            raise patch.Refused(
                f"{file} lies outside {recording.cwd} (PYTHONPATH={os.path.dirname(whole)} before "
                "the command says that it is yours)"
            )
        if not beside and recording.relative(whole) not in (
            recording.manifest.get("sources") or {}
        ):
            raise patch.Refused(f"{file} is not among the files that were recorded")
        patch.require_own_file(Path(recording.cwd), file, "set_keyword")
    except patch.Refused as reason:
        raise AuditProblem(
            f"what {recording.folder} would run is no source of this project: {reason}", AGAIN
        ) from None


def _file_of(module: str, cwd: str) -> str:
    """Where the source of a module lies, without importing anything. Raises :class:`patch.Refused`
    for one that is installed.
    """
    inside = module.replace(".", "/")
    for name in (f"{inside}.py", f"{inside}/__main__.py", f"{inside}/__init__.py"):
        if Path(cwd, name).is_file():
            return name
    top = module.partition(".")[0]
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    places = [spec.origin, *(spec.submodule_search_locations or ())] if spec is not None else []
    theirs = (
        str(each)
        for each in places
        if each and os.path.isabs(each) and patch.is_theirs(str(each), cwd)
    )
    found = next((each for each in theirs if each.endswith(".py")), None)
    if found is None:
        raise patch.Refused(f"the module {module} lies in no source tree of yours")
    return found


LONGEST = 400
"""Characters of a report that are quoted: it may hold megabytes of them."""

AGAIN = "audit run TARGET --verify measures the patches of a run of your own"


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def _edits(report: Report) -> Iterator[tuple[tuple[str, ...], Edit]]:
    for finding in report.findings:
        if finding.remedy is not None:
            yield from ((finding.codes, edit) for edit in finding.remedy.edits)


def _sources(root: Path) -> Iterator[str]:
    """Python files of the project, for a setting that another file than the edited one uses; not
    those of packages and tools.
    """
    for folder in (root, *sorted(each for each in root.iterdir() if _is_plain(each))):
        yield from (
            str(each.relative_to(root)) for each in sorted(folder.glob("*.py")) if each.is_file()
        )


def _is_plain(path: Path) -> bool:
    return (
        path.is_dir()
        and not path.is_symlink()
        and not path.name.startswith(".")
        and not (path / "pyvenv.cfg").exists()
    )
