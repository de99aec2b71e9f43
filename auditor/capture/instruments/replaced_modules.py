"""Which line put a module in another's place, by the parameters that came and those that went."""

import sys
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)
from torch.utils.hooks import RemovableHandle

from auditor.capture.instruments.live_objects import alive
from auditor.capture.instruments.torch_private.training import own_children, own_parameters
from auditor.capture.instruments.user_frames import Frames

MOST, OFTEN = 10_000, 8
"""Parameters that are remembered; changes of one place, more of which are the program's way."""


@dataclass(frozen=True)
class Replaced:
    """What a parameter or its module took the place of, or lost its own to."""

    parameter: weakref.ref[torch.Tensor]
    module: Callable[[], nn.Module | None]
    """None of a parameter that was replaced itself."""
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
    """Costs nothing while no module or parameter takes another's place, and little where they take
    turns.
    """

    def __init__(self, frames: Frames) -> None:
        self._frames = frames
        self._of: dict[int, Replaced] = {}
        self._times = Counter[tuple[int, str]]()

    def watch(self, guarded: Callable[..., Any]) -> Callable[[], Any]:
        """From now on; the result ends it."""
        modules, parameters = (
            guarded(partial(self._comes, held)) for held in (own_children, own_parameters)
        )
        handles = (
            register_module_module_registration_hook(modules),
            register_module_parameter_registration_hook(parameters),
        )
        return lambda: list(map(RemovableHandle.remove, handles))

    def of(self, parameter: torch.Tensor) -> Replaced | None:
        """The last time that its module, or what holds it, came or went."""
        found = self._of.get(id(parameter))
        return found if found is not None and alive(found.parameter) is parameter else None

    def _comes(
        self, held: Callable[[nn.Module], dict[str, Any]], owner: nn.Module, name: str, made: Any
    ) -> None:
        old = held(owner).get(name)
        if old is None or made is None or old is made or len(self._of) > MOST:
            return
        self._times[id(owner), name] += 1
        often = self._times[id(owner), name] > OFTEN
        frames = [] if often else self._frames.user_frames(sys._getframe(1))
        if not frames:
            return
        inside = isinstance(made, nn.Module)  # a parameter's values can change where it is replaced
        others = (
            each
            for each in frames
            if not (inside and isinstance(each.f_locals.get("self"), nn.Module))
        )
        at, outside = map(self._frames.number, (frames[0], next(others, frames[0])))
        kept, went = set(map(id, _parameters(made))), _parameters(old)
        before = [told for told in map(self.of, went) if told is not None]
        gone = {id(each): weakref.ref(each) for each in went if id(each) not in kept}
        gone |= {number: told.gone[number] for told in before for number in told.lost()}
        for module in (old, made):
            whole = isinstance(module, nn.Module)
            both = weakref.ref(module) if whole else lambda: None, weakref.ref(owner)
            for each in _parameters(module):
                self._of[id(each)] = Replaced(weakref.ref(each), *both, gone, at, outside)


def _parameters(put: nn.Module | torch.Tensor) -> list[torch.Tensor]:
    return [*put.parameters()] if isinstance(put, nn.Module) else [put]
