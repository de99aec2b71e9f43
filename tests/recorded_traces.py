"""Recorded traces and snapshots with their ground truth.

Those of ``tests/recordings`` are always there, a larger collection only beside some checkouts.
"""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

OURS = Path(__file__).resolve().parent / "recordings"
BESIDE = Path(__file__).resolve().parents[2] / "shared" / "traces"
"""A larger collection of real traces, which no clone brings along."""


@dataclass(frozen=True)
class Recorded:
    """A file and what a reader that shares no code with ours says of it (``truth.json``)."""

    path: Path
    truth: dict[str, Any]


def collected(folder: Path) -> dict[str, Recorded]:
    """Each file that a folder's ``truth.json`` knows, by its path under ``data``."""
    return {
        key: Recorded(folder / "data" / key, entry)
        for key, entry in _truth(folder).get("files", {}).items()
    }


def rank_sets(folder: Path) -> dict[str, Recorded]:
    """Folders with the traces of a job's ranks."""
    return {
        key: Recorded(folder / "data" / key, entry)
        for key, entry in _truth(folder).get("rank_sets", {}).items()
    }


@cache
def _truth(folder: Path) -> dict[str, Any]:
    file = folder / "truth.json"
    return json.loads(file.read_text()) if file.is_file() else {}


def _of(kind: str) -> dict[str, Recorded]:
    found = {**collected(OURS), **collected(BESIDE)}
    return {key: one for key, one in sorted(found.items()) if one.truth.get("kind") == kind}


TRACES = _of("trace")
SNAPSHOTS = _of("memory_snapshot")
RANK_SETS = {**rank_sets(OURS), **rank_sets(BESIDE)}
