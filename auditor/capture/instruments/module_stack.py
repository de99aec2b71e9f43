"""Which module runs now, and which one made a node of the backward graph: by qualified name."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch
from torch.nn.modules import module as module_hooks

from auditor.capture.instruments.live_objects import live_instances
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.autograd import next_number, number_of
from auditor.capture.instruments.torch_private.training import ANY_GLOBAL_HOOK, any_global_hook

MOST_MARKS = 200_000
"""Begins and ends of calls that are remembered: those of a few steps."""


class Modules:
    """The modules whose forward runs now, and the graph nodes that each call made.

    Torch numbers the nodes of a thread as they are made: a call made those between its first number
    and its last.
    """

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._running: list[tuple[torch.nn.Module, str]] = []
        self._numbers: list[int] = []
        self._since: list[str] = []
        self._thread = 0

    @property
    def current(self) -> str:
        """Name of the innermost one; its class's for the outermost; empty outside of all."""
        return self._running[-1][1] if self._running else ""

    def that_made(self, node: Any) -> str:
        """Name of the innermost module whose forward made a node; empty if none was seen."""
        mark = bisect_right(self._numbers, number_of(node))
        return self._since[mark - 1] if mark else ""

    def watch(self, patches: Patches, names: dict[int, str] | None = None) -> None:
        """Follow every call of a module in this thread until the patches are undone."""
        self.forget()
        self._thread = threading.get_ident()
        self._names = qualified_names() if names is None else names
        entering = module_hooks.register_module_forward_pre_hook(self._enter)
        leaving = module_hooks.register_module_forward_hook(self._leave, always_call=True)
        keep_hooks(patches, entering, leaving)

    def forget(self) -> None:
        """Let go of the calls so far."""
        self._running.clear()
        self._numbers.clear()
        self._since.clear()

    def _enter(self, module: torch.nn.Module, args: Any) -> None:
        if threading.get_ident() == self._thread:  # each has numbers of its own
            name = self._names.get(id(module)) or type(module).__name__
            if self._running and isinstance(module, torch.fx.GraphModule):  # of the compiler
                name = self.current
            self._running.append((module, name))
            self._mark()

    def _leave(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        for position in range(len(self._running) - 1, -1, -1):
            if self._running[position][0] is module:
                del self._running[position:]
                self._mark()
                return

    def _mark(self) -> None:
        if len(self._numbers) < MOST_MARKS:
            self._numbers.append(next_number())
            self._since.append(self.current)


def keep_hooks(patches: Patches, *handles: Any) -> None:
    """Hooks of ours on every module stay until ``patches`` are undone, and compiled modules do not
    see them meanwhile.

    Those warn of hooks on every module: a warning may be the user's error.
    """

    def leave() -> None:
        for handle in handles:
            handle.remove()
            _OURS.remove(handle)
        if not _OURS:
            _HIDING.undo()

    if not _OURS and any_global_hook is not None:
        _HIDING.attribute(module_hooks, ANY_GLOBAL_HOOK, _any_of_the_users)
    _OURS.extend(handles)
    patches.on_undo(leave)


_OURS: list[Any] = []
_HIDING = Patches()


def _any_of_the_users() -> bool:
    taken = list(_taken(_OURS))
    try:
        return any_global_hook is not None and bool(any_global_hook())
    finally:
        for hooks, number, hook in taken:
            hooks[number] = hook


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
    """Names of all living modules by ``id``, as the largest that holds each calls it. Slow."""
    return {
        number: name
        for number, (_, name) in by_largest(lambda root: list(root.named_modules())).items()
    }


def names_from_roots() -> dict[int, str]:
    """Names that begin with the class of that module: ``Net.layers.0``, ``Net (2)``."""
    roots: dict[int, str] = {}
    classes = Counter[str]()
    names: dict[int, str] = {}
    for number, (root, name) in by_largest(lambda root: list(root.named_modules())).items():
        kind = type(root).__name__
        if id(root) not in roots:
            classes[kind] += 1
            roots[id(root)] = f"{kind} ({classes[kind]})" if classes[kind] > 1 else kind
        names[number] = f"{roots[id(root)]}.{name}" if name else roots[id(root)]
    return names


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
