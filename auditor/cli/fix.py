"""``audit fix``: the patches of a report as one diff, or applied, with a patch to undo them."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from auditor import patch
from auditor.cli import console, open_input, rejudged, write_results
from auditor.cli.write_results import is_broken
from auditor.errors import AuditProblem
from auditor.judging import catalogue
from auditor.model import Edit, Finding, Report
from auditor.patch import PatchedFile, Plan
from auditor.recordings.folder import Recording

UNDO = "fixes.undo.patch"

Read = Callable[[str], bytes | None]


def fix(*, report: str, apply: bool, check: bool, select: tuple[str, ...], unsafe: bool) -> int:
    """Print, apply or check; returns the exit code."""
    if apply and check:
        raise AuditProblem("give --apply or --check, not both")
    path, root = Path(report), Path.cwd()
    told, home = open_input.report_of(path), path if path.is_dir() else path.parent
    recording = open_input.ranked_recording_of(home) or open_input.recording_of(path)
    if recording is None:
        if apply or check:
            raise AuditProblem(
                f"{report}: the recording that patches are made from is not beside it",
                "give the folder that audit run wrote, or run audit again",
            )
        return _show(_chosen(told, select), unsafe=unsafe)
    judged = rejudged.judged_again(told, recording)
    chosen = tuple(_chosen(judged, select))
    edits = tuple(_edits(chosen, unsafe=unsafe))
    mine = tuple(edit for edit in edits if _is_own(edit, root))
    _require_here(recording, root, mine)

    def recorded(file: str) -> bytes | None:
        return recording.original_bytes(file, root)

    standing = _standing(judged, mine, recorded, root)
    for reason in dict.fromkeys(standing.refused):
        console.say(f"audit: not patched: {reason}", err=True)
    if (apply or check) and standing.changed:
        raise AuditProblem(
            f"{', '.join(standing.changed)} changed since the audit; nothing was "
            + ("patched" if apply else "checked"),
            _way_there(recording, root) or "run audit again on the files as they are now",
        )
    if not standing.plan.files:
        console.say(f"audit: {_nothing(standing, unsafe=unsafe)}", err=True)
        return 0
    if check:
        return _listed(chosen, standing.plan)
    if not apply:
        console.hand_over(standing.plan.diff)
        return 0
    _apply(standing, root, home / UNDO)
    return 0


def _show(chosen: Iterable[Finding], *, unsafe: bool) -> int:
    """The diffs as the report has them, for people."""
    remedies = [each.remedy for each in chosen if each.remedy is not None and each.remedy.diff]
    diffs = dict.fromkeys(each.diff for each in remedies if each.safe or unsafe)
    for diff in diffs:
        for line in (diff or "").rstrip("\n").split("\n"):
            console.say(line)
    said = "its recording is not beside the report: --apply needs it" if diffs else ""
    console.say(f"audit: {said or _nothing(Standing(Plan((), (), '')), unsafe=unsafe)}", err=True)
    return 0


def _is_own(edit: Edit, root: Path) -> bool:
    """True for an edit of a source of the user's; else says why it is not made."""
    file = edit.site.file
    if not _is_mine(file, root):
        console.say(
            f"audit: not patched: {file} lies outside {root}; if it is yours, put PYTHONPATH="
            f"{shlex.quote(os.path.dirname(file))} before the command",
            err=True,
        )
        return False
    try:
        patch.require_own_file(root, file, edit.action)
    except patch.Refused as reason:
        console.say(f"audit: not patched: {edit.site}: {reason}", err=True)
        return False
    return True


def _require_here(recording: Recording, root: Path, edits: Iterable[Edit]) -> None:
    """Raises :class:`AuditProblem` in a folder without any of the files to be patched."""
    files = dict.fromkeys(edit.site.file for edit in edits)
    if files and all(_read_file(root, file) is None for file in files):
        raise AuditProblem(
            f"{next(iter(files))} is not in {root}, nor is any other file of the patches",
            _way_there(recording, root) or "give the command in the folder in which the audit ran",
        )


def _way_there(recording: Recording, root: Path) -> str:
    there = recording.cwd
    return f"cd {shlex.quote(there)}" if there and Path(there) != root else ""


def _listed(chosen: Iterable[Finding], plan: Plan) -> int:
    """One line for each finding that has a patch still to be applied, as a compiler says it."""
    waiting = [edit for file in plan.files for edit in file.edits]
    for finding in chosen:
        remedy = finding.remedy
        if remedy is not None and any(edit in waiting for edit in remedy.edits):
            console.say(catalogue.reports("failures").line(finding))
    return 1


def _apply(standing: Standing, root: Path, undo: Path) -> None:
    try:
        back = patch.joined_diff(
            ((path, after, before) for path, before, after in standing.back), str(root)
        )
        patch.check(standing.plan, root)
        # first: nothing is changed that could not be taken back
        write_results.write_whole(undo, back)
        patch.write(standing.plan, root)
    except patch.Refused as reason:
        raise AuditProblem(str(reason), "run audit again on the files as they are now") from None
    except OSError as error:
        raise AuditProblem(
            f"{error.filename or undo} cannot be written: {error.strerror}",
            "look at git diff: some files may be patched already",
        ) from None
    for file in standing.plan.files:
        console.say(f"patched {file.path} ({len(file.edits)} change{'s' * (len(file.edits) != 1)})")
    base = patch.place_of((path for path, _, _ in standing.back), str(root))
    console.say(
        f"git -C {base} apply {undo.resolve()} takes it back"
        if base
        else f"git apply {undo} takes it back"
    )


# -- how the files stand ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Standing:
    """What is to be done to the files as they are now.

    ``back`` holds (path, bytes to go back to, bytes after) of each file that is to be patched, or
    was patched before: as it was when audited, where that is known. ``changed`` are files that hold
    anything but what was audited and the report's own edits.
    """

    plan: Plan
    back: tuple[tuple[str, bytes, bytes], ...] = ()
    applied: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def _standing(report: Report, edits: tuple[Edit, ...], recorded: Read, root: Path) -> Standing:
    cwd = str(root)

    def read(file: str) -> bytes | None:
        return _read_file(root, file)

    planned = patch.plan(edits, recorded, cwd=cwd)
    every = tuple(_edits(report.findings, unsafe=True))
    before = dict(_patched_before(every, read, recorded, cwd))
    still = {
        file.path: _still_to_do(file, read(file.path), every, recorded, cwd)
        for file in planned.files
    }
    files = tuple(file for file in still.values() if file is not None and file.before != file.after)
    changed = tuple(path for path, file in still.items() if file is None)
    refused = [f"{edit.site}: {reason}" for edit, reason in planned.refused]
    audited = {file.path: file.before for file in planned.files}
    return Standing(
        Plan(files, planned.refused, cwd),
        back=tuple(
            {
                **before,
                **{file.path: (file.path, audited[file.path], file.after) for file in files},
            }.values()
        ),
        applied=tuple(
            path for path, file in still.items() if file is not None and file.before == file.after
        ),
        changed=changed,
        refused=(*refused, *(f"{path} changed since the audit" for path in changed)),
    )


def _patched_before(
    every: tuple[Edit, ...], read: Read, recorded: Read, cwd: str
) -> Iterable[tuple[str, tuple[str, bytes, bytes]]]:
    """Files that hold some of the report's edits by now: undoing takes these back, too."""
    for file in patch.plan(every, recorded, cwd=cwd).files:
        now = read(file.path)
        if (
            now is not None
            and now != file.before
            and patch.made_already(file.before, now, file.edits) is not None
        ):
            yield file.path, (file.path, file.before, now)


def _still_to_do(
    file: PatchedFile, current: bytes | None, every: Iterable[Edit], recorded: Read, cwd: str
) -> PatchedFile | None:
    """From the file as it is now to what it should be; None if it changed otherwise."""
    if current is None:
        return None
    made = patch.made_already(
        file.before, current, [edit for edit in every if edit.site.file == file.edits[0].site.file]
    )
    if made is None:
        return None
    after = patch.plan([*made, *file.edits], recorded, cwd=cwd).files[0].after
    return PatchedFile(
        file.path, current, after, tuple(edit for edit in file.edits if edit not in made)
    )


def _nothing(standing: Standing, *, unsafe: bool) -> str:
    if standing.applied:
        return f"applied already: {', '.join(standing.applied)}"
    return "nothing to patch" + ("" if unsafe else " (unsafe patches are shown with --unsafe)")


def _chosen(report: Report, select: tuple[str, ...]) -> Iterable[Finding]:
    """The selected findings whose patch was not shown to change the result (``audit verify``)."""
    for finding in report.findings:
        if not finding.is_selected(select):
            continue
        if is_broken(finding):
            console.say(
                f"audit: {finding.code} {finding.site}: left out: "
                f"{finding.verified and finding.verified.note}",
                err=True,
            )
            continue
        yield finding


def _edits(findings: Iterable[Finding], *, unsafe: bool) -> Iterable[Edit]:
    return (
        edit
        for f in findings
        if f.remedy is not None
        for edit in f.remedy.edits
        if edit.safe or unsafe
    )


def _is_mine(file: str, root: Path) -> bool:
    return not Path(file).is_absolute() or patch.is_theirs(file, str(root))


def _read_file(root: Path, file: str) -> bytes | None:
    path = root / file
    if not _is_mine(file, root):
        return None
    try:
        return path.read_bytes() if path.is_file() else None
    except (OSError, ValueError):  # a name that cannot be one, in a report of a stranger's
        return None
