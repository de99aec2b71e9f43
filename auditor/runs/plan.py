"""What the parent asks the recording child to do: plain data for both sides of the seam."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeVar

import msgspec

from auditor.runs.repeat import Repeat
from auditor.typed_reading import convert

TRACE_STEPS = 5
"""Steps under torch.profiler and nothing else: a trace takes 1-2 MB per step, unpacked."""

OVERHEAD_S = 60.0
"""What passes after the timing pass may take together, and a rehearsal as much again."""

REPLAY = "replay"
"""Folder of a replay's own recording, inside the one that it explains."""

REPLAY_PARTS = ("births", "nonfinite")
"""What a replay of a step that ended with non-finite gradients or parameters looks for."""

OOM_RUN = "oom"
"""Folder of a run up to an out-of-memory error with a history, inside the one without."""

REHEARSAL = "rehearsal"
"""Folder of the rehearsal's own recording, inside the one of the CPU passes."""

BESIDE = "beside"
"""Folder of a rehearsal that is made while the main run goes on, in its place until both are over."""

NULL_RUN = "null"
"""Folder of the run on the null device, inside the recording of the CPU passes."""

REHEARSED_STEPS = 12
"""Steps judged in a rehearsal: enough to tell "each" from "every tenth"; each is slow."""

REHEARSED_SLOWER = 6.0
"""Times that a step takes in a rehearsal, at most as a rule."""

LEANER_STEPS = ("", "gradients", "", "foreach", "largest")
"""What is changed in a rehearsal's last steps, for a lower peak: nothing, or one thing."""

LEAST_REHEARSED = 6
"""Least judged steps of a rehearsal; a shorter one says nothing."""

LEAST_FAILED = 4
"""Steps before a failure for a rehearsal to say anything: one warms up, three show a pattern."""

AGAIN_S, AGAIN = 120.0, 20.0
"""Time limit of a further run: seconds, plus this multiple of the first run's to that step."""

RANK_FOLDER = "rank"
"""Folders of the processes' own recordings: ``rank0``, ``rank1``, ..."""

WATCHED_STEPS = 16
"""Steps before the bad one that a replay watches at most: each takes ten times as long."""


Device = Literal["auto", "cuda", "cpu", "rehearse", "null"]


class Trial(msgspec.Struct, frozen=True, tag=True):
    """A run that ``audit verify`` measures, with all random generators seeded."""

    seed: int


JOURNAL = "journal.jsonl"
"""File in ``Copied.kept``: a row per file outside of the copy that a run made or changed."""

OUTSIDE = "outside"
"""File in ``Copied.kept``: what a run ``beside`` another wanted to write outside of the copy."""


@dataclass(frozen=True)
class Copied:
    """That the target runs in ``folder``, a copy of ``original``, and imports from there what it
    would import from ``original``.

    ``root`` is the temporary folder that holds the copy and links to what lies around the original.
    What the run replaces outside of it is kept in the folder ``kept``, and put back by the parent.
    ``beside`` another run of the program it replaces nothing there: it ends before.
    """

    folder: str
    original: str
    root: str
    kept: str
    beside: bool = False

    def spelled(self, text: str) -> str:
        """What the run says of files in and around the copy, as a run in the original would."""
        tail = self.folder[len(self.root) :]
        return text.replace(self.root, self.original.removesuffix(tail))

    def moved(self, path: str) -> str:
        """A path below the original as it is in the copy; any other stays."""
        top = self.original.rstrip("/")
        below = path == self.original or path.startswith(f"{top}/")
        return self.folder + path[len(top) :] if below else path


class Change(msgspec.Struct, frozen=True, tag=True):
    """What a run of ``audit plan`` changes in the program, which is not edited (nothing: the
    program as it is).

    The loaders that are made at ``loaders`` (file, relative to the working directory, and line)
    have ``batch[0] / batch[1]`` times their batch size. Modules of the class ``checkpointed`` (its
    module and qualified name) run under activation checkpointing, ``autocast`` names the dtype of
    an autocast around forward and loss, ``optimizer`` is given to optimizers that take it. With
    ``largest`` loaders give the largest batch of an epoch after the warm-up.
    """

    batch: tuple[int, int] = (1, 1)
    loaders: tuple[tuple[str, int], ...] = ()
    checkpointed: str = ""
    autocast: str = ""
    optimizer: Mapping[str, bool] = msgspec.field(default_factory=dict)
    largest: bool = False


What = Literal["", "nan", "inf", "oom", "kill"]


class Drill(msgspec.Struct, frozen=True, tag=True):
    """A run of ``audit drill``: all steps are one pass, watched for what becomes of the fault that
    is planted, ``what`` at ``step`` (0-based); ``""`` leaves it undisturbed.
    """

    what: What = ""
    step: int = 0


class Passes(msgspec.Struct, frozen=True, tag=True):
    """A run that is judged, in passes: ``trace`` steps of the trace pass, ``loud`` ones of the
    diagnostic pass (None: as many as it needs), and ``values`` at the end of a rehearsal of which
    only values are looked at.
    """

    trace: int = TRACE_STEPS
    loud: int | None = None
    values: int = 0


class Replay(msgspec.Struct, frozen=True, tag=True):
    """The same steps without passes, up to ``step``, to be explained; watched from ``first``."""

    step: int
    first: int


class UntilOom(msgspec.Struct, frozen=True, tag=True):
    """One pass of ``steps`` steps, with an allocation history from the device's first use."""

    steps: int


Purpose = Passes | Replay | UntilOom | Trial | Drill | Change | Repeat
P = TypeVar("P", Passes, Replay, UntilOom, Trial, Drill, Change, Repeat)


@dataclass(frozen=True)
class Plan:
    """One recording to make, and what for. ``steps`` and ``warmup`` count steps of one pass;
    ``parts`` are the parts that rules need.

    With ``fit`` the passes are shortened to that many steps, all that the target takes. Probes in
    ``without`` do not watch, for the reason that it gives. With ``copied`` the target runs in a
    copy, else where we do; ``variables`` are what its environment has more. ``memory_limit`` in
    bytes of device memory, of a real device or the shadow; ``gpu`` the model that the shadow and
    the null device play (a key of ``auditor.model.gpus.GPUS``; empty: the shadow's own).
    ``answers`` is the folder of the rehearsal that tells a run on the null device the values.

    ``world_size`` processes run the target, of which this is number ``rank``; they meet at port
    ``rendezvous`` of this machine. With ``played`` these ranks run, one after the other, on a null
    device, and nobody runs the others. ``shown_args`` are ``args`` with secrets masked: what is
    written down in the place of them.
    """

    target: str
    args: tuple[str, ...]
    steps: int
    warmup: int
    device: Device
    folder: str
    parts: tuple[str, ...]
    purpose: Purpose = field(default_factory=Passes)
    fit: int | None = None
    without: Mapping[str, str] = field(default_factory=dict)
    copied: Copied | None = None
    variables: Mapping[str, str] | None = None
    overhead_s: float = OVERHEAD_S
    memory_limit: int | None = None
    gpu: str = ""
    answers: str = ""
    world_size: int = 1
    rank: int | None = None
    rendezvous: int = 0
    played: tuple[int, ...] = ()
    progress_fd: int | None = None
    shown_args: tuple[str, ...] | None = None

    def purpose_as(self, kind: type[P]) -> P | None:
        """The purpose, where it is of this kind."""
        return self.purpose if isinstance(self.purpose, kind) else None

    @property
    def watched(self) -> range:
        """Steps of a replay that run under the watch of single operators."""
        replay = self.purpose_as(Replay)
        return range(0) if replay is None else range(replay.first, replay.step + 1)

    @property
    def rehearses(self) -> bool:
        """True if the target runs on the shadow device."""
        return self.device == "rehearse"

    def replay(self, bad: int, last_good: int) -> Plan:
        """The plan that explains step ``bad``; after ``last_good`` all was finite (-1: unknown)."""
        first = max(0, min(bad - 1, max(last_good + 1, bad - WATCHED_STEPS)))
        folder = f"{self.folder}/{REPLAY}"
        return replace(self, folder=folder, parts=REPLAY_PARTS, purpose=Replay(bad, first))

    def rehearsal(self, parts: tuple[str, ...], steps: int = REHEARSED_STEPS) -> Plan:
        """The plan of the same target's GPU path on the shadow device, beside this one."""
        beside = replace(self, folder=f"{self.folder}/{REHEARSAL}", parts=parts)
        return replace(beside.on_shadow(steps), purpose=Passes(trace=0, loud=steps))

    def on_shadow(self, steps: int) -> Plan:
        """The plan with the shadow device: one pass for causes, no times, no trace."""
        purpose = self.purpose_as(Trial) or Passes(trace=0)
        return replace(self, device="rehearse", steps=steps, warmup=0, purpose=purpose)

    def on_null(
        self, parts: tuple[str, ...], answers: str, variables: Mapping[str, str], steps: int
    ) -> Plan:
        """Of a rehearsal's plan, that of its judged ``steps`` on the null device, beside it."""
        return replace(
            self,
            folder=f"{self.folder.removesuffix(f'/{REHEARSAL}')}/{NULL_RUN}",
            device="null",
            steps=steps,
            fit=None,
            parts=parts,
            answers=answers,
            variables=dict(variables),
        )

    def fitted(self, steps: int) -> Plan:
        """The plan for a target that ends after ``steps`` steps."""
        return replace(self, fit=steps)

    def to_oom(self, steps: int) -> Plan:
        """The plan once more, out of memory after ``steps`` steps, to learn which lines held it."""
        folder = f"{self.folder}/{OOM_RUN}"
        return replace(self, folder=folder, parts=(), purpose=UntilOom(steps + 1))

    def to_json(self) -> str:
        """The plan as one line of JSON."""
        return json.dumps(msgspec.to_builtins(self))

    @staticmethod
    def from_json(text: str) -> Plan:
        """Inverse of :meth:`to_json`."""
        return convert(json.loads(text), Plan)


@dataclass(frozen=True)
class Audit:
    """A whole audit: its main run, and the parts that its rehearsal and the run on the null device
    record (none: it is not made). Their order is that of :data:`auditor.runs.stages.STAGES`.
    """

    run: Plan
    rehearsed: tuple[str, ...] = ()
    native: tuple[str, ...] = ()
