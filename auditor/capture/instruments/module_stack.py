"""Which module runs now, and which one made a node of the backward graph: by qualified name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.nn.modules import module as module_hooks

from auditor.capture.instruments.live_objects import live_instances
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.autograd import next_number, number_of
from auditor.capture.instruments.torch_private.training import ANY_GLOBAL_HOOK, any_global_hook

MOST_SPANS = 100_000
"""Calls of modules that are remembered: those of a few steps."""


class Modules:
    """The modules whose forward runs now, and the graph nodes that each call made.

    Torch numbers the nodes of a thread as they are made: a call made those between its first number
    and its last.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._running: list[tuple[torch.nn.Module, int]] = []
        self._spans: list[tuple[int, int, str]] = []

    @property
    def current(self) -> str:
        """Name of the innermost one; its class's for the outermost; empty outside of all."""
        return self._name(self._running[-1][0]) if self._running else ""

    def that_made(self, node: Any) -> str:
        """Name of the innermost module whose forward made a node; empty if none was seen."""
        number = number_of(node)
        around = [span for span in self._spans if span[0] <= number < span[1]]
        return min(around, key=lambda span: span[1] - span[0])[2] if around else ""

    def watch(self, patches: Patches) -> None:
        """Follow every call of a module until the patches are undone."""
        self._running.clear()
        self._spans.clear()
        self._names = qualified_names()
        entering = module_hooks.register_module_forward_pre_hook(self._enter)
        leaving = module_hooks.register_module_forward_hook(self._leave, always_call=True)
        keep_hooks(patches, entering, leaving)

    def _name(self, module: torch.nn.Module) -> str:
        return self._names.get(id(module)) or type(module).__name__

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        self._running.append((module, next_number()))

    def _leave(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        for position in range(len(self._running) - 1, -1, -1):
            if self._running[position][0] is module:
                if len(self._spans) < MOST_SPANS:
                    self._spans.append(
                        (self._running[position][1], next_number(), self._name(module))
                    )
                del self._running[position:]
                return


def keep_hooks(patches: Patches, *handles: Any) -> None:
    """Hooks of ours on every module stay until ``patches`` are undone, and compiled modules do not
    see them meanwhile.

    Those warn of hooks on every module: a warning may be the user's error.
    """
    for handle in handles:
        patches.on_undo(handle.remove)
    if any_global_hook is None:
        return

    def any_of_the_users() -> bool:
        taken = list(_taken(handles))
        try:
            return bool(any_global_hook())
        finally:
            for hooks, number, hook in taken:
                hooks[number] = hook

    patches.attribute(module_hooks, ANY_GLOBAL_HOOK, any_of_the_users)


def _taken(handles: Iterable[Any]) -> Iterator[tuple[dict[int, Any], int, Any]]:
    """What each handle stands for, taken out of torch's dictionaries."""
    for handle in handles:
        for reference in (handle.hooks_dict_ref, *handle.extra_dict_ref):
            hooks = reference()
            if hooks is not None and handle.id in hooks:
                yield hooks, handle.id, hooks.pop(handle.id)


def live_modules() -> list[torch.nn.Module]:
    """All modules that exist. Slow: asks all live objects."""
    return live_instances(torch.nn.Module)


def qualified_names() -> dict[int, str]:
    """Names of all living modules by ``id``, as the largest module that holds each calls it. Slow:
    asks all live objects.
    """
    return {
        number: name
        for number, (_, name) in by_largest(lambda root: list(root.named_modules())).items()
    }


def by_largest(
    named_in: Callable[[torch.nn.Module], Sequence[tuple[str, Any]]],
) -> dict[int, tuple[torch.nn.Module, str]]:
    """What modules hold, by ``id``: the one with most of it that holds each, and its name there."""
    best: dict[int, tuple[int, torch.nn.Module, str]] = {}
    for root in live_modules():
        try:
            named = named_in(root)
        except Exception:  # a module of the user's that is not whole yet, or answers in its own way
            continue
        for name, held in named:
            if id(held) not in best or len(named) > best[id(held)][0]:
                best[id(held)] = len(named), root, name
    return {number: found[1:] for number, found in best.items()}
