"""Which patches of a report are tried, each alone: the edits of a finding, or of several findings
that ask for the same change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from auditor import patch, redaction
from auditor.errors import AuditProblem
from auditor.model import Edit, Finding, Report
from auditor.patch import PatchedFile
from auditor.recordings.folder import Recording
from auditor.recordings.sources import content_digest


@dataclass(frozen=True)
class Candidate:
    """One patch: the findings (their places in the report) that it answers, its edits, and the
    files as they become.

    ``rehearsed`` says that only the rehearsal of the GPU path runs the changed line: it can be
    checked there, not timed.
    """

    findings: tuple[int, ...]
    codes: tuple[str, ...]
    name: str
    edits: tuple[Edit, ...]
    files: tuple[PatchedFile, ...]
    rehearsed: bool = False

    @property
    def paths(self) -> frozenset[str]:
        """Files that it changes, relative to the directory of the run."""
        return frozenset(file.path for file in self.files)


def candidates(
    report: Report, recording: Recording, select: Collection[str], *, unsafe: bool
) -> tuple[Candidate, ...]:
    """The patches to try: safe ones (all with ``unsafe``) of the selected codes or families that
    apply to what was recorded.
    """
    found: dict[tuple[bytes, ...], Candidate] = {}
    for number, finding in enumerate(report.findings):
        edits = _edits(finding, unsafe=unsafe)
        if not edits or not finding.is_selected(select):
            continue
        files = patch.plan(edits, recording.original_bytes).files
        if not files:
            continue
        key = tuple(file.after for file in files)
        same = found.get(key)
        if same is None:
            name = f"{finding.code} {finding.site}" if finding.site else finding.code
            rehearsed = finding.seen_on in ("rehearsal", "null") or recording.device.simulated
            found[key] = Candidate((number,), (finding.code,), name, edits, files, rehearsed)
        else:
            found[key] = replace(
                same, findings=(*same.findings, number), codes=(*same.codes, finding.code)
            )
    return tuple(found.values())


def joined(chosen: Iterable[Candidate], recording: Recording) -> Candidate | None:
    """All of them in one patch; None where there is nothing to join. Edits that conflict are left
    out, as in fixes.patch.
    """
    parts = tuple(chosen)
    edits = tuple(edit for part in parts for edit in part.edits)
    files = patch.plan(edits, recording.original_bytes).files
    if not files:
        return None
    findings = tuple(number for part in parts for number in part.findings)
    codes = tuple(code for part in parts for code in part.codes)
    return Candidate(
        findings, codes, "all together", edits, files, all(part.rehearsed for part in parts)
    )


def _edits(finding: Finding, *, unsafe: bool) -> tuple[Edit, ...]:
    if finding.remedy is None:
        return ()
    return tuple(edit for edit in finding.remedy.edits if edit.safe or unsafe)


def require_unchanged(recording: Recording) -> None:
    """Raise :class:`AuditProblem` where the target cannot be run again as it was recorded: then
    nothing could be compared.
    """
    manifest = recording.manifest
    if recording.input != "run" or not manifest.get("passes"):
        raise AuditProblem(
            "only what audit run recorded can be run again",
            "a trace or a snapshot names no program",
        )
    if manifest.get("in_process"):
        raise AuditProblem(
            "this was audited in its own process, which cannot be started again to compare a patch",
            "audit run module:function records a step that another process can import",
        )
    if manifest.get("outcome") != "completed":
        raise AuditProblem(
            f"the audited run did not complete ({manifest.get('outcome')}), so a patched one "
            "cannot be compared"
        )
    if manifest.get("world_size", 1) != 1:
        raise AuditProblem("a job of several processes cannot be verified yet")
    hidden = manifest.get("masked_arguments")
    if hidden and redaction.ARGUMENT_MASK in "".join(manifest.get("argv", ())):
        raise AuditProblem(
            f"the value of {', '.join(hidden)} was masked in the recording, so the target cannot "
            "be run again from it",
            "audit run --verify measures the patches while the arguments are known",
        )
    project = Path(recording.cwd)
    if not project.is_dir():
        raise AuditProblem(f"{project}, where the audit ran, is not there any more")
    for path, stored in sorted((manifest.get("sources") or {}).items()):
        if not str(stored).startswith(f"{_digest(project / path)}-"):
            raise AuditProblem(
                f"{path} has changed since the audit",
                "run audit again on the files as they are now",
            )


def _digest(file: Path) -> str:
    try:
        return content_digest(redaction.redacted(file.read_bytes(), file.suffix)[0])
    except OSError:
        return "missing"
