"""What stands in the place of a recording: a file from wherever, judged by itself."""

from __future__ import annotations

from pathlib import Path

from auditor.recording import SCHEMA, Recording, Row


class BareRecording(Recording):
    """A recording without any part; what lies beside the file is not looked at. ``device`` says what kind of file it is."""

    def __init__(self, folder: Path, target: str, device: str, warnings: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.manifest = {
            "schema": SCHEMA,
            "target": target,
            "cwd": "",
            "device": device,
            "outcome": "completed",
            "sources": {},
            "parts": [],
            "passes": [],
            "recorded_at": "",
            "environment": {},
            "warnings": list(warnings),
        }

    @property
    def trace(self) -> Path | None:
        """None, unless the file is one."""
        return None

    @property
    def snapshot(self) -> Path | None:
        """None, unless the file is one."""
        return None

    def inside(self, name: str) -> Recording | None:
        """Nothing lies inside a file."""
        return None

    def has(self, part: str) -> bool:
        """Nothing was recorded beside the file."""
        return False

    def rows(self, part: str) -> list[Row]:
        """None, whatever lies beside the file."""
        return []
