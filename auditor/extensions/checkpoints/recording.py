"""Checkpoints in the place of a recording: what ``audit checkpoint`` judges."""

from __future__ import annotations

from pathlib import Path

from auditor.evidence.scans import Scan, Setting
from auditor.recordings.standalone import StandaloneRecording


class CheckpointRecording(StandaloneRecording):
    """Scanned checkpoints and the settings to compare them with."""

    def __init__(self, scans: tuple[Scan, ...], settings: tuple[Setting, ...] = ()) -> None:
        names = [Path(scan.path).name for scan in scans]
        target = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        limits = tuple(
            f"{Path(scan.path).name}: {limit}" for scan in scans for limit in scan.limits
        )
        super().__init__(Path(scans[0].path).parent, target, "checkpoint", limits)
        self.scans, self.settings = scans, settings
