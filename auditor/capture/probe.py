"""What a probe is: it watches one kind of thing during some passes and adds rows to its parts. As simple as possible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from auditor.capture.frames import Frames
from auditor.errors import fault
from auditor.plan import Drill
from auditor.recording import RecordingWriter

if TYPE_CHECKING:
    from auditor.capture.autograd_graph import Backward


@dataclass
class Context:
    """What a probe may know while it runs. ``step`` and ``pass_name`` are kept current by the session."""

    writer: RecordingWriter
    frames: Frames
    device: str
    """``cuda`` or ``cpu``: what the audited step can use; ``rehearse``: the shadow of a CUDA device."""
    pass_name: str = "warmup"
    step: int = 0
    global_step: int = 0
    """Steps of all passes before this one, warm-up included."""
    watched: range = range(0)
    """In a replay: the steps whose operators are watched one by one."""
    in_step: bool = False
    """True between the begin and the end of a step; what happens outside is not the step's doing."""
    target: Any = None
    """The callable, generator or module that is audited: probes that look for holders start there."""
    memory_limit: int | None = None
    """Bytes of device memory that the program may use; None: what the card has."""
    drill: Drill | None = None
    """The fault to plant; None where this is no drill."""
    counters: Callable[[], dict[str, int]] | None = None
    """Counters of the simulated allocator, as the ``steps`` part has them (rehearsal only)."""
    operators: Callable[[], int] | None = None
    """Operators that ran on the shadow device so far (rehearsal only)."""
    reset_peak: Callable[[], None] | None = None
    """Begins the peak among them anew (rehearsal only)."""
    mark_batch: Callable[[Any, int], None] | None = None
    """Told of each tensor that a loader gave to the step, and of the loader's number (rehearsal only)."""
    address_of: Callable[[Any], int] | None = None
    """Where a tensor lies in the simulated device memory, 0 if it does not (rehearsal only)."""
    warn: Callable[[str], None] = field(default=lambda text: None)
    """Adds a sentence to the recording's warnings."""
    fail: Callable[[str, Exception], None] = field(default=lambda name, error: None)
    """Says that the probe of this name failed between two calls of the session, which stops it at the end of the step."""

    def add(self, part: str, row: dict[str, Any]) -> None:
        """Add a row to a part, stamped with the current pass and step."""
        self.writer.add(part, {"pass": self.pass_name, "step": self.step, **row})

    def lapse(self, probe: str, parts: tuple[str, ...], error: Exception) -> None:
        """Write down that a probe of ours missed something, so that *nothing found* in these parts is not taken for clean."""
        self.add("lapses", {"probe": probe, "parts": list(parts), "error": fault(error)[:500]})


class Probe:
    """Base of all probes.

    A probe's life: ``install`` once right after torch was imported and before the user's module is (only what must be seen
    from then on, such as constructors; it must cost nothing measurable); then for every pass in ``passes``
    ``start`` → ``step_end`` after each step → ``stop``; ``uninstall`` at the very end. ``stop`` and ``uninstall`` undo
    exactly what ``start`` and ``install`` did, also after an error, and may be called twice.
    """

    name: ClassVar[str]
    parts: ClassVar[tuple[str, ...]]
    passes: ClassVar[frozenset[str]]

    def __init__(self, context: Context) -> None:
        self.context = context

    def install(self) -> None:
        """Patch what must be patched before the user's code is imported."""

    def start(self) -> None:
        """Begin to watch; ``context.pass_name`` says which pass."""

    def step_begin(self) -> None:
        """A step is about to begin (outside its timed region)."""

    def step_end(self) -> None:
        """A step has ended (outside its timed region): write its rows."""

    def stop(self) -> None:
        """Undo ``start``."""

    # -- for those that add themselves to the door of the autograd engine ------------------------------------------------

    def backward_begins(self, call: Backward) -> None:
        """A backward is about to run."""

    def backward_ends(self, call: Backward) -> None:
        """It has run, or raised."""

    def backward_lost(self, error: Exception) -> None:
        """One of these two raised ``error``, and no backward is told of any more."""
        self.context.fail(self.name, error)

    def uninstall(self) -> None:
        """Undo ``install``."""
