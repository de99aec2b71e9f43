"""What takes the place of a recording: a file from wherever, judged alone."""

from __future__ import annotations

from pathlib import Path

from auditor.model.devices import Input
from auditor.recordings.folder import SCHEMA, Recording


class StandaloneRecording(Recording):
    """A recording without any part; what lies beside the file is not looked at. ``what`` says what
    kind of file it is.
    """

    def __init__(
        self, folder: Path, target: str, what: Input, warnings: tuple[str, ...] = ()
    ) -> None:
        manifest = {
            "schema": SCHEMA,
            "target": target,
            "cwd": "",
            "device": what,
            "outcome": "completed",
            "sources": {},
            "parts": [],
            "passes": [],
            "recorded_at": "",
            "environment": {},
            "warnings": list(warnings),
        }
        super().__init__(folder, manifest)

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

    def part_file(self, part: str) -> Path | None:
        """None, whatever lies beside the file."""
        return None
