"""What torch warns of, with the user's line, on every step of the diagnostic pass."""

import os
import re
import sys
import threading
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence
from types import FrameType
from typing import Any, TextIO

import torch
import torch.overrides

from auditor.capture.instruments.monkeypatch import LOOKING, SWAPPED
from auditor.capture.instruments.plain_tensor import TORCH
from auditor.capture.instruments.user_frames import OWN, path_of
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.optim.optimizer_hooks import watch_clipping
from auditor.capture.probes.tally import Tally
from auditor.recordings.schema.data import SyncedRow
from auditor.recordings.schema.run import TorchWarningRow

TEXTS = {
    "scheduler first": r"Detected call of `lr_scheduler\.step\(\)` before `optimizer\.step\(\)`",
    "scheduler epoch": r"The epoch parameter in `scheduler\.step\(\)` was not necessary",
    "empty clipping": r"`parameters` is an empty generator, no gradient clipping will occur",
    "parameter twice": r"optimizer contains a parameter group with duplicate parameters",
    "grad of non-leaf": r"The \.grad attribute of a Tensor that is not a leaf Tensor is being acc",
    "tensor of tensor": r"To copy construct from a tensor, it is recommended to use sourceTensor",
    "too few for std": r"(std|var)\w*\(\): degrees of freedom is <= 0",
    "imaginary part": r"Casting complex values to real discards the imaginary part",
    "mean of kl_div": r"reduction: 'mean' divides the total loss by both the batch size and the",
    "softmax without dim": r"Implicit dimension choice for \w+ has been deprecated",
    "dropout of one layer": r"dropout option adds dropout after all but last recurrent layer",
    "reversed dimensions": r"The use of `x\.(T|mT|H|mH)` on tensors of dimension other than 2",
    "dropout2d of 3-D": r"dropout2d: Received a 3D input to dropout2d and assuming",
    "array not writable": r"The given (NumPy array|buffer) is not writable",
    "slow vmap": r"There is a performance drop because we have not yet implemented the batching",
    "search copies": r"torch\.searchsorted\(\): .* tensor is non-contiguous, this will lower the",
    "checkpoint variant": r"torch\.utils\.checkpoint.*: [Tt]he use_reentrant parameter should be",
}
"""Regular expressions by the name that a rule asks for."""

_EACH = {name: re.compile(text, re.DOTALL) for name, text in TEXTS.items()}

ANY = re.compile("|".join(f"(?:{text})" for text in TEXTS.values()), re.DOTALL)
"""Matches each of them."""


def name_of(text: str) -> str | None:
    """The name of the warning that begins so; None of another one."""
    return next((name for name, begins in _EACH.items() if begins.match(text)), None)


HEARD: Any = ("always", ANY, Warning, None, 0)
"""Our filter, in front of the program's: without it torch drops later repetitions."""

OVERRIDES = torch.overrides.__file__


class WarningHook:
    """``heard`` gets name and text of warnings of :data:`auditor.capture.probes.step.torch_warnings.TEXTS`."""

    def __init__(self, heard: Callable[[str, str], None]) -> None:
        self._on_warning = heard
        self._hook = self._show
        self._first = self._before = warnings.showwarning
        self._depth = threading.local()
        self._placed = False
        self._told: defaultdict[str, dict[Any, Any]] = defaultdict(dict)

    def place(self) -> None:
        """Stand in front of the filters and what shows warnings: two comparisons once it is so."""
        self._placed = True
        if not warnings.filters or warnings.filters[0] is not HEARD:
            _withdraw()
            _filters().insert(0, HEARD)
        if warnings.showwarning is not self._hook:
            self._before = warnings.showwarning
            warnings.showwarning = self._hook

    def remove(self) -> None:
        """Undo it. Where the program has put something around this hook, the hook hands on."""
        _withdraw()
        if self._placed and warnings.showwarning is self._hook:
            warnings.showwarning = self._before
        self._placed = False

    def _show(  # noqa: PLR0917 - as warnings.showwarning is called
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        depth = getattr(self._depth, "n", 0)
        self._depth.n = depth + 1
        try:
            if depth or not self._placed or file is not None:
                # what is shown in the end; the program's own may call this hook again
                show = self._before if self._placed and depth < 2 else self._first
                show(message, category, filename, lineno, file, line)
                return
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and frame.f_code.co_filename != filename:
                frame = frame.f_back
            if _is_between(filename) and frame is not None:
                frame = calling_frame(frame)
                filename, lineno = frame.f_code.co_filename, frame.f_lineno
            name = name_of(str(message))
            if name is None:
                self._before(message, category, filename, lineno, file, line)
            elif not LOOKING.depth:  # else a look of ours was warned
                self._on_warning(name, str(message))
                module = "" if frame is None else str(frame.f_globals.get("__name__", ""))
                self._warn_again(message, category, filename, lineno, module)
        finally:
            self._depth.n = depth

    def _warn_again(
        self,
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        module: str,
    ) -> None:
        """As it would have come without our filter: what was shown in each file is told to Python."""
        filters = _filters()
        _withdraw()
        try:
            warnings.warn_explicit(
                message, category, filename, lineno, module, self._told[filename]
            )
        finally:
            filters.insert(0, HEARD)


def _filters() -> list[Any]:
    return warnings.filters  # type: ignore[return-value]  # typeshed: a sequence


def _withdraw() -> None:
    for index, each in enumerate(_filters()):
        if each is HEARD:
            del _filters()[index]
            return


def _is_between(filename: str) -> bool:
    return filename in (SWAPPED, OVERRIDES) or filename.startswith(OWN)


def calling_frame(frame: FrameType) -> FrameType:
    """Who called the innermost of our functions here, also through a function of torch's."""
    asked = False
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        asked |= file == OVERRIDES
        if not _is_between(file) and not (asked and file.startswith(TORCH)):
            break
        frame = frame.f_back
    return frame


SYNCS = ("fsync", "fdatasync")

WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX.writer")


class StorageSyncsProbe(Tally):
    """Writes ``synced``. Builtins of ``os`` are replaced there and where user modules hold them."""

    row = SyncedRow

    def watch(self) -> None:
        for name in SYNCS:
            if hasattr(os, name):
                timed = self.around(getattr(os, name), self._led_to, name=f"os.{name}")
                self._patches.builtin(os, name, timed, self.context.frames.user_modules())
        for name in WRITERS:
            writer = getattr(sys.modules.get(name), "SummaryWriter", None)
            if isinstance(writer, type) and "flush" in vars(writer):
                flush = self.around(vars(writer)["flush"], self._led_to, name="SummaryWriter.flush")
                self._patches.attribute(writer, "flush", flush)

    def _led_to(self, *_: Any, **__: Any) -> dict[str, Hashable]:
        return {"stack": path_of(self.context.frames)}


EMPTY = "empty clipping"

LONGEST = 400
"""Characters of a text that are kept."""


class TorchWarningsProbe(Probe):
    """Writes ``torch_warnings``. Listens from the start (torch warns once of a schedule's first
    step, and of an optimizer when it is made); in the loud pass torch repeats itself.
    """

    name = "torch_warnings"
    passes = frozenset({"warmup", "quiet", "loud"})
    always = True
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._hook = WarningHook(self.guarded(self._on_warning))
        self._listens = True
        self._seen: Counter[tuple[int, str, str]] = Counter()

    def install(self) -> None:
        """Listen, whatever filters the program's own files set from now on."""
        self._hook.place()
        for name in ("filterwarnings", "simplefilter", "resetwarnings"):
            self._always.around(warnings, name, after=self._filters_set)

    def start(self) -> None:
        """In the loud pass what torch says once is said each time."""
        super().start()
        self._listens = True
        if self.context.pass_name == "loud":
            before = torch.is_warn_always_enabled()
            self._patches.on_undo(lambda: torch.set_warn_always(before))
            torch.set_warn_always(True)
            watch_clipping(self._patches, self._clips)

    def step_begin(self) -> None:
        """The program may have set filters of its own."""
        super().step_begin()
        self._hook.place()

    def step_end(self) -> None:
        for (at, name, text), n in self._seen.items():
            self.context.add(TorchWarningRow(at=at, name=name, text=text, n=n))
        self._seen.clear()

    def stop(self) -> None:
        super().stop()
        self._listens = False

    def uninstall(self) -> None:
        super().uninstall()
        self._hook.remove()

    def _filters_set(self, *_: Any, **__: Any) -> None:
        caller = calling_frame(sys._getframe(1))
        if self.context.frames.is_user(caller.f_code.co_filename):
            self._hook.place()

    def _clips(self, parameters: Sequence[torch.Tensor], _: torch.Tensor) -> None:
        """Torch does not warn of an exhausted iterator that is not a generator (``filter``)."""
        at = None if parameters else self.context.frames.here()
        if at is not None and not any(key[:2] == (at, EMPTY) for key in self._seen):
            self._seen[at, EMPTY, "clip_grad_norm_() was given no parameters"] += 1

    def _on_warning(self, name: str, text: str) -> None:
        at = self.context.frames.here() if self._listens else None
        if at is not None:
            self._seen[at, name, " ".join(text[:LONGEST].split())] += 1
