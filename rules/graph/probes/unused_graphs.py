"""Modules that run with gradients on: does a backward ever walk the graph, and for what?"""

from __future__ import annotations

import contextlib
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch

from auditor.capture.instruments.autograd_graph import Backward, node_of, saved_bytes, walk
from auditor.capture.instruments.module_stack import live_modules
from auditor.capture.instruments.torch_private.training import (
    is_compiled,
    modules_of,
    own_parameters,
)
from auditor.capture.instruments.user_frames import Path, needless, path_of
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.numerics.nonfinite import homes_of
from auditor.capture.probes.optim.optimizer_hooks import live_optimizers, tensors_of

from ..rows import EvalRow

_MARK = "audit.evaluated"
"""Key in a node's metadata: which call in eval mode made it."""

_CALL = torch.nn.Module.__call__.__code__
"""What runs once for each call of a module."""

NAMED = 512
"""Parameters of a module whose names are written at most."""


@dataclass
class _CallPath:
    """The lines, outermost first, by which a module is called: in eval mode, untrained, trained."""

    path: Path
    module: str
    mode: str
    fed: bool = False
    """Something that it was given wants a gradient."""
    owner: weakref.ref[torch.nn.Module] | None = None
    calls: int = 0
    steps: set[int] = field(default_factory=set)
    walked: int = 0
    saved: int | None = None

    def row(self, at: int, watched: int, *, held: bool) -> EvalRow:
        """As the part ``evals`` holds it."""
        steps, walked, saved = len(self.steps), self.walked, self.saved
        return EvalRow(
            at=at,
            module=self.module,
            mode=self.mode,
            n=self.calls,
            steps=steps,
            watched=watched,
            walked=walked,
            held=held,
            saved_bytes=saved,
            fed=self.fed,
            parameters=self._names() if self.walked and not self.fed else [],
        )

    def _names(self) -> list[str]:
        """Names of its trainable parameters, as other parts have them."""
        module = None if self.owner is None else self.owner()
        if module is None:
            return []
        own = [each for each in module.parameters() if each.requires_grad][:NAMED]
        homes = homes_of(own)
        return [homes[id(each)] for each in own if id(each) in homes]


class _Built:
    """The graph of one call. Lives as long as its last node, and holds none."""

    def __init__(self, place: _CallPath, step: int) -> None:
        self.place = place
        self.step = step


class UnusedGraphsProbe(Probe):
    """Writes ``evals``, when the pass is over.

    Modules that are in eval mode get a forward hook: those that were when the pass began, and those
    that the step switches. So do those in train mode whose parameters no optimizer holds (target
    networks, averages of weights): they are not trained, and their mode says nothing. Of these, a
    call inside the call of another one says nothing; those inside others are hooked for programs
    that call the parts (``teacher.features(x)``, lists of stages). Modules that are trained are
    hooked as well: a call that is not part of another module's may have been made for its values
    alone (samples, a greedy baseline). A hook is off while its module is copied or pickled, and
    does not go along into the user's file.
    """

    name = "evals"
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._hooks: dict[int, Any] = {}
        self._copied: list[weakref.ref[torch.nn.Module]] = []
        self._untrained: set[int] = set()
        self._trained: set[int] = set()
        self._places: dict[tuple[Path, str], _CallPath] = {}
        self._live: weakref.WeakSet[_Built] = weakref.WeakSet()
        self._walking = self._watched = 0

    def start(self) -> None:
        """Hook the modules that are in eval mode, and notice which ones will be."""
        self._places.clear()
        self._walking = self._watched = 0
        super().start()
        self._patches.after_outermost(
            torch.nn.Module,
            "train",
            lambda _, mode=True: not mode,
            lambda module, mode=True: self._hook(module),
        )
        self._patches.attribute(torch.nn.Module, "__reduce_ex__", self._reducing())
        evaluated, untrained = _not_trained()
        trained = _trained()
        self._untrained = {id(module) for module in untrained}  # the hooks keep them alive
        self._trained = {id(module) for module in trained}
        for module in (*evaluated, *untrained, *trained):
            self._hook(module)

    def stop(self) -> None:
        super().stop()
        for handle in self._hooks.values():
            handle.remove()
        self._hooks.clear()
        self._copied.clear()
        self._untrained.clear()
        self._trained.clear()
        held = {id(built.place) for built in self._live if built.step < self.context.step}
        places, self._places = list(self._places.values()), {}
        wanted = [place for place in places if place.walked or id(place) in held]
        for place in wanted:
            if place.mode != "trained":
                self.context.add(place.row(place.path[-1], self._watched, held=id(place) in held))
        paths = [place.path for place in wanted]
        for mode in ("eval", "train", "trained"):
            idle = [place for place in places if place.mode == mode and place not in wanted]
            for at, outer, lines in needless([place.path for place in idle], paths):
                together = _joined(place for place in idle if place.path in lines)
                row = together.row(at, self._watched, held=False)
                row.outer = outer if outer != at else None
                self.context.add(row)

    def step_end(self) -> None:
        """Hook again what was copied in the step."""
        self._watched += 1
        copied, self._copied = self._copied, []
        for module in (reference() for reference in copied):
            if module is not None and (
                not module.training or id(module) in self._untrained or id(module) in self._trained
            ):
                self._hook(module)

    def backward_begins(self, call: Backward) -> None:
        """A graph that is walked was built for a purpose."""
        self._walking += 1
        if not self._live:
            return
        if call.walked.capped:  # unknown: what might have been walked counts as walked
            for built in list(self._live):
                built.place.walked += 1
        marks = (node.metadata.get(_MARK, ()) for node in call.walked.nodes)
        for built in {each for mark in marks for each in mark}:
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
        """``copy`` and ``pickle`` ask a module for its parts, hooks among them, by this method."""

        def reduce_ex(module: torch.nn.Module, protocol: Any) -> Any:
            handle = self._hooks.pop(id(module), None)
            if handle is not None:
                handle.remove()
                self._copied.append(weakref.ref(module))
            return super(torch.nn.Module, module).__reduce_ex__(protocol)

        return reduce_ex

    def _ran(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        with contextlib.suppress(Exception):  # outputs are the user's
            self._after(module, args, output)

    def _after(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        if self._walking or not self.context.in_step or not torch.is_grad_enabled():
            return
        mode = self._mode(module)
        if not mode:
            return
        nodes = [node for tensor in _tensors(output) if (node := node_of(tensor)) is not None]
        place = self._place(module, mode) if nodes else None
        if place is None:
            return
        place.fed |= any(tensor.requires_grad for tensor in _tensors(args))
        place.calls += 1
        place.steps.add(self.context.step)
        if place.saved is None:
            place.saved = saved_bytes(walk(nodes))
        built = _Built(place, self.context.step)
        self._live.add(built)
        for node in nodes:
            # a head's output is its model's
            node.metadata[_MARK] = (*node.metadata.get(_MARK, ()), built)

    def _mode(self, module: torch.nn.Module) -> str:
        """``eval``; ``train`` if no optimizer holds its parameters, else ``trained``; or empty."""
        around = _around(module)
        if id(module) in self._trained:
            alone = not around and (not module.training or _own_parameters(module))
            return ("trained" if module.training else "eval") if alone else ""
        if any(not each.training or id(each) in self._untrained for each in around):
            return ""
        if not module.training:
            return "eval"
        return "train" if id(module) in self._untrained and _own_parameters(module) else ""

    def _place(self, module: torch.nn.Module, mode: str) -> _CallPath | None:
        """By which lines it is called; None if none of them is the user's."""
        path = path_of(self.context.frames)
        if not path:
            return None
        place = self._places.get((path, mode))
        if place is None:
            place = self._places[path, mode] = _CallPath(path, type(module).__name__, mode)
            place.owner = weakref.ref(module)
        return place


def _joined(places: Iterable[_CallPath]) -> _CallPath:
    """The one with most calls, which stands for all; what they saved is added up."""
    chosen = list(places)
    known = [place.saved for place in chosen if place.saved is not None]
    first = max(chosen, key=lambda place: place.calls)
    first.saved = sum(known) if known else None
    return first


def _around(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Modules whose calls that of this one is a part of."""
    frame: FrameType | None = sys._getframe(1)
    found = []
    while frame is not None:
        if frame.f_code is _CALL:
            found.append(frame.f_locals["self"])
        frame = frame.f_back
    return [each for each in found if each is not module]


def _not_compiled() -> list[torch.nn.Module]:
    """Without compiled modules, and their parts: a hook there would compile them again."""
    found = live_modules()
    compiled = {id(part) for module in found if is_compiled(module) for part in modules_of(module)}
    return [module for module in found if id(module) not in compiled]


def _trained() -> list[torch.nn.Module]:
    """Modules of whose parameters an optimizer holds some."""
    held = {id(tensor) for optimizer in live_optimizers() for tensor in tensors_of(optimizer)}
    if not held:
        return []
    return [
        module
        for module in _not_compiled()
        if any(
            id(each) in held
            for part in modules_of(module)
            for each in own_parameters(part).values()
        )
    ]


def _not_trained() -> tuple[list[torch.nn.Module], list[torch.nn.Module]]:
    """Modules in eval mode, and those in train mode of whose parameters no optimizer holds any."""
    found = _not_compiled()
    evaluated = [module for module in found if module.__dict__.get("training") is False]
    held = {id(tensor) for optimizer in live_optimizers() for tensor in tensors_of(optimizer)}
    # a program that updates its weights itself: which of them are trained is not known
    if not held:
        return evaluated, []
    return evaluated, [
        module
        for module in found
        if module.__dict__.get("training") is True and _untrained(module, held)
    ]


def _untrained(module: torch.nn.Module, held: set[int]) -> bool:
    own = [
        each
        for part in modules_of(module)
        for each in own_parameters(part).values()
        if each is not None
    ]
    return any(each.requires_grad for each in own) and not any(id(each) in held for each in own)


def _own_parameters(module: torch.nn.Module) -> bool:
    """False while others stand in their place (``torch.func.functional_call``)."""
    return all(each.is_leaf for each in module.parameters())


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    """Tensors of an output: itself, or in tuples, lists and dicts (``transformers``' are dicts)."""
    if isinstance(output, torch.Tensor):
        yield output
    elif isinstance(output, (tuple, list)):
        for each in output:
            yield from _tensors(each)
    elif isinstance(output, dict):
        for each in output.values():
            yield from _tensors(each)
