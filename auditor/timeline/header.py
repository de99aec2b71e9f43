"""What a trace says about itself before and after its events; damaged keys are passed over."""

from __future__ import annotations

import json
import re
from typing import Any

from auditor.model.forecasts import MARK
from auditor.timeline.loose import text, whole
from auditor.timeline.trace import Device, Info

_KEY = re.compile(r'[\s,{]*"((?:[^"\\]|\\.)*)"\s*:\s*')
_DECODER = json.JSONDecoder(strict=False)
_FLAGS = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_VERSIONS = (
    "cupti_version",
    "cuda_runtime_version",
    "cuda_driver_version",
    "hip_runtime_version",
    "hip_driver_version",
    "roctracer_version",
)


def info(head: bytes, tail: bytes) -> Info:
    """Facts from the text before and behind the events."""
    keys = _keys(head) | _keys(tail)
    job = keys.get("distributedInfo")
    job = job if isinstance(job, dict) else {}
    versions = [(key, text(keys[key])) for key in _VERSIONS if key in keys]
    if "nccl_version" in job:
        versions.append(("nccl_version", text(job["nccl_version"])))
    return Info(
        devices=_devices(keys.get("deviceProperties")),
        rank=_natural(job.get("rank")),
        world_size=_natural(job.get("world_size")),
        backend=text(job["backend"]) if "backend" in job else None,
        base_ns=whole(keys.get("baseTimeNanoseconds"), 0),
        schema=_natural(keys.get("schemaVersion")),
        flags=tuple(flag for flag in _FLAGS if whole(keys.get(flag), 0) > 0),
        versions=tuple(versions),
        trace_name=text(keys.get("traceName")),
        host=text(keys.get("host_name")),
    )


def forecast_for(head: bytes, tail: bytes) -> str:
    """The GPU of a forecast that is written as a trace; empty for recordings."""
    return text((_keys(head) | _keys(tail)).get(MARK))


def _keys(raw: bytes) -> dict[str, Any]:
    """Top-level keys of a text that is the inside of an object, as far as they can be read."""
    content = raw.decode("utf-8", "replace").lstrip("\ufeff")
    keys: dict[str, Any] = {}
    at = 0
    while found := _KEY.match(content, at):
        try:
            keys[found[1]], at = _DECODER.raw_decode(content, found.end())
        except (ValueError, RecursionError):
            break
    return keys


def _natural(value: Any) -> int | None:
    number = whole(value)
    return number if number >= 0 else None


def _devices(given: Any) -> tuple[Device, ...]:
    entries = (
        [entry for entry in given if isinstance(entry, dict)] if isinstance(given, list) else []
    )
    return tuple(
        Device(
            index=whole(entry.get("id")),
            name=text(entry.get("name")),
            capability=(whole(entry.get("computeMajor"), 0), whole(entry.get("computeMinor"), 0)),
            memory_bytes=whole(entry.get("totalGlobalMem"), 0),
            multiprocessors=whole(entry.get("numSms"), 0),
        )
        for entry in entries
    )
