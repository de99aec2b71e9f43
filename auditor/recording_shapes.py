"""Types of what a recording holds, as far as readers lean on them: a recording may be a stranger's."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

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


class _Rerun(TypedDict, total=False):
    passes: list[str]
    steps: int


class Manifest(TypedDict, total=False):
    """Fields of ``manifest.json`` that readers lean on; one with a field of another type is refused."""

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
    warnings: list[str]
    rerun: _Rerun | None


class _Counters(TypedDict, total=False):
    gc_us: float
    queued_us: float
    start_us: float
    unix_us: float
    rss: int
    allocated: int
    reserved: int
    peak_allocated: int
    retries: int
    ooms: int


class _Waited(TypedDict, total=False):
    wait_us: float


_Counted = TypedDict("_Counted", {"pass": str, "step": int})
_Timed = TypedDict("_Timed", {"pass": str, "step": int, "us": float})


class _Site(TypedDict):
    id: int
    file: str
    line: int
    function: str


class _Sign(TypedDict):
    sign: str


class _Training(TypedDict, total=False):
    watched: int
    operators: int
    graphs: int


class _Lapse(TypedDict):
    probe: str
    parts: list[str]
    error: str


ROWS: dict[str, tuple[Any, ...]] = {
    "steps": (_Timed, _Counters),
    "device_times": (_Timed,),
    "batches": (_Counted, _Waited),
    "sites": (_Site,),
    "training": (_Sign, _Training),
    "lapses": (_Lapse,),
}
"""By part: fields of the rows that more than one rule leans on; a row of another shape is passed over. The other parts are
checked by the rules that read them: a rule that cannot is *failed*."""
