"""Reading back what a run left: report.json, and the recording beside it."""

from __future__ import annotations

from pathlib import Path

from auditor.errors import AuditProblem
from auditor.judging import catalogue
from auditor.model import Report
from auditor.recordings.folder import MANIFEST, Recording, UnreadableRecording

REPORT = "report.json"
RECORDING = "recording"
GIVE = "give report.json or the folder that audit run wrote"


def report_of(path: Path) -> Report:
    """The report at ``path``, which is report.json or the folder that holds it. Raises
    :class:`AuditProblem`.
    """
    file = path / REPORT if path.is_dir() else path
    try:
        loaded: Report = catalogue.reports("as_json").read(file)
    except OSError as error:
        if path.is_dir() and isinstance(error, FileNotFoundError):
            judges = f"audit analyze {path} writes it" if recording_of(path) is not None else GIVE
            raise AuditProblem(f"{path} holds no {REPORT}", judges) from None
        raise AuditProblem(f"{file} cannot be read: {error.strerror}", GIVE) from None
    except ValueError as error:
        page = file.suffix == ".html"
        hint = (
            f"the page is for people; give {REPORT} beside it: {file.with_suffix('.json')}"
            if page
            else GIVE
        )
        raise AuditProblem(f"{file}: {error}", hint) from None
    return loaded


def recording_of(path: Path) -> Recording | None:
    """The recording that a report was made from, beside it or around it; None if it is not there
    any more.

    Raises :class:`AuditProblem` for one that cannot be read.
    """
    home = path if path.is_dir() else path.parent
    for folder in (home / RECORDING, home):
        if (folder / MANIFEST).is_file():
            try:
                return Recording(folder)
            except UnreadableRecording as error:
                raise AuditProblem(str(error)) from None
    return None
