"""``audit fix``: the patches of a report as one diff, or applied to the user's files with a patch to undo them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import click

from auditor import patch
from auditor.commands import reading, results
from auditor.commands.results import is_broken
from auditor.errors import AuditProblem
from auditor.model import Edit, Finding, Report
from auditor.patch import PatchedFile, Plan
from auditor.verify.candidates import is_selected

UNDO = "fixes.undo.patch"

Read = Callable[[str], bytes | None]


def fix(
    *,
    report: str,
    apply: bool,
    select: tuple[str, ...],
    unsafe: bool,
    debug: bool,
) -> int:
    """Print or apply; returns the exit code."""
    path, root = Path(report), Path.cwd()
    judged = reading.report_of(path)
    edits = tuple(_edits(_chosen(judged, select), unsafe=unsafe))
    require_plain_values(report, edits)
    standing = _standing(judged, edits, _recorded(path), lambda file: _read(root, file))
    for reason in dict.fromkeys(standing.refused):
        click.echo(f"audit: not patched: {reason}", err=True)
    if apply and standing.changed:
        raise AuditProblem(
            f"{', '.join(standing.changed)} changed since the audit; nothing was patched",
            "run audit again on the files as they are now",
        )
    if not standing.plan.files:
        click.echo(f"audit: {_nothing(standing, unsafe=unsafe)}", err=True)
        return 0
    if not apply:
        sys.stdout.buffer.write(standing.plan.diff)
        sys.stdout.buffer.flush()
        return 0
    _apply(standing, root, (path if path.is_dir() else path.parent) / UNDO)
    return 0


def _apply(standing: Standing, root: Path, undo: Path) -> None:
    back = b"".join(patch.diff_bytes(after, before, path) for path, before, after in standing.back)
    try:
        patch.check(standing.plan, root)
        results.write_whole(undo, back)  # first: nothing is changed that could not be taken back
        patch.write(standing.plan, root)
    except patch.Refused as reason:
        raise AuditProblem(str(reason), "run audit again on the files as they are now") from None
    except OSError as error:
        raise AuditProblem(
            f"{error.filename or undo} cannot be written: {error.strerror}", "look at git diff: some may be patched"
        ) from None
    for file in standing.plan.files:
        click.echo(f"patched {file.path} ({len(file.edits)} change{'s' * (len(file.edits) != 1)})")
    click.echo(f"git apply {undo} takes it back")


# -- how the files stand -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """What is to be done to the files as they are now.

    ``back`` holds (path, bytes to go back to, bytes after) of each file that is to be patched, or was patched before: as it was
    when audited, where that is known. ``changed`` are files that hold anything but what was audited and the report's own edits.
    """

    plan: Plan
    back: tuple[tuple[str, bytes, bytes], ...] = ()
    applied: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def _standing(report: Report, edits: tuple[Edit, ...], recorded: Read | None, read: Read) -> Standing:
    if recorded is None:  # a report alone: its lines are compared with the file's, that is all there is
        plan = patch.plan(edits, read)
        back = tuple((file.path, file.before, file.after) for file in plan.files)
        return Standing(plan, back, refused=tuple(f"{edit.site}: {reason}" for edit, reason in plan.refused))
    planned = patch.plan(edits, recorded)
    every = tuple(_edits(report.findings, unsafe=True))
    before = dict(_patched_before(every, read, recorded))
    still = {file.path: _still_to_do(file, read(file.path), every, recorded) for file in planned.files}
    files = tuple(file for file in still.values() if file is not None and file.before != file.after)
    changed = tuple(path for path, file in still.items() if file is None)
    refused = [f"{edit.site}: {reason}" for edit, reason in planned.refused]
    audited = {file.path: file.before for file in planned.files}
    return Standing(
        Plan(files, planned.refused),
        back=tuple({**before, **{file.path: (file.path, audited[file.path], file.after) for file in files}}.values()),
        applied=tuple(path for path, file in still.items() if file is not None and file.before == file.after),
        changed=changed,
        refused=(*refused, *(f"{path} changed since the audit" for path in changed)),
    )


def _patched_before(every: tuple[Edit, ...], read: Read, recorded: Read) -> Iterable[tuple[str, tuple[str, bytes, bytes]]]:
    """Files that hold some of the report's edits by now: undoing takes these back, too."""
    for file in patch.plan(every, recorded).files:
        now = read(file.path)
        if now is not None and now != file.before and patch.made_already(file.before, now, file.edits) is not None:
            yield file.path, (file.path, file.before, now)


def _still_to_do(file: PatchedFile, current: bytes | None, every: Iterable[Edit], recorded: Read) -> PatchedFile | None:
    """From the file as it is now to what it should be; None if something else changed in it since the audit."""
    if current is None:
        return None
    made = patch.made_already(file.before, current, [edit for edit in every if edit.site.file == file.edits[0].site.file])
    if made is None:
        return None
    after = patch.plan([*made, *file.edits], recorded).files[0].after
    return PatchedFile(file.path, current, after, tuple(edit for edit in file.edits if edit not in made))


def _nothing(standing: Standing, *, unsafe: bool) -> str:
    if standing.applied:
        return f"applied already: {', '.join(standing.applied)}"
    return "nothing to patch" + ("" if unsafe else " (unsafe patches are shown with --unsafe)")


def _recorded(path: Path) -> Read | None:
    recording = reading.recording_of(path)
    return (lambda file: recording.original_bytes(file, Path.cwd())) if recording is not None else None


def _chosen(report: Report, select: tuple[str, ...]) -> Iterable[Finding]:
    """The selected findings, without those whose patch was shown to change the result (``audit verify``)."""
    for finding in report.findings:
        if not is_selected(finding, select):
            continue
        if is_broken(finding):
            click.echo(f"audit: {finding.code} {finding.site}: left out: {finding.verified and finding.verified.note}", err=True)
            continue
        yield finding


def _edits(findings: Iterable[Finding], *, unsafe: bool) -> Iterable[Edit]:
    return (edit for f in findings if f.remedy is not None for edit in f.remedy.edits if edit.safe or unsafe)


# -- what a stranger's report may not do -------------------------------------------------------------------------------


def require_plain_values(report: str, edits: Iterable[Edit]) -> None:
    """Raise :class:`AuditProblem` if an edit would write anything but a name, a number or a flag, or a call with such."""
    for edit in edits:
        if not _writes_plain_values(edit):
            raise AuditProblem(f"{report}: {edit.site}: `{edit.value}` is not what a rule would write", "the report was changed")


def _writes_plain_values(edit: Edit) -> bool:
    if edit.action not in ("set_keyword", "rename_call"):
        return True
    try:
        node: ast.AST = ast.parse(edit.value.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the patch refuses it, and says why
        return True
    if edit.action == "rename_call" and isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and all(map(_plain, (*node.args, *(item.value for item in node.keywords))))
    return _plain(node)


def _plain(node: ast.AST) -> bool:
    if isinstance(node, ast.UnaryOp):
        node = node.operand
    return isinstance(node, ast.Name) or (isinstance(node, ast.Constant) and not isinstance(node.value, (str, bytes)))


def _read(root: Path, file: str) -> bytes | None:
    path = root / file
    try:
        return path.read_bytes() if path.is_file() else None
    except (OSError, ValueError):  # a name that cannot be one, in a report of a stranger's
        return None
