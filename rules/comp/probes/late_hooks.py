"""Hooks of modules that are registered when the compiler has been there already."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.instruments.torch_private.compiler import traced_as
from auditor.capture.probes.base import Context, Probe

from ..rows import LateHookRow

WAYS = ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook")

MOST = 200
"""Hooks of one line that are followed at a time."""


@dataclass
class _Line:
    """Hooks that one line registered, while they are. ``compiles`` as the first of them was."""

    what: str
    compiles: int
    handles: list[Any] = field(default_factory=list)
    called: bool = False
    before: bool = False
    steps: int = 0
    ran: int = 0

    @property
    def held(self) -> bool:
        """True while one of them is registered; those that were removed are forgotten."""
        self.handles = [each for each in self.handles if each.id in (each.hooks_dict_ref() or ())]
        return bool(self.handles)

    def calls(self, *_: Any) -> None:
        """Python called one of them."""
        self.called = True


class LateHooksProbe(Probe):
    """Writes ``late_hooks``.

    A hook is wrapped where something was compiled before it, to see whether Python calls it; the
    compiler traces the hook itself, so that what it compiles later is what it would have been. Only
    functions that nobody can pickle are wrapped.
    """

    name = "late_hooks"
    parts = ("late_hooks",)
    passes = frozenset({"warmup", "quiet", "eager_held"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._lines: dict[int, _Line] = {}

    def install(self) -> None:
        for name in WAYS:
            self._always.attribute(torch.nn.Module, name, self._registering(name))

    def uninstall(self) -> None:
        """See no more of them, and put the program's own back."""
        super().uninstall()
        for line in self._lines.values():
            for handle in line.handles:
                hooks = handle.hooks_dict_ref() or {}
                if handle.id in hooks:
                    hooks[handle.id] = hooks[handle.id].__wrapped__
        self._lines.clear()

    def start(self) -> None:
        """Nothing was called in this pass."""
        super().start()
        for line in self._lines.values():
            line.steps = line.ran = 0

    def step_begin(self) -> None:
        """Nothing was called in this step."""
        for line in self._lines.values():
            line.called, line.before = False, line.held

    def step_end(self) -> None:
        """Which lines had a hook in all of it."""
        for line in self._lines.values():
            if line.before and line.held:
                line.steps += 1
                line.ran += line.called

    def stop(self) -> None:
        for at, line in self._lines.items():
            if line.steps:
                again = line.compiles != COMPILED_CODE.compiles
                row = LateHookRow(
                    at=at, what=line.what, steps=line.steps, ran=line.ran, again=again
                )
                self.context.add(row)
            line.steps = line.ran = 0

    def _registering(self, name: str) -> Callable[..., Any]:
        original = getattr(torch.nn.Module, name)

        @functools.wraps(original)
        def register(module: torch.nn.Module, hook: Any, *args: Any, **kwargs: Any) -> Any:
            line = self._line(module, hook, sys._getframe(1).f_code.co_filename)
            if line is None:
                return original(module, hook, *args, **kwargs)
            handle = original(module, _seen(hook, line), *args, **kwargs)
            line.handles.append(handle)
            return handle

        return register

    def _line(self, module: torch.nn.Module, hook: Any, file: str) -> _Line | None:
        """The line that registers it, if it is followed."""
        if not COMPILED_CODE.compiles or type(hook) is not FunctionType:
            return None
        if "<" not in hook.__qualname__ or not self.context.frames.is_user(file):
            return None
        at = self.context.frames.here()
        if at is None:
            return None
        new = _Line(type(module).__name__, COMPILED_CODE.compiles)
        line = self._lines.setdefault(at, new)
        return line if len(line.handles) < MOST else None


def _seen(hook: FunctionType, line: _Line) -> Callable[..., Any]:
    calls = line.calls

    @functools.wraps(hook)
    def seen(*args: Any, **kwargs: Any) -> Any:
        calls()
        return hook(*args, **kwargs)

    return traced_as(seen, hook)
