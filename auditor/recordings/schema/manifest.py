"""Types of the manifest's fields, as far as readers lean on them: a recording may be a
stranger's.
"""

from __future__ import annotations

from typing import Literal, TypedDict

from auditor.model import Outcome


class _Pass(TypedDict):
    name: str
    steps: int


class _Probe(TypedDict, total=False):
    error: str
    parts: list[str]


class _Error(TypedDict, total=False):
    type: str
    message: str
    traceback: str
    step: int | None
    pass_name: str | None
    file: str | None
    line: int
    function: str
    time_us: float
    under: list[str]


class Manifest(TypedDict, total=False):
    """Fields of ``manifest.json`` that readers lean on; one with a field of another type is
    refused.
    """

    target: str
    argv: list[str]
    cwd: str
    kind: str
    target_files: list[str]
    configs: list[str]
    steps: int
    warmup: int
    world_size: int
    rank: int | None
    device: str
    passes: list[_Pass]
    planned: list[_Pass]
    spared: dict[str, int]
    cut: dict[str, int]
    parts: list[str]
    probes: dict[str, _Probe]
    outcome: Outcome | Literal["not run"]
    error: _Error | None
    environment: dict[str, str]
    sources: dict[str, str]
    masked: dict[str, list[int]]
    masked_arguments: list[str]
    withheld: list[str]
    recorded_at: str
    in_process: bool
    null_device: dict[str, str]
    warnings: list[str]
