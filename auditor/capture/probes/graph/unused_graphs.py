"""Modules that are not trained and run with gradients on: is the graph that this builds ever
walked?
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from auditor.capture.instruments.autograd_graph import (
    BACKWARD_HOOKS,
    Backward,
    node_of,
    saved_bytes,
    walk,
)
from auditor.capture.instruments.module_stack import live_modules
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.training import own_children, own_parameters
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.optim.optimizer_hooks import live_optimizers, tensors_of
from auditor.recordings.schema import EvalRow

_MARK = "audit.evaluated"
"""Key in a node's metadata: which call in eval mode made it."""


@dataclass
class _Place:
    """One line that calls a module in eval mode, or one in train mode that nothing trains."""

    at: int
    module: str
    mode: str
    calls: int = 0
    steps: set[int] = field(default_factory=set)
    walked: int = 0
    saved: int | None = None

    def row(self, *, held: bool) -> EvalRow:
        """As the part ``evals`` holds it."""
        steps, walked, saved = len(self.steps), self.walked, self.saved
        return EvalRow(
            at=self.at,
            module=self.module,
            mode=self.mode,
            n=self.calls,
            steps=steps,
            walked=walked,
            held=held,
            saved_bytes=saved,
        )


class _Built:
    """The graph of one call. Lives as long as its last node, and holds none."""

    def __init__(self, place: _Place, step: int) -> None:
        self.place = place
        self.step = step


class UnusedGraphsProbe(Probe):
    """Writes ``evals``, when the pass is over.

    Only the outermost modules that are in eval mode get a forward hook: those that were when the
    pass began, and those that the step switches. So do the outermost in train mode whose parameters
    no optimizer holds (target networks, averages of weights): nobody trains them, and their mode
    says nothing. A hook is off while its module is copied or pickled, and does not go along into
    the user's file.
    """

    name = "evals"
    parts = ("evals",)
    passes = frozenset({"loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._patches = Patches()
        self._hooks: dict[int, Any] = {}
        self._copied: list[weakref.ref[torch.nn.Module]] = []
        self._untrained: set[int] = set()
        self._places: dict[int, _Place] = {}
        self._live: weakref.WeakSet[_Built] = weakref.WeakSet()
        self._switching = False
        self._walking = 0

    def start(self) -> None:
        """Hook the modules that are in eval mode, and notice which ones will be."""
        self._places.clear()
        self._walking = 0
        self.context.writer.touch("evals")
        BACKWARD_HOOKS.add(self)
        original = torch.nn.Module.train

        @functools.wraps(original)
        def train(module: torch.nn.Module, mode: bool = True) -> torch.nn.Module:
            if mode or self._switching:
                return original(module, mode)
            self._switching = True  # its children follow
            try:
                return original(module, mode)
            finally:
                self._switching = False
                self._hook(module)

        self._patches.attribute(torch.nn.Module, "train", train)
        self._patches.attribute(torch.nn.Module, "__reduce_ex__", self._reducing())
        evaluated, untrained = _outermost_not_trained()
        self._untrained = {id(module) for module in untrained}  # the hooks keep them alive
        for module in (*evaluated, *untrained):
            self._hook(module)

    def stop(self) -> None:
        """Take the hooks away and write a row for each line. May be called twice."""
        BACKWARD_HOOKS.remove(self)
        self._patches.undo()
        for handle in self._hooks.values():
            handle.remove()
        self._hooks.clear()
        self._copied.clear()
        self._untrained.clear()
        held = {built.place.at for built in self._live if built.step < self.context.step}
        places, self._places = self._places, {}
        for place in places.values():
            self.context.add(place.row(held=place.at in held))

    def step_end(self) -> None:
        """Hook again what was copied in the step."""
        copied, self._copied = self._copied, []
        for module in (reference() for reference in copied):
            if module is not None and (not module.training or id(module) in self._untrained):
                self._hook(module)

    def backward_begins(self, call: Backward) -> None:
        """A graph that is walked was built for a purpose."""
        self._walking += 1
        if not self._live:
            return
        if call.walked.capped:  # unknown: what might have been walked counts as walked
            for built in list(self._live):
                built.place.walked += 1
        for built in {node.metadata[_MARK] for node in call.walked.nodes if _MARK in node.metadata}:
            built.place.walked += 1

    def backward_ends(self, call: Backward) -> None:
        """What modules do meanwhile is over (checkpointing runs their forward again)."""
        self._walking -= 1

    def backward_lost(self, error: Exception) -> None:
        """Without the door nothing can be said."""
        self._places.clear()
        self._live.clear()
        super().backward_lost(error)

    def _hook(self, module: torch.nn.Module) -> None:
        by_itself = isinstance(module, torch.jit.ScriptModule) or hasattr(
            type(module), "__deepcopy__"
        )  # copies what hangs on it
        if id(module) not in self._hooks and not by_itself:
            with contextlib.suppress(Exception):  # a module of the user's may answer in its own way
                self._hooks[id(module)] = module.register_forward_hook(self._ran)

    def _reducing(self) -> Callable[[torch.nn.Module, Any], Any]:
        """``copy`` and ``pickle`` ask a module for its parts by this method, those of its hooks
        among them.
        """

        def reduce_ex(module: torch.nn.Module, protocol: Any) -> Any:
            handle = self._hooks.pop(id(module), None)
            if handle is not None:
                handle.remove()
                self._copied.append(weakref.ref(module))
            return super(torch.nn.Module, module).__reduce_ex__(protocol)

        return reduce_ex

    def _ran(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        with contextlib.suppress(Exception):  # outputs are the user's
            self._after(module, output)

    def _after(self, module: torch.nn.Module, output: Any) -> None:
        if self._walking or not self.context.in_step or not torch.is_grad_enabled():
            return
        if module.training and not (id(module) in self._untrained and _own_parameters(module)):
            return
        nodes = [node for tensor in _tensors(output) if (node := node_of(tensor)) is not None]
        at = self.context.frames.here() if nodes else None
        if at is None:
            return
        place = self._places.setdefault(
            at, _Place(at, type(module).__name__, "train" if module.training else "eval")
        )
        place.calls += 1
        place.steps.add(self.context.step)
        if place.saved is None:
            place.saved = saved_bytes(walk(nodes))
        built = _Built(place, self.context.step)
        self._live.add(built)
        for node in nodes:
            node.metadata[_MARK] = built


def _outermost_not_trained() -> tuple[list[torch.nn.Module], list[torch.nn.Module]]:
    """The outermost modules in eval mode, and those in train mode of whose parameters no optimizer
    holds any.
    """
    found = live_modules()
    evaluated = _outermost([module for module in found if module.__dict__.get("training") is False])
    held = {id(tensor) for optimizer in live_optimizers() for tensor in tensors_of(optimizer)}
    if (
        not held
    ):  # a program that updates its weights itself: which of them are trained is not known
        return evaluated, []
    idle = [
        module
        for module in found
        if module.__dict__.get("training") is True and _untrained(module, held)
    ]
    outermost = _outermost([*evaluated, *idle])
    return evaluated, [module for module in outermost if module.__dict__["training"]]


def _outermost(modules: list[torch.nn.Module]) -> list[torch.nn.Module]:
    inside = {id(child) for module in modules for child in _below(module)}
    return [module for module in modules if id(module) not in inside]


def _untrained(module: torch.nn.Module, held: set[int]) -> bool:
    own = [
        each
        for part in (module, *_below(module))
        for each in own_parameters(part).values()
        if each is not None
    ]
    return any(each.requires_grad for each in own) and not any(id(each) in held for each in own)


def _own_parameters(module: torch.nn.Module) -> bool:
    """False while others stand in their place (``torch.func.functional_call``): those may be
    trained.
    """
    return all(each.is_leaf for each in module.parameters())


def _below(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    waiting = [each for each in own_children(module).values() if each is not None]
    while waiting:
        child = waiting.pop()
        yield child
        waiting.extend(each for each in own_children(child).values() if each is not None)


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    """Tensors of an output: itself, or in tuples, lists and dicts (``transformers`` returns
    dicts).
    """
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, (tuple, list)):
        for each in output:
            yield from _tensors(each)
    elif isinstance(output, dict):
        for each in output.values():
            yield from _tensors(each)
