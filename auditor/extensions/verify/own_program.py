"""Which program a recording may have run again: recordings may be a stranger's."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from auditor import patch
from auditor.errors import AuditProblem
from auditor.recordings.folder import Recording
from auditor.runs import target as targets


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


AGAIN = "audit run TARGET --verify measures the patches of a run of your own"
