"""Modules that are trained, and called while the program has gradients off: in train mode, in eval
mode with dropout all the same, or under the name of another network. And optimizer steps on
parameters of a module that was put into eval mode and stayed there.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType, FunctionType
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.modules import module as module_hooks
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.instruments.gradients_off import Place, place_of_block, watch_blocks
from auditor.capture.instruments.module_stack import keep_hooks
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.training import BatchNorm, modules_of, own_parameters
from auditor.capture.instruments.user_frames import outwards
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, PerOptimizer, tensors_of
from auditor.recordings.schema.graph import CensusRow

from ..rows import SwitchedRow, TrainModeForwardRow

SWITCHES = 256
"""Changes of a module's mode that are looked at; a program that makes more of them changes back."""

OPTIMIZERS = 64

DROPOUTS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)


@dataclass
class _Switch:
    """A call of ``eval()`` in train mode. ``parts`` that then change; ``own``: its parameters."""

    owner: weakref.ref[nn.Module]
    parts: list[weakref.ref[nn.Module]]
    own: frozenset[int]
    before: dict[int, int]
    """Steps of each optimizer since the parts were put into train mode, by its number."""
    row: SwitchedRow


class EvalModeStepsProbe(OptimizerProbe):
    """Writes ``switched``: a row for each line that put a module into eval mode, when the pass is
    over, of all steps until then.

    A change of mode is looked at when a module makes it; a call that changes nothing costs a
    comparison.
    """

    name = "switched"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._changing = False
        self._looked = 0
        self._taken = PerOptimizer[list[int]](OPTIMIZERS)
        """Of each optimizer its number, and its steps so far."""
        self._since: weakref.WeakKeyDictionary[nn.Module, dict[int, int]] = (
            weakref.WeakKeyDictionary()
        )
        self._pending: list[_Switch] = []
        self._rows: dict[int, SwitchedRow] = {}
        self._backs: set[int | None] = set()

    def install(self) -> None:
        super().install()
        original = nn.Module.train
        evaluated, trained = self.guarded(self._evaluated), self.guarded(self._trained)
        asked = self.guarded(lambda: self._backs.add(self._place()))

        @functools.wraps(original)
        def train(module: nn.Module, mode: bool = True) -> nn.Module:
            if mode and self._rows and sys._getframe(1).f_code is not original.__code__:
                asked()
            if self._changing or module.training == mode or self._looked >= SWITCHES:
                return original(module, mode)
            self._changing = True  # its children follow
            self._looked += 1
            try:
                parts = [
                    each for each in modules_of(module) if each.training != mode and differs(each)
                ]
                result = original(module, mode)
            finally:
                self._changing = False
            if parts:
                (trained if mode else evaluated)(module, parts)
            return result

        self._always.attribute(nn.Module, "train", train)

    def uninstall(self) -> None:
        super().uninstall()
        self._pending.clear()

    def stop(self) -> None:
        rows, self._rows = self._rows, {}
        backs = sorted(each for each in self._backs if each is not None)
        self._backs.clear()
        self._pending.clear()
        for row in rows.values():
            row.backs = backs
            if row.steps or backs:
                self.context.add(row)

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Is one of those that were put into eval mode still there?"""
        taken = self._taken.of(optimizer, lambda: [len(list(self._taken)), 0])
        if taken is None:
            return
        taken[1] += 1
        for switch in tuple(self._pending):
            before = switch.before.get(taken[0], 0)
            if _has_gone_back(switch):
                self._pending.remove(switch)
            elif before and any(
                each.grad is not None and id(each) in switch.own for each in tensors_of(optimizer)
            ):
                switch.row.before = max(switch.row.before, before)
                switch.row.steps += 1

    def _trained(self, module: nn.Module, parts: list[nn.Module]) -> None:
        taken = {number: steps for number, steps in self._taken}  # noqa: C416 - of lists
        self._since.update((part, taken) for part in parts)

    def _evaluated(self, module: nn.Module, parts: list[nn.Module]) -> None:
        before = {
            number: steps - max(self._since.get(part, {}).get(number, 0) for part in parts)
            for number, steps in self._taken
        }
        if not any(before.values()) or any(part is module for part in parts):
            return  # nothing was trained yet, or one layer was frozen
        at = self._place()
        if at is None:
            return
        row = self._rows.get(at)
        if row is None:
            kinds = Counter(type(part).__name__ for part in parts)
            row = self._rows[at] = SwitchedRow(
                at=at,
                module=type(module).__name__,
                parts=dict(sorted(kinds.items())),
                before=0,
                steps=0,
                grads=torch.is_grad_enabled(),
            )
        own = frozenset(map(id, parameters_of(module)))
        references = [weakref.ref(part) for part in parts]
        self._pending.append(_Switch(weakref.ref(module), references, own, before, row))

    def _place(self) -> int | None:
        """The line that asked: not one in a ``train`` or ``eval`` of the user's own modules."""
        frames = self.context.frames
        for frame in outwards(sys._getframe(1)):
            code = frame.f_code
            if frames.is_user(code.co_filename) and code.co_name not in ("train", "eval"):
                return frames.number(frame)
        return None


def _has_gone_back(switch: _Switch) -> bool:
    """The module, or a part of it, is in train mode again, or is no more."""
    owner = switch.owner()
    parts = [part() for part in switch.parts]
    return owner is None or owner.training or any(part is None or part.training for part in parts)


def differs(module: nn.Module) -> bool:
    """It computes something else in train mode than in eval mode."""
    if isinstance(module, DROPOUTS):
        return float(module.p) > 0
    if isinstance(module, nn.RNNBase):
        return float(module.dropout) > 0 and int(module.num_layers) > 1
    if isinstance(module, nn.MultiheadAttention):
        return float(module.dropout) > 0
    return (
        BatchNorm is not None
        and isinstance(module, BatchNorm)
        and getattr(module, "running_mean", None) is not None
    )


def parameters_of(module: nn.Module) -> Iterator[Any]:
    """All of its parameters."""
    return (each for part in modules_of(module) for each in own_parameters(part).values())


BLOCKS = 32
"""Blocks at one place in which calls are watched until one is found; later ones are counted."""

DROPS = 4
"""Of these, blocks in which dropout is watched."""

PLACES = 64

CALLS = 64
"""Calls of a block that are looked at, until one of a trained module in train mode."""

_CALL = nn.Module.__call__.__code__
"""What runs once for each call of a module."""

TAKE_P: dict[str, tuple[str, int, float]] = {
    **dict.fromkeys(
        (
            "dropout",
            "dropout1d",
            "dropout2d",
            "dropout3d",
            "alpha_dropout",
            "feature_alpha_dropout",
        ),
        ("p", 1, 0.5),
    ),
    "scaled_dot_product_attention": ("dropout_p", 4, 0.0),
}
"""Functions of ``torch.nn.functional`` that drop: name, position and default of the share."""


@dataclass
class _Taken:
    """Steps of one optimizer that had gradients."""

    optimizer: weakref.ref[Optimizer]
    steps: int = 0


@dataclass
class _Spot:
    """A place that turns gradients off, and what ran there in train mode, ``after`` which steps."""

    looked: int = 0
    times: int = 0
    after: int = -1
    row: TrainModeForwardRow | None = None
    trainers: tuple[_Taken, ...] = ()
    named: bool = False
    """It was looked whether a trained module has two names there."""


@dataclass
class _Block:
    """One that has begun: the context manager, and the frame that entered it."""

    manager: Any
    frame: FrameType
    spot: _Spot
    hooks: Patches
    calls: int = 0


class TrainModeForwardsProbe(OptimizerProbe):
    """Writes ``train_mode_forwards``: a row for each place at which the program's own code turns
    gradients off, and which then calls a trained module in train mode; and two kinds of ``census``.

    Nothing is hooked but inside such a block, and there until the first such call. Programs that
    compile are left alone.
    """

    name = "train_mode_forwards"
    parts = ("train_mode_forwards", "census")
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._thread = threading.get_ident()
        self._taken = PerOptimizer[_Taken](OPTIMIZERS)
        self._steps = 0
        self._spots: dict[Place, _Spot] = {}
        self._block: _Block | None = None
        self._dropping: set[int | None] = set()

    def install(self) -> None:
        super().install()
        self.context.writer.touch("census")
        self._thread = threading.get_ident()
        watch_blocks(self._always, self._entered, self._exited, self.missed)

    def uninstall(self) -> None:
        self._leave()
        super().uninstall()
        self._spots.clear()

    def stop(self) -> None:
        for spot in self._spots.values():
            row, spot.row = spot.row, None
            if row is not None:
                row.times = spot.times
                row.steps = max(each.steps for each in spot.trainers)
                self.context.add(row)

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Count it where something is there to step by."""
        taken = self._taken.of(optimizer, lambda: _Taken(weakref.ref(optimizer)))
        if taken is not None and any(each.grad is not None for each in tensors_of(optimizer)):
            taken.steps += 1
            self._steps += 1

    def _entered(self, manager: Any, frame: FrameType) -> None:
        if self._block is not None or torch.is_grad_enabled() or COMPILED_CODE.compiles:
            return
        place = place_of_block(self.context.frames, frame)
        if place is None:
            return
        spot = self._spots.get(place)
        if spot is None:
            if len(self._spots) >= PLACES:
                return
            spot = self._spots[place] = _Spot()
        if spot.row is not None:
            self._counted(spot)
            return
        if not self._steps or spot.looked >= BLOCKS:
            return
        spot.looked += 1
        hooks = Patches()
        self._block = _Block(manager, frame, spot, hooks)
        before = self.guarded(self._called)
        keep_hooks(hooks, module_hooks.register_module_forward_pre_hook(before))
        for name in TAKE_P if spot.looked <= DROPS else ():
            function = getattr(functional, name)
            drops = self.guarded(functools.partial(self._drops, name))
            if isinstance(function, FunctionType):  # also under a name that was imported
                hooks.code(function, functools.partial(_after, drops))
            else:
                hooks.around(functional, name, before=drops)

    def _exited(self, manager: Any, frame: FrameType) -> None:
        if self._block is not None and self._block.manager is manager:
            self._leave()

    def _leave(self) -> None:
        block, self._block = self._block, None
        if block is not None:
            block.hooks.undo()

    def _called(self, module: nn.Module, args: Any) -> None:
        block = self._block
        if block is None or threading.get_ident() != self._thread:
            return
        block.calls += 1
        if block.calls > CALLS:
            block.hooks.undo()
            return
        frames = _frames_up_to(block.frame)
        if (
            frames is None
            or torch.is_grad_enabled()
            or not (module.training or not block.spot.named)
        ):
            return
        user = [each for each in frames if self.context.frames.is_user(each.f_code.co_filename)]
        trainers = self._trainers(module) if user else ()
        if not trainers:
            return
        if not block.spot.named:
            block.spot.named = True
            self._look_for_names(module, user[0])
        if not module.training:
            return
        parts = [each for each in modules_of(module) if each.training and differs(each)]
        if not parts:
            return
        block.hooks.undo()
        self._counted(block.spot)
        block.spot.trainers = trainers
        block.spot.row = TrainModeForwardRow(
            at=self.context.frames.number(user[0]),
            within=self.context.frames.number(user[-1]),
            module=type(module).__name__,
            parts=dict(sorted(Counter(type(part).__name__ for part in parts).items())),
            times=0,
            steps=0,
        )

    def _look_for_names(self, module: nn.Module, frame: FrameType) -> None:
        """Whether the line that calls it has another name for the same parameters."""
        own = [id(each) for each in parameters_of(module)]
        owner = frame.f_locals.get("self")
        held = {} if owner is None else {**vars(owner), **(vars(owner).get("_modules") or {})}
        known = {f"self.{name}": each for name, each in held.items()}
        known = {**frame.f_globals, **frame.f_locals, **known}
        names = [
            name
            for name, each in known.items()
            if isinstance(each, nn.Module) and [id(one) for one in parameters_of(each)] == own
        ]
        if len(names) > 1:
            self.context.add(
                CensusRow(
                    kind="alias",
                    at=self.context.frames.number(frame),
                    name=type(module).__name__,
                    other=" ".join(names),
                )
            )

    def _drops(self, name: str, *args: Any, **named: Any) -> None:
        block, (key, position, default) = self._block, TAKE_P[name]
        share = named.get(key, args[position] if len(args) > position else default)
        training = named.get("training", args[2] if len(args) > 2 and key == "p" else True)
        if block is None or torch.is_grad_enabled() or not (training and share):
            return
        at, running = self.context.frames.here(), []
        frame: FrameType | None = sys._getframe(1) if at not in self._dropping else None
        while frame is not None and frame is not block.frame:
            if frame.f_code is _CALL:
                running.append(frame.f_locals.get("self"))
            frame = frame.f_back
        model = next((each for each in reversed(running) if self._trainers(each)), None)
        if model is None or any(each.training and differs(each) for each in modules_of(model)):
            return
        if not model.training:
            self._dropping.add(at)
            given = running[0] if type(running[0]).__module__.startswith("torch.nn.") else None
            name = type(given).__name__ if given is not None else name
            via = self.context.frames.user_frame()[1]
            own = via is None or via.f_globals.get("__name__", "").startswith("torch.")
            self.context.add(CensusRow(kind="dropout", at=at, name=name, meant=not own))

    def _counted(self, spot: _Spot) -> None:
        spot.times += spot.after != self._steps
        spot.after = self._steps

    def _trainers(self, module: nn.Module) -> tuple[_Taken, ...]:
        """Optimizers that have stepped parameters of the module."""
        own = {id(each) for each in parameters_of(module)}
        return tuple(
            taken
            for taken in self._taken
            if taken.steps
            and (optimizer := taken.optimizer()) is not None
            and any(id(each) in own for each in tensors_of(optimizer))
        )


def _after(
    told: Callable[..., None], original: Callable[..., Any], *args: Any, **named: Any
) -> Any:
    told(*args, **named)
    return original(*args, **named)


def _frames_up_to(last: FrameType) -> list[FrameType] | None:
    """Of a call that is not part of another module's, innermost first; None of others."""
    found: list[FrameType] = []
    calls = 0
    for frame in outwards(sys._getframe(2)):
        calls += frame.f_code is _CALL
        if calls > 1:
            return None
        found.append(frame)
        if frame is last:
            return found
    return None
