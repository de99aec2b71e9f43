"""Python's door for warnings: hears torch's own, whatever filters are set, and moves a warning that
names a function of ours (``stacklevel``) to the line that called it.

The user's filters decide what the user sees, and what is raised.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import warnings
from collections.abc import Callable
from types import FrameType
from typing import Any, TextIO

import torch.overrides

from auditor.capture.instruments.monkeypatch import LOOKING, SWAPPED
from auditor.capture.instruments.user_frames import OWN

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
"""Our filter, in front of the program's: without it torch's later repetitions come to nobody."""

EACH_TIME = ("always", "all", "error")
"""Actions of filters that show a warning each time."""

OVERRIDES = torch.overrides.__file__

TORCH = os.path.dirname(torch.__file__) + os.sep


class WarningHook:
    """``heard`` gets name and text of warnings of :data:`auditor.capture.instruments.warning_hook.TEXTS`."""

    def __init__(self, heard: Callable[[str, str], None]) -> None:
        self._heard = heard
        self._hook = self._show
        self._first = self._before = warnings.showwarning
        self._depth = threading.local()
        self._placed = False
        self._told = set[tuple[object, ...]]()

    def place(self) -> None:
        """Stand in front of the filters, and of whatever shows warnings now. Costs two comparisons
        where that is so already.
        """
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
                self._heard(name, str(message))
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
        """As it would have come without our filter: once for each line, unless the program asks for
        all. (Python's own memory of what was shown is asked before any filter.)
        """
        filters = _filters()
        _withdraw()
        try:
            if _action(str(message), category, module, lineno) not in EACH_TIME:
                what = str(message), category, filename, lineno
                if what in self._told:
                    return
                self._told.add(what)
            warnings.warn_explicit(message, category, filename, lineno, module, {})
        finally:
            filters.insert(0, HEARD)


def _filters() -> list[Any]:
    return warnings.filters  # type: ignore[return-value]  # typeshed: a sequence


def _withdraw() -> None:
    for index, each in enumerate(_filters()):
        if each is HEARD:
            del _filters()[index]
            return


def _action(text: str, category: type[Warning], module: str, lineno: int) -> str:
    """What the filters say of a warning."""
    for action, begins, kind, of_module, line in warnings.filters:
        said = begins is None or _matches(begins, text)
        there = of_module is None or _matches(of_module, module)
        if said and there and issubclass(category, kind) and line in (0, lineno):
            return action
    return "default"


def _matches(pattern: Any, text: str) -> bool:
    return pattern == text if isinstance(pattern, str) else pattern.match(text) is not None


def _is_between(filename: str) -> bool:
    return filename in (SWAPPED, OVERRIDES) or filename.startswith(OWN)


def calling_frame(frame: FrameType) -> FrameType:
    """Who called the innermost of our functions here: where a mode of ours was asked, also beyond
    the function of torch's that asked it.
    """
    asked = False
    while frame.f_back is not None:
        file = frame.f_code.co_filename
        asked |= file == OVERRIDES
        if not _is_between(file) and not (asked and file.startswith(TORCH)):
            break
        frame = frame.f_back
    return frame
