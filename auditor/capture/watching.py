"""Entering and leaving a watch over single operators: torch's stacks of modes, and compiled code."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import overrides
from torch.utils import _python_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

from auditor.capture.patching import Patches
from auditor.capture.probe import Context, Probe
from auditor.errors import fault

current_node: Callable[[], Any] = getattr(torch._C, "_current_autograd_node", lambda: None)
"""The node of the backward that runs in this thread; None outside of one, and where torch does not tell."""

_WRAPPERS = tuple(os.path.join(os.sep, "torch", part) for part in ("_dynamo" + os.sep, "_compile.py", "_ops.py"))
"""Parts of the paths of what torch wraps around every dispatch mode, and around the operators that one calls."""


def run_compiled_code_eagerly(patches: Patches) -> None:
    """Until ``patches`` are undone: inside compiled code no operator can be seen; eagerly the same ones can."""
    set_stance = getattr(torch.compiler, "set_stance", None)
    if set_stance is None or "torch._dynamo" not in sys.modules:
        return
    stance = set_stance("force_eager")
    stance.__enter__()
    patches.on_undo(lambda: stance.__exit__(None, None, None))


class OperatorWatch(TorchDispatchMode):
    """Base of the watches over single operators: results are those of the operators, untouched, whatever we get wrong."""

    supports_higher_order_operators = True

    def __init__(self, on_error: Callable[[Exception], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own, without annotations
        self._on_error = on_error
        self._process = os.getpid()
        self.live = True

    def watches(self, func: Any) -> bool:
        """False once the watch is over, in a process that was forked, and for operators without a schema."""
        return self.live and os.getpid() == self._process and hasattr(func, "_schema")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not self.watches(func):
            return func(*args, **kwargs)
        call = self._guarded(lambda: self.before(func, args, kwargs))
        result = func(*args, **kwargs)
        if call is not None:
            self._guarded(lambda: self.after(call, args, result))
        return result

    def before(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call is about to run. What this returns is given to :meth:`after`; None: nothing to look at then."""

    def after(self, call: Any, args: tuple[Any, ...], result: Any) -> None:
        """The call has run."""

    def _guarded(self, do: Callable[[], Any]) -> Any:
        try:
            return do()
        except Exception as error:  # the user's step goes on
            self._on_error(error)
            return None


class OperatorProbe(Probe):
    """A probe that watches single operators in the calling thread, which must be the one that runs the step."""

    unseen: ClassVar[str]
    """How the sentence begins that says that a watch failed on some operators."""

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._patches = Patches()
        self._errors = 0

    def start(self) -> None:
        """Begin to watch; what was begun is taken back where that fails."""
        self.stop()
        try:
            run_compiled_code_eagerly(self._patches)
            self.watch()
        except BaseException:
            self._patches.undo()
            raise

    def watch(self) -> None:
        """Make the watch of this pass and :meth:`enter` it."""

    def enter(self, watch: OperatorWatch) -> None:
        """Enter a watch; it is left when the patches are undone."""
        enter_dispatch(self._patches, watch)

    def here(self) -> int | None:
        """The user's line that an operator runs for."""
        return site_of_operator(self.context)

    def fail(self, error: Exception) -> None:
        """Say once that the watch failed on an operator."""
        self._errors += 1
        if self._errors == 1:
            self.context.lapse(self.name, self.parts, error)
            self.context.warn(f"{self.unseen} ({fault(error)})")


def _is_wrapper(file: str) -> bool:
    return any(part in file for part in _WRAPPERS)


def site_of_operator(context: Context) -> int | None:
    """Where the user's line is that an operator of the step runs for, as a watch sees it; None outside of a step."""
    if not context.in_step:
        return None
    frames = context.frames
    frame, via = frames.user_frame()
    while via is not None and via is not frame and (_is_wrapper(via.f_code.co_filename) or frames.is_own(via.f_code.co_filename)):
        via = via.f_back
    return None if frame is None else frames.number(frame, None if via is frame else via)


def enter_dispatch(patches: Patches, mode: Any) -> None:
    """Enter a dispatch mode of ours until ``patches`` are undone."""
    mode.__enter__()
    patches.on_undo(lambda: leave_dispatch(mode))


def leave_dispatch(mode: Any) -> None:
    """Make a dispatch mode of ours pass everything through, and take it off its stack."""
    mode.live = False
    leave(
        mode,
        _python_dispatch._get_current_dispatch_mode,
        _python_dispatch._pop_mode,
        _python_dispatch._push_mode,
        len(_python_dispatch._get_current_dispatch_mode_stack()),
    )


def leave_function(mode: Any) -> None:
    """The same for a mode over torch's functions."""
    mode.live = False
    leave(
        mode,
        overrides._get_current_function_mode,
        overrides._pop_mode,
        overrides._push_mode,
        len(overrides._get_current_function_mode_stack()),  # type: ignore[no-untyped-call]
    )


def leave(mode: Any, top: Callable[[], Any], pop: Callable[[], Any], push: Callable[[Any], None], depth: int) -> bool:
    """Take ``mode`` off a stack of modes, wherever in it: the user's own may have come on top and stay.

    Returns False if it is not there.
    """
    above: list[Any] = []
    found = False
    while len(above) < depth and not found:
        found = top() is mode
        if not found:
            above.append(pop())
    if found:
        mode.__exit__(None, None, None)
    for other in reversed(above):
        push(other)
    return found
