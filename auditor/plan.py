"""What the parent asks the recording child to do: plain data that both sides of the process seam read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Literal

TRACE_STEPS = 5
"""Steps of the trace pass, under torch.profiler and nothing else: a trace takes 1-2 MB per step before compression."""

ORIGIN_STEPS = 3
"""Steps of the origin pass: it runs two Python dispatch modes, several times slower than the step itself."""

NUMBERS_STEPS = 3
"""Steps of the numbers pass: it runs a Python dispatch mode, several times slower than the step itself."""

MEMORY_STEPS = 3
"""Steps of the memory pass (CUDA): allocation history with stacks."""

REPLAY = "replay"
"""Folder of a replay's own recording, inside the one that it explains."""

REPLAY_PARTS = ("births", "nonfinite")
"""What a replay of a step that ended with non-finite gradients or parameters looks for."""

REHEARSAL = "rehearsal"
"""Folder of the rehearsal's own recording, inside the one of the CPU passes."""

REHEARSED_STEPS = 12
"""Steps that are judged in a rehearsal: enough to tell "each step" from "every tenth", and each takes several times as long."""

REHEARSED_WARMUP = 2
"""Steps before them: optimizer states and lazily built modules are made in the first."""

LEANER_STEPS = ("", "gradients", "", "foreach", "")
"""What is changed in the steps at a rehearsal's end that look for a lower peak of memory: nothing, or one thing."""

LEAST_REHEARSED = 6
"""A rehearsal that ends before so many judged steps says nothing."""

RANK_FOLDER = "rank"
"""Folders of the processes' own recordings: ``rank0``, ``rank1``, ..."""

WATCHED_STEPS = 16
"""Steps before the bad one that a replay watches at most (of gradient accumulation): each takes about ten times as long."""


Device = Literal["auto", "cuda", "cpu", "rehearse"]

SYNC_STEPS = 3
"""Loud steps of a trial on a GPU."""


@dataclass(frozen=True)
class Loaders:
    """The DataLoaders that are made at ``line`` of ``file`` (relative to the working directory), with other ``arguments``."""

    file: str
    line: int
    arguments: Mapping[str, int]


@dataclass(frozen=True)
class Trial:
    """A run that ``audit verify`` measures, with all random generators seeded, and other arguments for ``loaders``."""

    seed: int
    loaders: Loaders | None = None


JOURNAL = "journal.jsonl"
"""File in ``Copied.kept``: one row for each file outside of the copy that a run made, changed or removed."""


@dataclass(frozen=True)
class Copied:
    """That the target runs in ``folder``, a copy of ``original``, and imports from there what it would import from ``original``.

    ``root`` is the temporary folder that holds the copy and links to what lies around the original. What the run replaces
    outside of it is kept in the folder ``kept``, and put back by the parent.
    """

    folder: str
    original: str
    root: str
    kept: str


What = Literal["", "nan", "inf", "oom", "kill"]
Where = Literal["batch", "activation", "gradient"]


@dataclass(frozen=True)
class Drill:
    """What a drill plants in its run: ``what`` at ``step`` (0-based), in a place of the step; ``""`` leaves it undisturbed."""

    what: What = ""
    step: int = 0
    where: Where = "batch"


@dataclass(frozen=True)
class Plan:
    """One recording to make. ``steps`` and ``warmup`` count steps of one pass; ``parts`` are the parts that rules need.

    With ``replay_step`` it is a replay: that many steps as they come, without passes, and then the one to be explained;
    operators are watched from step ``replay_from`` on. ``rehearsed`` are the parts that the rehearsal records.
    ``memory_limit`` in bytes of device memory, of a real device or the shadow. ``world_size`` processes run the target, of
    which this is number ``rank``; they meet at port ``rendezvous`` of this machine. With ``drill`` all steps are one pass,
    watched for what becomes of a planted fault. With ``copied`` the target runs in a copy, else where we do.
    With ``trial`` it ends after the quiet pass (on a GPU, a few loud steps count its host syncs).
    ``shown_args`` are ``args`` with secrets masked: what is written down in the place of them.
    """

    target: str
    args: tuple[str, ...]
    steps: int
    warmup: int
    device: Device
    folder: str
    parts: tuple[str, ...]
    progress_fd: int | None = None
    quiet_steps: int | None = None
    loud_steps: int | None = None
    trace_steps: int = TRACE_STEPS
    replay_step: int | None = None
    replay_from: int = 0
    rehearsed: tuple[str, ...] = ()
    memory_limit: int | None = None
    drill: Drill | None = None
    copied: Copied | None = None
    world_size: int = 1
    rank: int | None = None
    rendezvous: int = 0
    trial: Trial | None = None
    shown_args: tuple[str, ...] | None = None

    @property
    def watched(self) -> range:
        """Steps of a replay that run under the watch of single operators."""
        return range(0) if self.replay_step is None else range(self.replay_from, self.replay_step + 1)

    def replay(self, bad: int, last_good: int) -> Plan:
        """The plan that explains step ``bad`` of this one; after ``last_good`` all was still finite (-1: never looked)."""
        first = max(0, min(bad - 1, max(last_good + 1, bad - WATCHED_STEPS)))
        folder = f"{self.folder}/{REPLAY}"
        return replace(self, folder=folder, parts=REPLAY_PARTS, trace_steps=0, replay_step=bad, replay_from=first)

    def rehearsal(self) -> Plan:
        """The plan of the same target's GPU path on the shadow device, beside this one."""
        return replace(self, folder=f"{self.folder}/{REHEARSAL}", parts=self.rehearsed).on_shadow(REHEARSED_STEPS)

    def on_shadow(self, steps: int) -> Plan:
        """The same plan with the shadow device: one pass for causes, no times, no trace."""
        warmup = min(self.warmup, REHEARSED_WARMUP)
        return replace(self, device="rehearse", steps=steps, warmup=warmup, trace_steps=0, quiet_steps=0, loud_steps=None)

    def fitted(self, available: int) -> Plan:
        """The same plan for a target that ends after ``available`` steps: a short warm-up, the rest shared out."""
        warmup = min(self.warmup, max(1, available // 10))
        if self.device == "rehearse":
            return replace(self, warmup=warmup, steps=max(1, min(self.steps, available - warmup - 1)))
        traced = min(self.trace_steps, available // 10)
        rest = max(2, available - warmup - traced - NUMBERS_STEPS - ORIGIN_STEPS)
        half = min(self.steps, max(1, rest // 2))
        loud = min(self.steps, max(1, rest - half))
        return replace(self, warmup=warmup, quiet_steps=half, loud_steps=loud, trace_steps=traced)

    def to_json(self) -> str:
        """The plan as one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Plan:
        """Inverse of :meth:`to_json`."""
        data = json.loads(text)
        for name in ("args", "parts", "rehearsed", "shown_args"):
            data[name] = tuple(data[name]) if data[name] is not None else None
        if data["trial"] and data["trial"]["loaders"]:
            data["trial"]["loaders"] = Loaders(**data["trial"]["loaders"])
        for name, kind in (("copied", Copied), ("drill", Drill), ("trial", Trial)):
            data[name] = kind(**data[name]) if data[name] else None
        return Plan(**data)
