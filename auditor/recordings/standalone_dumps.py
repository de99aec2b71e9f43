"""Dumps of torch's flight recorder, one for each rank of a job that hung: what ``audit analyze
FOLDER`` judges.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from auditor.recordings.standalone import StandaloneRecording
from auditor.recordings.standalone_snapshot import is_pickle

RANK = re.compile(r"(\d{1,6})(?:\.(?:pickle|pkl|json))?(?:\.gz)?$")
"""How the name of a dump ends: ``nccl_trace_rank_7`` unless TORCH_FR_DUMP_TEMP_FILE says otherwise."""

MARKS = (b"pg_config", b"pg_status", b"nccl_comm_state", b"collective_seq_id")
OF_TRACES = (b'"schemaVersion"', b'"traceEvents"', b'"distributedInfo"')
"""What the head of a profiler's trace has, which may name the process groups as well."""

HEAD = 1 << 16
"""Bytes of a file in which one of the marks stands."""


def is_dump(path: Path) -> bool:
    """Whether the file begins as torch writes a dump, as a pickle or as JSON."""
    if RANK.search(path.name) is None or not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError:
        return False
    is_json = head.lstrip()[:1] == b"{" and not any(mark in head for mark in OF_TRACES)
    begins = is_json or is_pickle(path)
    return begins and any(mark in head for mark in MARKS)


def dump_files(folder: Path) -> dict[int, Path]:
    """The dumps of a folder by rank; of two of one rank the one that is named first."""
    found: dict[int, Path] = {}
    for path in sorted(folder.iterdir()):
        if is_dump(path):
            found.setdefault(rank_of(path), path)
    return found


def rank_of(path: Path) -> int:
    """Of the rank whose dump it is, the number."""
    named = RANK.search(path.name)
    return int(named[1]) if named is not None else 0


class DumpsRecording(StandaloneRecording):
    """Dumps that stand alone, by rank."""

    def __init__(self, folder: Path, dumps: Mapping[int, Path]) -> None:
        name = folder.name or folder.resolve().name
        super().__init__(folder, f"{name}/", "dump")
        self.dumps = dumps
        self.home = folder
        self.manifest["world_size"] = max(dumps) + 1
