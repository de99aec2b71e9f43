"""What the parent asks the recording child to do: plain data that both sides of the process seam
read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Literal

TRACE_STEPS = 5
"""Steps of the trace pass, under torch.profiler and nothing else: a trace takes 1-2 MB per step
before compression.
"""

DIAGNOSED_STEPS = 20
"""Most steps of the loud pass: enough to see twice what happens in every tenth step. Its rows are
counts for each step, and do not get surer with more of them; a step costs 1.2 times a plain one.
"""

ORIGIN_STEPS = 3
"""Steps of the origin pass: it runs two Python dispatch modes, several times slower than the step
itself.
"""

NUMBERS_STEPS = 3
"""Steps of the numbers pass: it runs a Python dispatch mode, several times slower than the step
itself.
"""

NUMBERS_SECONDS = 10.0
"""How long that pass goes on where steps alternate, until it has seen each kind of them twice."""

LOOP_STEPS = 5
"""Steps of the pass that times the Python loops which the one before it found."""

MEMORY_STEPS = 12
"""Steps of the memory pass on a GPU, allocation history with stacks: as many as a rehearsal has. Rules
about growth need 8 (Sen's interval), those about sizes that vary 6; a step costs 1.2 times a plain
one, and the history keeps its last 200,000 events.
"""

NULL_MEMORY_STEPS = 3
"""The same on the null device, where the history goes through the passes before it as well."""

REPLAY = "replay"
"""Folder of a replay's own recording, inside the one that it explains."""

REPLAY_PARTS = ("births", "nonfinite")
"""What a replay of a step that ended with non-finite gradients or parameters looks for."""

RERUN = "rerun"
"""Folder of a second run's own recording, inside that of the run which failed before all its passes
were done.
"""

OOM_RUN = "oom"
"""Folder of the recording of a run up to an out-of-memory error with an allocation history, inside
that of the run that had none.
"""

NULL_TIMED_STEPS = 5
"""Steps at the end of a run on the null device in which nothing but the host's clock runs."""

REHEARSAL = "rehearsal"
"""Folder of the rehearsal's own recording, inside the one of the CPU passes."""

ASKED_GPU = "GPU asked for"
"""Entry of a rehearsal's environment: the data sheet that ``--gpu`` names."""

NULL_RUN = "null"
"""Folder of the run on the null device, inside the recording of the CPU passes."""

HOST_SCALE = "host scale"
"""Entry of a rehearsal's environment: ``--host-scale``, where it is not 1."""

REHEARSED_STEPS = 12
"""Steps that are judged in a rehearsal: enough to tell "each step" from "every tenth", and each
takes several times as long.
"""

REHEARSED_WARMUP = 2
"""Steps before them: optimizer states and lazily built modules are made in the first."""

REHEARSED_SLOWER = 6.0
"""Times that a step takes in a rehearsal, at most as a rule."""

LEANER_STEPS = ("", "gradients", "", "foreach", "")
"""What is changed in the steps at a rehearsal's end that look for a lower peak of memory: nothing,
or one thing.
"""

VALUE_SECONDS = 60.0
"""How long the pass at a rehearsal's end goes on that only looks at values: a step on the shadow
device takes up to six times as long, and a large model's is not worth minutes.
"""

LEAST_REHEARSED = 6
"""A rehearsal that ends before so many judged steps says nothing."""

LEAST_RERUN = 4
"""Steps that a target must take before it fails for a second run to say anything: one warms up,
three show a pattern.
"""

RERUN_PATIENCE_S, RERUN_PATIENCE = 120.0, 20.0
"""A second run that nothing limits may take this long, and so many times as long as the first took
to the same step.
"""

RANK_FOLDER = "rank"
"""Folders of the processes' own recordings: ``rank0``, ``rank1``, ..."""

WATCHED_STEPS = 16
"""Steps before the bad one that a replay watches at most (of gradient accumulation): each takes
about ten times as long.
"""


Device = Literal["auto", "cuda", "cpu", "rehearse", "null"]

SYNC_STEPS = 3
"""Loud steps of a trial on a GPU."""


@dataclass(frozen=True)
class Loaders:
    """The DataLoaders that are made at ``line`` of ``file`` (relative to the working directory),
    with other ``arguments``.
    """

    file: str
    line: int
    arguments: Mapping[str, int]


@dataclass(frozen=True)
class Trial:
    """A run that ``audit verify`` measures, with all random generators seeded, and other arguments
    for ``loaders``. ``eager_random``: code that torch compiles draws the random numbers that it
    would draw without the compiler.
    """

    seed: int
    loaders: Loaders | None = None
    eager_random: bool = False


JOURNAL = "journal.jsonl"
"""File in ``Copied.kept``: one row for each file outside of the copy that a run made, changed or
removed.
"""


@dataclass(frozen=True)
class Copied:
    """That the target runs in ``folder``, a copy of ``original``, and imports from there what it
    would import from ``original``.

    ``root`` is the temporary folder that holds the copy and links to what lies around the original.
    What the run replaces outside of it is kept in the folder ``kept``, and put back by the parent.
    """

    folder: str
    original: str
    root: str
    kept: str

    def spelled(self, text: str) -> str:
        """What the run says of files in the copy and around it, as a run in the original would say
        it.
        """
        tail = self.folder[len(self.root) :]
        return text.replace(self.root, self.original.removesuffix(tail))


TIMED_SHARE, TRACED_SHARE = 0.5, 0.1
"""Of the steps that a short target takes, the timing pass has half of what the diagnostic pass
leaves, the trace and the memory pass a tenth each.
"""

LEAST_MEMORY = 3
"""Steps of the memory pass that a short target has all the same: they name the lines at the peak."""

CAUSES = ("loud", "origin", "numbers", "memory", "quiet", "trace", "leaner", "values")
"""The order of passes in a second run of a target that failed: the most telling ones first."""

AT_LEAST = {"loud": 3, "origin": 1, "quiet": 1, "numbers": 1, "memory": 1, "trace": 1}
"""Steps that a pass gets before the ones named after it get any; below three diagnosed steps rules
say nothing of a pattern.
"""

FIXED = ("origin", "numbers", "memory", "trace")
"""Passes of a few steps, which more of them would tell no more."""

TELLING = 8
"""Steps of the diagnostic pass from which more of them tell less than whole other passes: some
rules ask for so many.
"""


@dataclass(frozen=True)
class Fit:
    """That a target takes ``steps`` steps and no more: it ends there, or fails in the next one.

    ``kept`` are passes that an earlier run has done and this one leaves out. That run lies in the
    folder ``known``, and its numbers of places in the source are used on, so that the rows of both
    can be read as one recording.
    """

    steps: int
    kept: tuple[str, ...] = ()
    known: str = ""

    def share_out(self, warmup: int, wanted: Mapping[str, int]) -> dict[str, int]:
        """Steps of each pass, of the ``wanted`` ones, that fit; never more than ``steps`` together,
        with the warm-up.

        Every pass gets a few steps first, in the order of :data:`AT_LEAST`; then the ones with a
        fixed number are filled, and the diagnostic and the timing pass share the rest. A pass that
        must be whole (``leaner``) is so or is left out. Where the timing pass was done before, the
        passes with instruments come first: the target may fail earlier this time.
        """
        warmup = min(warmup, max(1, self.steps // 10))
        most = {name: 0 if name in self.kept else wanted.get(name, 0) for name in CAUSES}
        part = round(TRACED_SHARE * self.steps)
        most["trace"] = min(most["trace"], part)
        most["memory"] = min(most["memory"], max(LEAST_MEMORY, part))
        given, left = dict.fromkeys(most, 0), self.steps - warmup

        def give(name: str, steps: int) -> None:
            nonlocal left
            more = max(0, min(steps, most[name] - given[name], left))
            given[name], left = given[name] + more, left - more

        for name, steps in AT_LEAST.items():
            give(name, steps)
        give("loud", TELLING - given["loud"])
        for name in FIXED:
            give(name, most[name])
        if left >= most["leaner"] + most["loud"] - given["loud"]:
            give("leaner", most["leaner"])
        give("quiet", max(round(TIMED_SHARE * left), left - (most["loud"] - given["loud"])))
        give("loud", left)
        give("values", left)
        ordered = CAUSES if self.known else wanted
        return {"warmup": warmup, **{name: given[name] for name in ordered if given[name]}}


@dataclass(frozen=True)
class Change:
    """What a run of ``audit plan`` changes in the program, which is not edited (nothing: the
    program as it is).

    The loaders that are made at ``loaders`` (file, relative to the working directory, and line)
    have ``batch[0] / batch[1]`` times their batch size. Modules of the class ``checkpointed`` (its
    module and qualified name) run under activation checkpointing, ``autocast`` names the dtype of
    an autocast around forward and loss, ``optimizer`` is given to optimizers that take it.
    """

    batch: tuple[int, int] = (1, 1)
    loaders: tuple[tuple[str, int], ...] = ()
    checkpointed: str = ""
    autocast: str = ""
    optimizer: Mapping[str, bool] = field(default_factory=dict)


What = Literal["", "nan", "inf", "oom", "kill"]
Where = Literal["batch", "activation", "gradient"]


@dataclass(frozen=True)
class Drill:
    """What a drill plants in its run: ``what`` at ``step`` (0-based), in a place of the step;
    ``""`` leaves it undisturbed.
    """

    what: What = ""
    step: int = 0
    where: Where = "batch"


@dataclass(frozen=True)
class Plan:
    """One recording to make. ``steps`` and ``warmup`` count steps of one pass; ``parts`` are the
    parts that rules need.

    With ``replay_step`` it is a replay: that many steps as they come, without passes, and then the
    one to be explained; operators are watched from step ``replay_from`` on. ``rehearsed`` are the
    parts that the rehearsal records. ``memory_limit`` in bytes of device memory, of a real device
    or the shadow. ``world_size`` processes run the target, of which this is number ``rank``; they
    meet at port ``rendezvous`` of this machine. With ``drill`` all steps are one pass, watched for
    what becomes of a planted fault. With ``copied`` the target runs in a copy, else where we do.
    With ``trial`` it ends after the quiet pass (on a GPU, a few loud steps count its host syncs).
    With ``until_oom`` all is one pass of at most so many steps, with an allocation history from the
    first use of the device on.
    With ``fit`` the passes are shortened to the steps that the target takes. ``shown_args`` are
    ``args`` with secrets masked: what is written down in the place of them. ``value_steps`` are
    steps at the end of a rehearsal of which only values are looked at. ``gpu`` is the model
    that the shadow and the null device play (a key of ``auditor.model.gpus.GPUS``; empty: the
    shadow's own), ``sheet`` the one that times are forecast for (a key of
    ``auditor.extensions.forecast.data_sheets``; empty: the one that is played), ``host_scale`` how many times
    as long its host takes as this one. ``native`` are the parts that
    a run on the null device records, ``answers`` the folder of the rehearsal that tells it the
    values, ``variables`` what its environment has more. With ``played`` these ranks of
    ``world_size`` run, one after the other, on a null device, and nobody runs the others.
    With ``change`` it is a run of ``audit plan``: a few steps for the peak of memory. Probes in
    ``without`` do not watch, for the reason that it gives.
    """

    target: str
    args: tuple[str, ...]
    steps: int
    warmup: int
    device: Device
    folder: str
    parts: tuple[str, ...]
    progress_fd: int | None = None
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
    fit: Fit | None = None
    until_oom: int | None = None
    shown_args: tuple[str, ...] | None = None
    value_steps: int = 0
    gpu: str = ""
    sheet: str = ""
    host_scale: float = 1.0
    native: tuple[str, ...] = ()
    answers: str = ""
    variables: Mapping[str, str] | None = None
    played: tuple[int, ...] = ()
    change: Change | None = None
    without: Mapping[str, str] = field(default_factory=dict)

    @property
    def watched(self) -> range:
        """Steps of a replay that run under the watch of single operators."""
        return (
            range(0) if self.replay_step is None else range(self.replay_from, self.replay_step + 1)
        )

    @property
    def rehearses(self) -> bool:
        """True if the target runs on the shadow device."""
        return self.device == "rehearse"

    def replay(self, bad: int, last_good: int) -> Plan:
        """The plan that explains step ``bad`` of this one; after ``last_good`` all was still finite
        (-1: never looked).
        """
        first = max(0, min(bad - 1, max(last_good + 1, bad - WATCHED_STEPS)))
        folder = f"{self.folder}/{REPLAY}"
        return replace(
            self,
            folder=folder,
            parts=REPLAY_PARTS,
            trace_steps=0,
            replay_step=bad,
            replay_from=first,
        )

    def rehearsal(self, steps: int = REHEARSED_STEPS) -> Plan:
        """The plan of the same target's GPU path on the shadow device, beside this one."""
        beside = replace(self, folder=f"{self.folder}/{REHEARSAL}", parts=self.rehearsed)
        return replace(beside.on_shadow(steps), loud_steps=steps)

    def on_shadow(self, steps: int) -> Plan:
        """The same plan with the shadow device: one pass for causes, no times, no trace."""
        warmup = min(self.warmup, REHEARSED_WARMUP)
        return replace(
            self, device="rehearse", steps=steps, warmup=warmup, trace_steps=0, loud_steps=None
        )

    def on_null(self, answers: str, variables: Mapping[str, str]) -> Plan:
        """Of a rehearsal's plan, that of the same steps on the null device, beside it."""
        return replace(
            self,
            folder=f"{self.folder.removesuffix(f'/{REHEARSAL}')}/{NULL_RUN}",
            device="null",
            parts=self.native,
            answers=answers,
            variables=dict(variables),
        )

    def fitted(self, steps: int) -> Plan:
        """The same plan for a target that ends after ``steps`` steps."""
        return replace(self, fit=Fit(steps))

    def rerun(self, steps: int, kept: tuple[str, ...]) -> Plan:
        """The plan of a second run, of the ``steps`` steps before the one that failed, for the
        passes that are not ``kept``.
        """
        return replace(self, folder=f"{self.folder}/{RERUN}", fit=Fit(steps, kept, self.folder))

    def to_oom(self, steps: int) -> Plan:
        """The plan of a run that ran out of memory after ``steps`` whole steps, once more, to learn
        which lines held it.
        """
        folder = f"{self.folder}/{OOM_RUN}"
        return replace(self, folder=folder, parts=(), trace_steps=0, until_oom=steps + 1)

    def to_json(self) -> str:
        """The plan as one line of JSON."""
        return json.dumps(asdict(self))

    @staticmethod
    def from_json(text: str) -> Plan:
        """Inverse of :meth:`to_json`."""
        data = json.loads(text)
        for name in ("args", "parts", "rehearsed", "shown_args", "native", "played"):
            data[name] = tuple(data[name]) if data[name] is not None else None
        if data["trial"] and data["trial"]["loaders"]:
            data["trial"]["loaders"] = Loaders(**data["trial"]["loaders"])
        if data["fit"]:
            data["fit"]["kept"] = tuple(data["fit"]["kept"])
        if data["change"]:
            data["change"]["batch"] = tuple(data["change"]["batch"])
            data["change"]["loaders"] = tuple(map(tuple, data["change"]["loaders"]))
            data["change"] = Change(**data["change"])
        for name, kind in (("copied", Copied), ("drill", Drill), ("trial", Trial), ("fit", Fit)):
            data[name] = kind(**data[name]) if data[name] else None
        return Plan(**data)
