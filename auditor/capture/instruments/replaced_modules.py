"""Which line put a module in another's place, by the parameters that came and those that went."""

import sys
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook

from auditor.capture.instruments.live_objects import alive
from auditor.capture.instruments.torch_private.training import own_children
from auditor.capture.instruments.user_frames import Frames

MOST, OFTEN = 10_000, 8
"""Parameters that are remembered; changes of one place, more of which are the program's way."""


@dataclass(frozen=True)
class Replaced:
    """What a parameter's module took the place of, or lost its own to."""

    parameter: weakref.ref[torch.Tensor]
    module: weakref.ref[nn.Module]
    holder: weakref.ref[nn.Module]
    gone: dict[int, weakref.ref[torch.Tensor]]
    """By ``id``, parameters that the new module has not, nor had the old one in its turn."""
    at: int
    outside: int
    """The line that called the modules' own methods which did it."""

    def lost(self) -> set[int]:
        """By ``id``, those that went and are alive."""
        return {number for number, each in self.gone.items() if alive(each) is not None}


class ReplacedModules:
    """Costs nothing while no module takes another's place, and little where they take turns."""

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._of: dict[int, Replaced] = {}
        self._times = Counter[tuple[int, str]]()

    def watch(self, guarded: Callable[..., Any]) -> Callable[[], None]:
        """From now on; the result ends it."""
        return register_module_module_registration_hook(guarded(self._comes)).remove

    def of(self, parameter: torch.Tensor) -> Replaced | None:
        """The last time that its module, or what holds it, came or went."""
        found = self._of.get(id(parameter))
        return found if found is not None and alive(found.parameter) is parameter else None

    def _comes(self, owner: nn.Module, name: str, made: Any) -> None:
        old = own_children(owner).get(name)
        if old is None or made is None or old is made or len(self._of) > MOST:
            return
        self._times[id(owner), name] += 1
        often = self._times[id(owner), name] > OFTEN
        frames = [] if often else self._frames.user_frames(sys._getframe(1))
        if not frames:
            return
        others = (each for each in frames if not isinstance(each.f_locals.get("self"), nn.Module))
        at, outside = map(self._frames.number, (frames[0], next(others, frames[0])))
        kept = set(map(id, made.parameters()))
        before = [told for told in map(self.of, old.parameters()) if told is not None]
        gone = {id(each): weakref.ref(each) for each in old.parameters() if id(each) not in kept}
        gone |= {number: told.gone[number] for told in before for number in told.lost()}
        for module in (old, made):
            both = weakref.ref(module), weakref.ref(owner)
            for each in module.parameters():
                self._of[id(each)] = Replaced(weakref.ref(each), *both, gone, at, outside)
