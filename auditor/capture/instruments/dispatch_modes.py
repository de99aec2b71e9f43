"""What a watch over single operators lies on: torch's stacks of modes, and compiled code."""

from collections.abc import Callable
from typing import Any

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private import dispatch
from auditor.capture.instruments.torch_private.autograd import has_dynamo


def run_compiled_code_eagerly(patches: Patches) -> None:
    """Until ``patches`` are undone: compiled code hides its operators."""
    if has_dynamo():
        stance = torch.compiler.set_stance("force_eager")
        stance.__enter__()
        patches.on_undo(lambda: stance.__exit__(None, None, None))


def run_operator(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run the operator that a mode was handed. Subclasses had their say where the program, or the
    autograd engine, called it: without a mode they are not asked once more as for a function.
    """
    with dispatch.DisableTorchFunctionSubclass():
        return func(*args, **kwargs)


def leave_dispatch(mode: Any) -> None:
    """Make a dispatch mode of ours pass everything through, and take it off its stack."""
    _leave_stack(
        mode,
        dispatch.dispatch_mode_now,
        dispatch.pop_dispatch_mode,
        dispatch.push_dispatch_mode,
        dispatch.dispatch_modes,
    )


def leave_function(mode: Any) -> None:
    """Leave a mode over torch's functions, wherever it is on the stack."""
    _leave_stack(
        mode,
        dispatch.function_mode_now,
        dispatch.pop_function_mode,
        dispatch.push_function_mode,
        dispatch.function_modes,
    )


def _leave_stack(mode: Any, top: Any, pop: Any, push: Any, modes: Any) -> None:
    """A stack that this torch does not show keeps our mode, which passes everything on by now."""
    mode.live = False
    if None not in (top, pop, push, modes):
        leave(mode, top, pop, push, len(modes()))


def leave(
    mode: Any,
    top: Callable[[], Any],
    pop: Callable[[], Any],
    push: Callable[[Any], None],
    depth: int,
) -> bool:
    """Take ``mode`` off a stack of modes, wherever in it: the user's own may have come on top and
    stay.

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
