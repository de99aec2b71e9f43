"""Which findings' lines can be opened in the user's editor: those of files that lie on this machine
as they were recorded.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from auditor.model import Site, editors
from auditor.recordings.folder import Recording


def links(recording: Recording, sites: Iterable[Site | None], template: str) -> dict[str, str]:
    """By ``file:line``; none where ``template`` is empty."""
    found: dict[str, str] = {}
    local: dict[str, Path | None] = {}
    for site in sites if template else ():
        if site is None:
            continue
        if site.file not in local:
            local[site.file] = _local(recording, site.file)
        path = local[site.file]
        if path is not None:
            found[str(site)] = editors.link(template, path.as_posix(), site.line)
    return found


def _local(recording: Recording, file: str) -> Path | None:
    """Where a recorded file lies here; None where it does not, or holds something else by now."""
    recorded = recording.original_bytes(file)
    if recorded is None or not recording.cwd:
        return None
    try:
        path = (Path(recording.cwd) / file).absolute()
        same = path.is_file() and path.stat().st_size == len(recorded)
        return path if same and path.read_bytes() == recorded else None
    except (OSError, ValueError):
        return None
