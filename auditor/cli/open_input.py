"""Reading back what a run left: report.json, and the recording beside it."""

import difflib
from pathlib import Path

from auditor.errors import AuditProblem
from auditor.judging import catalogue
from auditor.model import Report
from auditor.recordings.folder import MANIFEST, Recording, UnreadableRecording
from auditor.runs.rank_recordings import RankedRecording, is_ranked

REPORT = "report.json"
RECORDING = "recording"
GIVE = "give report.json or the folder that audit run wrote"


def require_exists(path: Path, give: str) -> None:
    """Raise :class:`AuditProblem` for no file or an empty one; ``give`` is advice."""
    if not path.exists():
        there = [each.name for each in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, there, n=1)
        raise AuditProblem(
            f"{path} does not exist", f"did you mean {path.parent / near[0]}?" if near else give
        )
    if not (path.is_file() or path.is_dir()):
        raise AuditProblem(f"{path} is neither a file nor a folder", give)
    if path.is_file() and not path.stat().st_size:
        raise AuditProblem(f"{path} is empty: what wrote it did not finish", give)


def report_of(path: Path) -> Report:
    """The report at ``path``: report.json or its folder. Raises :class:`AuditProblem`."""
    require_exists(path, GIVE)
    file = path / REPORT if path.is_dir() else path
    if file.exists():
        require_exists(file, GIVE)
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


def ranked_recording_of(path: Path) -> RankedRecording | None:
    """That of the ranks of a job in a folder, or in its ``recording``; None if there is none.

    Raises :class:`AuditProblem` for one that cannot be read.
    """
    for folder in (path, path / RECORDING):
        if is_ranked(folder):
            try:
                return RankedRecording(folder)
            except UnreadableRecording as error:
                raise AuditProblem(str(error)) from None
    return None


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
