"""What a probe is: it watches one kind of thing in some passes and adds rows to its parts."""

from __future__ import annotations

import ctypes
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

import psutil

from auditor.capture.instruments.autograd_graph import BACKWARD_HOOKS, Backward
from auditor.capture.instruments.monkeypatch import Patches, guarded
from auditor.capture.instruments.stack_sampler import KeptOpen
from auditor.capture.instruments.user_frames import Frames
from auditor.errors import fault
from auditor.model.devices import DeviceInfo
from auditor.recordings.folder import RecordingWriter
from auditor.recordings.row import PassRow
from auditor.recordings.schema.run import LapseRow, StepRow
from auditor.recordings.schema.sync import BURST, ReadRow
from auditor.runs.plan import Plan

if TYPE_CHECKING:
    from auditor.capture.probes.operator_stream import OperatorStream
    from auditor.capture.probes.rehearsal import RehearsalProbe


PLAIN = ("warmup", "quiet", "anomaly_off", "eager_held", "compiled_again")
"""Passes whose steps are timed as they are: their peak is the program's own."""

SHARE, MORE = 1.15, 64 << 20
"""How far the process may grow above that peak before free memory is returned to the system."""

ROOM_SHARE, ROOM_MORE = 0.25, 160 << 20
"""Of that peak, and beside it: what an instrument may hold that the program does not."""

_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class FreedMemory:
    """Looked at between operators and between steps of passes with instruments."""

    def __init__(self) -> None:
        self._statm: KeptOpen | None = None
        self._process = psutil.Process()
        self._trim = _trimmer()
        self._most: float | None = None
        """Resident bytes above which free memory is returned; None: not set yet."""
        self.room = float(ROOM_MORE)
        """Bytes that an instrument may hold at once."""

    def begin(self, pass_name: str) -> None:
        """A step of this pass begins."""
        if pass_name not in PLAIN and self._most is None:
            peak = _peak()
            self._most = SHARE * peak + MORE
            self.room = ROOM_SHARE * peak + ROOM_MORE

    def look(self) -> None:
        """Give back what is free, if the process has become larger than it may."""
        if self._most is None or self._trim is None or self.resident() <= self._most:
            return
        self._trim(0)
        self._most = max(self._most, 1.1 * self.resident())  # what stays is in use

    def resident(self) -> int:
        """Bytes of the process that are resident."""
        if self._statm is None:
            self._statm = KeptOpen("/proc/self/statm")
        words = self._statm.words()
        return int(words[1]) * _PAGE if len(words) > 1 else int(self._process.memory_info().rss)

    def close(self) -> None:
        """Close what is open. May be called twice."""
        if self._statm is not None:
            self._statm.close()


def _trimmer() -> Callable[[int], int] | None:
    """Glibc's ``malloc_trim`` gives back whole pages inside the heap as well; others have none."""
    try:
        return ctypes.CDLL(None).malloc_trim  # type: ignore[no-any-return]
    except (AttributeError, OSError, TypeError):
        return None


def _peak() -> int:
    try:
        with open("/proc/self/status", encoding="ascii") as status:
            sizes = dict(line.split(":", 1) for line in status)
        return int(sizes["VmHWM"].split()[0]) << 10
    except (OSError, KeyError, ValueError):
        return 1 << 62


NUMBERS = ("step", "global_step")
"""Fields of rows that number the step."""


@dataclass
class Context:
    """What a probe may know while it runs. The session sets ``step`` and ``pass_name``."""

    writer: RecordingWriter
    frames: Frames
    device: DeviceInfo
    """What the audited step can use; the host until that is asked, when the first step begins."""
    plan: Plan = field(default_factory=lambda: Plan("", (), 0, 0, "auto", "", ()))
    pass_name: str = "warmup"
    step: int = 0
    global_step: int = 0
    """Steps of all passes before this one, warm-up included."""
    in_step: bool = False
    """True between begin and end of a step; what happens outside is not the step's doing."""
    history: bool = False
    """True while the history of allocations is recorded for us."""
    stream: OperatorStream | None = None
    """The operators that run, once a probe has asked for them."""
    freed: FreedMemory = field(default_factory=FreedMemory)
    """Gives memory back that instruments left free between the program's tensors."""
    target: Any = None
    """The audited callable, generator or module: probes that look for holders start there."""
    shadow: RehearsalProbe | None = None
    """What knows the shadow device and its simulated memory; None if nothing is rehearsed."""
    trained: bool = False
    """A backward or an optimizer's step was seen."""
    warn: Callable[[str], None] = field(default=lambda text: None)
    """Adds a sentence to the recording's warnings."""
    fail: Callable[[str, Exception], None] = field(default=lambda name, error: None)
    """Says that the probe of this name failed inside a step: it is stopped at the step's end."""

    rows: Counter[tuple[object, ...]] = field(default_factory=Counter)
    """The rows of this step, as they are compared with those of the next one."""
    bursts: dict[object, set[int]] = field(default_factory=dict)  # as Stats.bursts

    def add(self, row: PassRow) -> None:
        """Add a row, stamped with the current pass and, where it names none, the current step."""
        row.pass_name = self.pass_name
        if row.step < 0:
            row.step = self.step
        self.writer.add(row)
        if row.part != StepRow.part:  # what every step has: its times, and the memory of the host
            self.rows[_lasting(row)] += 1
        if isinstance(row, ReadRow) and row.n >= BURST:
            self.bursts.setdefault((row.at, row.kind), set()).add(row.step)

    def lapse(self, probe: str, parts: tuple[str, ...], error: Exception) -> None:
        """Write down that a probe missed something: these parts are not clean then."""
        self.add(LapseRow(probe=probe, parts=list(parts), error=fault(error)[:500]))


def _lasting(row: PassRow) -> tuple[object, ...]:
    """What a row has in common with that of an equal step: not the step's number nor its times."""
    fields = ((name, getattr(row, name)) for name in row.__struct_fields__ if name not in NUMBERS)
    return row.part, *(
        (name, str(value) if isinstance(value, list | dict) else value)
        for name, value in fields
        if not isinstance(value, float)
    )


class Probe:
    """Base of all probes.

    A probe's life: ``install`` once right after torch was imported and before the user's module is
    (only what must be seen from then on, such as constructors; it must cost nothing measurable);
    then for every pass in ``passes`` ``start`` → ``step_end`` after each step → ``stop``;
    ``uninstall`` at the very end. ``stop`` and ``uninstall`` undo exactly what ``start`` and
    ``install`` did, also after an error, and may be called twice: what goes through ``_patches``
    is undone by ``stop``, what goes through ``_always`` by ``uninstall``.
    """

    name: ClassVar[str]
    parts: ClassVar[tuple[str, ...]]
    """What it writes; the part of its name if it says nothing else."""
    passes: ClassVar[frozenset[str]] = frozenset({"loud"})
    also: ClassVar[frozenset[str]] = frozenset()
    """Passes that it watches where they are taken for another probe."""
    after: ClassVar[tuple[str, ...]] = ()
    """Probes that start and are asked before this one; others go by their modules' names."""
    watches_operators: bool = False
    """True if a mode of it lies between the program and torch's operators."""
    always: ClassVar[bool] = False
    """True if it watches whatever the rules need."""
    unseen: ClassVar[str] = ""
    """How the sentence begins that says what it missed, where the probe's name says too little."""
    in_runs: ClassVar[bool] = True
    """True if it watches runs on the device that there is, a CPU included."""
    in_rehearsals: ClassVar[bool] = False
    """True if it watches rehearsals, beside the shadow device."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if hasattr(cls, "name") and not hasattr(cls, "parts"):
            cls.parts = (cls.name,)

    def __init__(self, context: Context) -> None:
        self.context = context
        self.watching = False
        """A pass is on: between :meth:`start` and :meth:`stop`."""
        self._missed = False
        self._patches = Patches(self.missed)
        self._always = Patches(self.missed)
        self._thread = threading.get_ident()

    @classmethod
    def watches(cls, pass_name: str) -> bool:
        """Whether it watches a pass of this name."""
        return pass_name in cls.passes or pass_name in cls.also

    def missed(self, error: Exception) -> None:
        """A hook of this probe raised ``error``: what it saw is in no row. Written once."""
        if not self._missed:
            self._missed = True
            self.context.lapse(self.name, self.parts, error)
            unseen = self.unseen or f"the probe {self.name!r} did not see everything"
            self.context.warn(f"{unseen} ({fault(error)})")

    def guarded(self, hook: Callable[..., Any]) -> Callable[..., None]:
        """A hook as the program may call it: what it raises goes to :meth:`missed`."""
        return guarded(hook, self.missed)

    def install(self) -> None:
        """Patch what must be patched before the user's code is imported."""

    def start(self) -> None:
        """Begin to watch; ``context.pass_name`` says which pass. Its parts are there from now on,
        also where nothing is found, and backwards are told of to a probe with a hook for them.
        """
        self.watching = True
        for part in self.parts:
            self.context.writer.touch(part)
        own = type(self)
        if (own.backward_begins, own.backward_ends) != (Probe.backward_begins, Probe.backward_ends):
            self.watch_backward(self._patches)

    def step_begin(self) -> None:
        """A step is about to begin (outside its timed region), on this thread."""
        self._thread = threading.get_ident()

    @property
    def in_step(self) -> bool:
        """True between the begin and the end of a step, on the thread that runs it."""
        return self.context.in_step and threading.get_ident() == self._thread

    def step_gave(self, returned: Any) -> None:
        """What the target returned or yielded; no reference to it is left when the step ends."""

    def step_end(self) -> None:
        """A step has ended (outside its timed region): write its rows."""

    def wants_more(self) -> bool:
        """True if the steps of this pass, which would be over now, are not enough to say anything."""
        return False

    def stop(self) -> None:
        """Undo ``start``."""
        self.watching = False
        self._patches.undo()

    # -- the door of the autograd engine -----------------------------------------------------------

    def watch_backward(self, patches: Patches) -> None:
        """Receive backward calls until these patches are undone."""
        patches.on_undo(lambda: BACKWARD_HOOKS.remove(self))
        BACKWARD_HOOKS.add(self)

    def backward_begins(self, call: Backward) -> None:
        """A backward is about to run."""

    def backward_ends(self, call: Backward) -> None:
        """It has run, or raised."""

    def backward_lost(self, error: Exception) -> None:
        """A hook raised ``error``; backward calls are not reported any more."""
        self.context.fail(self.name, error)

    def uninstall(self) -> None:
        """Undo ``install``."""
        self._always.undo()
