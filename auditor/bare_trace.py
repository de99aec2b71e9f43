"""A trace without a recording around it: what ``audit analyze trace.json.gz`` judges."""

from __future__ import annotations

from pathlib import Path

from auditor.recording import SCHEMA, Recording


class TraceRecording(Recording):
    """A trace that stands alone, from wherever: a recording without any part, judged by what a trace shows."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self.manifest = {
            "schema": SCHEMA,
            "target": path.name,
            "cwd": "",
            "device": "trace",
            "outcome": "completed",
            "sources": {},
            "parts": [],
            "passes": [],
            "recorded_at": "",
            "environment": {},
            "warnings": [],
        }
        self._path = path

    @property
    def trace(self) -> Path | None:
        """The file itself."""
        return self._path

    @property
    def snapshot(self) -> Path | None:
        """None, whatever lies beside the file."""
        return None

    def has(self, part: str) -> bool:
        """Nothing was recorded beside the trace."""
        return False
