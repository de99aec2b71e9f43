"""Runs of profiled.py on the null device, and the traces that they wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import Any

import torch_null_device

PROGRAM = Path(__file__).with_name("profiled.py")
MARK = 0x6E756C00
"""The context of a null device's events, less the device's number (README.md)."""


def environment(devices: int, **more: str) -> dict[str, str]:
    """Of a process on the null device."""
    return {
        **os.environ,
        **torch_null_device.environment("H100", devices),
        "OMP_NUM_THREADS": "1",
        **more,
    }


class Run:
    """The named parts of profiled.py, run in one process; their traces and facts lie in
    `folder`.
    """

    def __init__(self, folder: Path, *parts: str, devices: int = 1, **more: str) -> None:
        command = [sys.executable, str(PROGRAM), str(folder), *parts]
        self.folder = folder
        self.result = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=240,
            env=environment(devices, **more),
            check=False,
        )
        assert self.result.returncode == 0, self.result.stderr[-4000:]

    def facts(self, part: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / f"facts-{part}.json").read_text())
        return found

    def trace(self, name: str) -> Trace:
        return Trace(self.folder / f"{name}.json")


class Trace:
    """A trace as written: its events by category."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.document: dict[str, Any] = json.loads(path.read_text())
        self.events: list[dict[str, Any]] = self.document["traceEvents"]

    def of(self, *categories: str) -> list[dict[str, Any]]:
        """Whole events of these categories in the order of their beginnings."""
        found = [
            event for event in self.events if event.get("cat") in categories and event["ph"] == "X"
        ]
        return sorted(found, key=lambda event: (event["ts"], event["args"].get("correlation", 0)))

    @cached_property
    def work(self) -> list[dict[str, Any]]:
        """All that the device did."""
        return self.of("kernel", "gpu_memcpy", "gpu_memset")

    @cached_property
    def calls(self) -> dict[int, dict[str, Any]]:
        """Calls of the runtime and the driver by correlation."""
        found = self.of("cuda_runtime", "cuda_driver")
        assert len({event["args"]["correlation"] for event in found}) == len(found), (
            "two calls have one correlation"
        )
        return {event["args"]["correlation"]: event for event in found}

    def names(self, *categories: str) -> Counter[str]:
        return Counter(event["name"] for event in self.of(*categories))


def sizes(trace: Trace) -> list[tuple[str, int]]:
    """Kind and bytes of each copy in order."""
    return [(event["name"], event["args"]["bytes"]) for event in trace.of("gpu_memcpy")]
