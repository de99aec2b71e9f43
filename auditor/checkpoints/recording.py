"""Checkpoints in the place of a recording: what ``audit checkpoint`` judges."""

from __future__ import annotations

from pathlib import Path

from auditor.checkpoints.contents import Scan
from auditor.checkpoints.settings import Setting
from auditor.recording import SCHEMA, Recording


class CheckpointRecording(Recording):
    """Scanned checkpoints and the settings to compare them with; a recording without any part."""

    def __init__(self, scans: tuple[Scan, ...], settings: tuple[Setting, ...] = ()) -> None:
        self.folder = Path(scans[0].path).parent
        self.scans, self.settings = scans, settings
        names = [Path(scan.path).name for scan in scans]
        self.manifest = {
            "schema": SCHEMA,
            "target": names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more",
            "cwd": "",
            "device": "checkpoint",
            "outcome": "completed",
            "sources": {},
            "parts": [],
            "passes": [],
            "recorded_at": "",
            "environment": {},
            "warnings": [f"{Path(scan.path).name}: {limit}" for scan in scans for limit in scan.limits],
        }

    @property
    def trace(self) -> Path | None:
        """There is none."""
        return None

    def inside(self, name: str) -> None:
        """Nothing lies inside."""

    def has(self, part: str) -> bool:
        """Nothing was recorded."""
        return False
