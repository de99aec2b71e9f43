"""Optimizers whose state is thrown away, ties that part, statistics of frozen batch norms."""

from __future__ import annotations

import sys
import weakref
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_module_registration_hook
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader

from auditor.capture.instruments.live_objects import alive, live_instances
from auditor.capture.instruments.plain_tensor import plain
from auditor.capture.instruments.torch_private.tensors import version_hint
from auditor.capture.instruments.torch_private.training import (
    BatchNorm,
    own_children,
    own_parameters,
)
from auditor.capture.instruments.user_frames import outwards
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, groups_of, tensors_of
from auditor.recordings.schema.graph import CensusRow

STALE = 3
"""Steps of a scheduler between which its optimizer did not step, and another one did."""

SOME = 4
"""Parameters of an optimizer by which it is known, those of its first that are plain."""

MOST = 64
"""Ties, and batch norms, that are followed."""

APART, LEVELED = 1.5, 8
"""Ratio of rates that are meant to differ; first steps with one rate for all groups."""

COPIED, FOLLOWED = 2, 8
"""Writes to statistics that come of a copy at the start; writes to weights that are an average's."""

CALLERS = 6
"""Callers of the line that makes an optimizer."""

OWNERS = 100_000
"""Parameters whose owner is remembered until the first step."""

Weak = list["weakref.ref[torch.Tensor]"]
Place = tuple["weakref.ref[nn.Module]", str]
"""A module, and the name that it has for a parameter."""


@dataclass
class _Life:
    """An optimizer: by what it was made, and how far it came. It holds nothing of the program's."""

    at: int | None
    name: str
    settings: str
    ids: frozenset[int] = frozenset()
    some: Weak = field(default_factory=list)
    steps: int = 0
    loader: weakref.ref[Any] | None = None
    """What gave its first batch, in the pass of this number."""
    passes: int = 0
    left: list[int] = field(default_factory=list)
    values: torch.Tensor | None = None
    moments: bool = False
    again: int = 0
    loaded_at: int | None = None
    stack: tuple[int, ...] = ()
    """The user's lines that made it, innermost first."""
    rates: tuple[float, ...] = ()
    """Learning rates of its groups when it was made."""
    leveled: int = 0
    """Its steps with one rate for all groups, from the first on."""

    def take(self, optimizer: Optimizer) -> None:
        """What it steps now."""
        tensors = list(tensors_of(optimizer))
        self.ids = frozenset(map(id, tensors))
        plain_ones = (each for each in tensors if type(each) in (nn.Parameter, torch.Tensor))
        self.some = [weakref.ref(each) for _, each in zip(range(SOME), plain_ones, strict=False)]

    def tensors(self) -> list[torch.Tensor]:
        """Those by which it is known; none if one of them is gone."""
        found = [each for each in map(alive, self.some) if each is not None]
        return found if len(found) == len(self.some) else []

    def leave(self, passes: int) -> None:
        """It has stepped: how it leaves its parameters, in which pass of its loader."""
        tensors = self.tensors()
        self.steps += 1
        self.left = [*map(version_hint, tensors), passes]
        self.values = _first(tensors[0]).clone() if self.again and tensors else None

    def untouched(self) -> bool:
        """Nothing wrote to its parameters since its last step, in its loader's first pass."""
        tensors = self.tensors()
        same = self.values is None or torch.equal(self.values, _first(tensors[0]))
        return bool(tensors) and self.left == [*map(version_hint, tensors), self.passes] and same

    def follows(self, last: _Life) -> bool:
        """It begins with the pass of the same loader after that of the last one, or that one stepped
        once: what both do is an epoch, or a step, and no stage of the training.
        """
        same = self.loader is not None and self.loader == last.loader
        return last.steps == 1 or (same and self.passes == last.passes + 1)


@dataclass
class _Tie:
    """Two places that had one parameter. ``parted_at``: the line that parted them last."""

    one: Place
    two: Place
    at: int | None
    parted_at: int | None = None
    loaded: bool = False


@dataclass
class _Norm:
    """A frozen batch norm that ran in train mode, and what it held before."""

    module: weakref.ref[nn.Module]
    weight: torch.Tensor
    mean: torch.Tensor
    behind: bool
    """Something before it is trained."""


@dataclass
class _Woken:
    """A network in eval mode that a call of ``train()`` put back, of what holds it."""

    owner: weakref.ref[nn.Module]
    at: int
    weight: torch.Tensor

    def is_frozen(self, trained: set[int]) -> bool:
        """To this moment, and nothing follows another network by hand."""
        owner = self.owner()
        own = [] if owner is None else list(owner.parameters())
        frozen = not any(each.requires_grad or id(each) in trained for each in own)
        return bool(own) and frozen and torch.equal(self.weight, plain(own[0].detach()))


@dataclass
class _Average:
    """A batch norm that ran in eval mode and that nothing trains, and what it held before."""

    module: weakref.ref[Any]
    at: int
    step: int
    weight: torch.Tensor
    mean: torch.Tensor

    def follows_without_buffers(self, step: int) -> bool:
        """Its weights were written step after step since, and its statistics never."""
        module = self.module()
        weight = None if module is None else own_parameters(module).get("weight")
        if (
            module is None
            or weight is None
            or not torch.equal(self.mean, plain(module.running_mean))
        ):
            return False
        written = version_hint(module.running_mean)
        often = written <= COPIED and version_hint(weight) >= written + FOLLOWED
        moved = step - self.step >= STALE and not torch.equal(self.weight, plain(weight.detach()))
        return often or moved


class CensusProbe(OptimizerProbe):
    """Writes ``census``: optimizers and ties from the start on, batch norms when diagnosing. Where
    weights of one in eval mode follow others, the timing pass sees it run, too: an evaluation may
    come seldom.
    """

    name = "census"
    passes = frozenset({"quiet", "loud"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._lives: weakref.WeakKeyDictionary[Optimizer, _Life] = weakref.WeakKeyDictionary()
        self._lines: dict[int, _Life] = {}
        """The last optimizer that stepped of those that a line made."""
        self._stacks: dict[int, tuple[int, ...]] = {}
        """Of the first optimizer that a line made."""
        self._unread: list[_Life] = []
        self._owners: dict[int, Place] = {}
        self._ties: list[_Tie] = []
        self._passes: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """Of each loader how often it began."""
        self._loader: weakref.ref[Any] | None = None
        self._norms: dict[int, list[_Norm]] = {}
        self._training: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        """Batch norms that ran in train mode."""
        self._averages: dict[int, _Average] = {}
        self._begun: weakref.WeakKeyDictionary[Any, torch.Tensor] = weakref.WeakKeyDictionary()
        """Statistics of batch norms that may follow, as they were before any evaluation was seen."""
        self._put: weakref.WeakKeyDictionary[nn.Module, int | None] = weakref.WeakKeyDictionary()
        """Where a module was put into train mode last, with all below it."""
        self._rested: weakref.WeakSet[nn.Module] = weakref.WeakSet()
        """Modules that were put into eval mode themselves."""
        self._woken: weakref.WeakKeyDictionary[nn.Module, _Woken | None] = (
            weakref.WeakKeyDictionary()
        )
        """By a dropout of theirs that dropped."""
        self._written: set[tuple[str, int | None]] = set()
        self._schedules: weakref.WeakKeyDictionary[LRScheduler, tuple[int, int]] = (
            weakref.WeakKeyDictionary()
        )
        """Steps of a scheduler's optimizer when it stepped last, and how often that had not moved."""

    def install(self) -> None:
        """Notice what is made, loaded and tied, and steps."""
        super().install()
        self.context.writer.touch("census")
        self._always.around(Optimizer, "__init__", after=self._on_optimizer)
        self._always.around(Optimizer, "load_state_dict", after=self._loaded)
        self._always.around(nn.Module, "register_parameter", after=self._registered)
        handle = register_module_module_registration_hook(self.guarded(self._replaced))
        self._always.on_undo(handle.remove)
        self._always.around(DataLoader, "__iter__", before=self._epoch_begins)
        self._always.around(LRScheduler, "step", before=self._scheduled)
        self._always.after_outermost(nn.Module, "train", lambda *_, **__: True, self._put_into)

    def start(self) -> None:
        super().start()
        norms = [] if BatchNorm is None else live_instances(BatchNorm)
        for norm in (each for each in norms if _may_follow(each)):
            if norm not in self._begun and len(self._begun) < MOST:
                self._begun[norm] = _copy(norm.running_mean)
        if self.context.pass_name == "quiet":
            if self._begun:
                self._patches.around(BatchNorm, "forward", before=self._rests)
            return
        if BatchNorm is not None:
            self._patches.around(BatchNorm, "forward", before=self._norm_runs)
        for kind in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d):
            self._patches.around(kind, "forward", before=self._drops)

    def stop(self) -> None:
        super().stop()
        if self.context.pass_name == "quiet":
            return
        norms, self._norms = self._norms, {}
        trained = {id(each) for optimizer in [*self._lives] for each in tensors_of(optimizer)}
        for at, each in norms.items():
            moved = [norm for norm in each if _moved(norm, trained)]
            if moved:
                name = type(moved[0].module()).__name__
                meant = all(norm.behind for norm in moved)
                put = self._put_by(moved[0].module())[1]
                told, ran_at = (at, None) if put is None else (put, at)
                self._tell("norm", told, name, n=len(moved), meant=meant, other_at=ran_at)
        self._tell_averages(trained)
        self._averages.clear()
        self._tell_woken(trained)

    def uninstall(self) -> None:
        super().uninstall()
        self._lines.clear()
        self._owners.clear()
        self._ties.clear()
        self._begun.clear()

    def _tell(self, kind: str, at: int | None, name: str, **more: Any) -> None:
        if (kind, at) not in self._written:
            self._written.add((kind, at))
            self.context.add(CensusRow(kind=kind, at=at, name=name, **more))

    # -- optimizers --------------------------------------------------------------------------------

    def _epoch_begins(self, loader: Any) -> None:
        self._loader = weakref.ref(loader)
        self._passes[loader] = self._passes_of(self._loader) + 1

    def _passes_of(self, loader: weakref.ref[Any] | None) -> int:
        held = None if loader is None else loader()
        return 0 if held is None else self._passes.get(held, 0)

    def _on_optimizer(self, _: None, optimizer: Optimizer, *__: Any, **___: Any) -> None:
        groups = [  # another rate is no reason to lose the state
            {name: value for name, value in group.items() if name not in ("params", "lr")}
            | {"params": len(group["params"])}
            for group in groups_of(optimizer)
        ]
        frames = self.context.frames
        life = _Life(frames.here(), type(optimizer).__name__, repr(groups), rates=_rates(optimizer))
        life.stack = tuple(map(frames.number, frames.user_frames(sys._getframe(1), CALLERS)))
        self._lives[optimizer] = life
        if life.at is not None:
            self._stacks.setdefault(life.at, life.stack)

    def _loaded(self, _: None, optimizer: Optimizer, *__: Any, **___: Any) -> None:
        life = self._lives.get(optimizer)
        if life is not None and not life.steps and _moments(optimizer):
            life.take(optimizer)
            life.loaded_at = self.context.frames.here()
            self._unread = [*[each for each in self._unread if each is not life][-MOST:], life]

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """The first step says what was lost on the way here."""
        life = self._lives.get(optimizer)
        if life is None:
            return
        if not life.steps:
            self._owners.clear()
            life.take(optimizer)
            life.loader, life.passes = self._loader, self._passes_of(self._loader)
            self._unread = [each for each in self._unread if each is not life]
            if not _moments(optimizer):
                self._begins_anew(life)
        for tie in [*self._ties]:
            self._look_at(tie, life.ids)

    def _begins_anew(self, life: _Life) -> None:
        for each in self._unread:
            if each.ids == life.ids and each.name == life.name and each.tensors():
                self._unread.remove(each)
                self._tell("unread", life.at, life.name, other_at=each.loaded_at)
                return
        last = None if life.at is None else self._lines.get(life.at)
        if (
            last is not None
            and (last.ids, last.name, last.settings) == (life.ids, life.name, life.settings)
            and last.moments
            and last.untouched()
        ):
            life.again = last.again + 1
            if life.again > 1:
                meant = not life.follows(last)
                more = {"n": len(life.ids), "steps": last.steps, "meant": meant}
                # in a function that makes them: the call that the first one did not come from
                others = (at for at in life.stack if at not in self._stacks.get(life.at or 0, ()))
                self._tell("remade", next(others, life.at), life.name, **more)

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """How it leaves its parameters."""
        life = self._lives.get(optimizer)
        if life is None:
            return
        life.moments = life.moments or _moments(optimizer)
        if life.leveled == life.steps < LEVELED and len(life.rates) > 1:
            self._level(life, _rates(optimizer))
        life.leave(self._passes_of(life.loader))
        if life.at is not None:
            self._lines[life.at] = life

    def _level(self, life: _Life, rates: tuple[float, ...]) -> None:
        """Groups were made with different rates, and each step so far had one rate for all."""
        own = life.rates
        apart = len(own) == len(rates) and 0 < min(own) * APART <= max(own)
        if apart and len(set(rates)) == 1:
            life.leveled += 1
            if life.leveled == LEVELED:
                self._tell("rates", life.at, life.name, n=len(rates), steps=LEVELED)

    def _scheduled(self, scheduler: LRScheduler, *_: Any, **__: Any) -> None:
        """The optimizer whose rate it sets may no longer step: another one has its parameters."""
        life = self._lives.get(scheduler.optimizer)
        if life is None or not life.steps:
            return
        steps, still = self._schedules.get(scheduler, (-1, 0))
        still = still + 1 if steps == life.steps else 0
        self._schedules[scheduler] = life.steps, still
        others = (each for each in self._lives.values() if each is not life and each.ids & life.ids)
        now = next((each for each in others if each.steps >= STALE), None)
        if still >= STALE and now is not None:
            name = type(scheduler).__name__
            at = next((each for each in now.stack if each not in life.stack), now.at)
            self._tell("stale", at, name, other=now.name, other_at=self.context.frames.here())

    # -- ties --------------------------------------------------------------------------------------

    def _registered(self, _: None, module: nn.Module, name: str, param: Any = None) -> None:
        if param is None:
            return
        for tie in self._ties:
            if any(owner() is module and name == own for owner, own in (tie.one, tie.two)):
                tie.parted_at, tie.loaded = self.context.frames.here(), _loads()
        owner = self._owners.get(id(param))
        place = weakref.ref(module), name
        if owner is None or _held(owner) is not param:
            if len(self._owners) < OWNERS:
                self._owners[id(param)] = place
        elif (owner[0](), owner[1]) != (module, name) and len(self._ties) < MOST:
            self._ties.append(_Tie(owner, place, self.context.frames.here()))

    def _replaced(self, owner: nn.Module, name: str, made: Any) -> None:
        """An embedding takes the place of one that was tied: by name, it should be."""
        old = own_children(owner).get(name)
        if not isinstance(old, nn.Embedding) or not isinstance(made, nn.Embedding) or old is made:
            return
        for tie in self._ties:
            for side in ("one", "two"):
                module, held = getattr(tie, side)
                if module() is old and held in own_parameters(made):
                    setattr(tie, side, (weakref.ref(made), held))
                    tie.parted_at, tie.loaded = self.context.frames.here(), False

    def _look_at(self, tie: _Tie, stepped: frozenset[int]) -> None:
        """Whether an optimizer steps as two what was one weight."""
        one, two = _held(tie.one), _held(tie.two)
        if one is None or two is None or one is two:
            return
        copied = tie.parted_at is not None and not tie.loaded and torch.equal(one, two)
        if one.shape != two.shape or copied:  # another layer, or a copy to be trained by itself
            self._ties.remove(tie)
        elif not (one.grad is None or two.grad is None) and stepped & {id(one), id(two)}:
            self._ties.remove(tie)
            names = [f"{type(owner()).__name__}.{name}" for owner, name in (tie.one, tie.two)]
            at = tie.at if tie.parted_at is None else tie.parted_at
            self._tell("untied", at, names[0], other=names[1], other_at=tie.at)

    # -- batch norms -------------------------------------------------------------------------------

    def _put_into(self, module: nn.Module, mode: bool = True) -> None:
        if not mode:
            self._rested.add(module)
            return
        self._put.pop(module, None)  # the last one comes last
        self._put[module] = self.context.frames.here()

    def _put_by(self, part: Any) -> tuple[nn.Module | None, int | None]:
        for module, at in reversed([*self._put.items()]):
            if any(each is part for each in nn.Module.modules(module)):
                return module, at
        return None, None

    def _drops(self, module: Any, *_: Any, **__: Any) -> None:
        """Dropout in train mode, without gradients: in a frozen network that was in eval mode?"""
        if torch.is_grad_enabled() or not (self.in_step and module.training and module.p):
            return
        if not self._rested or module in self._woken:
            return
        holder, at = self._put_by(module)
        parts = [] if holder is None else [*nn.Module.modules(holder)][1:]
        for owner in (each for each in parts if each in self._rested):
            own = [*owner.parameters()]
            inside = any(each is module for each in nn.Module.modules(owner))
            if at is not None and inside and own and not any(each.requires_grad for each in own):
                self._woken[module] = _Woken(weakref.ref(owner), at, _copy(own[0]))
                return
        self._woken[module] = None

    def _tell_woken(self, trained: set[int]) -> None:
        found = [each for each in self._woken.values() if each is not None]
        self._woken.clear()
        for at in {each.at for each in found}:
            here = [each for each in found if each.at == at and each.is_frozen(trained)]
            if here:
                self._tell("woken", at, type(here[0].owner()).__name__, n=len(here))

    def _tell_averages(self, trained: set[int]) -> None:
        """Batch norms whose weights follow a trained one's, but not its moving statistics."""
        twins = [each for each in self._training if id(each.weight) in trained]
        found = [
            each
            for each in self._averages.values()
            if each.follows_without_buffers(self.context.global_step)
            and any(
                type(twin) is type(each.module())
                and twin.running_mean.shape == each.mean.shape
                and not torch.equal(plain(twin.running_mean), each.mean)
                for twin in twins
            )
            and id(getattr(each.module(), "weight", None)) not in trained
        ]
        if found:
            name = type(found[0].module()).__name__
            self._tell("average", found[0].at, name, n=len(found))

    def _ran(self, module: Any) -> None:
        weight, mean = own_parameters(module).get("weight"), getattr(module, "running_mean", None)
        if not self.in_step or weight is None or mean is None:
            return
        if module.training:
            self._training.add(module)
        elif id(module) not in self._averages and len(self._averages) < MOST:
            at = self.context.frames.here()
            if at is not None:
                begun = self._begun.get(module)
                copies = _copy(weight), _copy(mean) if begun is None else begun
                self._averages[id(module)] = _Average(
                    weakref.ref(module), at, self.context.global_step, *copies
                )

    def _rests(self, module: Any, *_: Any, **__: Any) -> None:
        if not module.training:
            self._ran(module)

    def _norm_runs(self, module: Any, *given: Any, **named: Any) -> None:
        self._ran(module)
        own = [each for each in own_parameters(module).values() if each is not None]
        frozen = own and not any(each.requires_grad for each in own)
        if not (frozen and self.in_step and module.training):
            return
        mean, at = getattr(module, "running_mean", None), self.context.frames.here()
        if mean is None or at is None:
            return
        known = self._norms.setdefault(at, [])
        if len(known) < MOST and not any(each.module() is module for each in known):
            copies = _copy(own[0]), _copy(mean)
            behind = any(each.requires_grad for each in (*given, *named.values()))
            known.append(_Norm(weakref.ref(module), *copies, behind))


def _may_follow(module: Any) -> bool:
    """A batch norm in eval mode, whose weight was written more often than its statistics."""
    weight, mean = own_parameters(module).get("weight"), getattr(module, "running_mean", None)
    if module.training or weight is None or mean is None:
        return False
    return version_hint(weight) > version_hint(mean)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return plain(tensor.detach()).clone()


def _first(tensor: torch.Tensor) -> torch.Tensor:
    return plain(tensor.detach()).reshape(-1)[:8]


def _moments(optimizer: Optimizer) -> bool:
    """It keeps something of a parameter's shape of the first parameter that it has stepped."""
    state: dict[str, Any] = next(
        (own for each in tensors_of(optimizer) if (own := optimizer.state.get(each))), {}
    )
    return any(isinstance(each, torch.Tensor) and each.dim() > 0 for each in state.values())


def _rates(optimizer: Optimizer) -> tuple[float, ...]:
    """Of its groups; none if one is a tensor."""
    rates = [group.get("lr") for group in groups_of(optimizer)]
    floats = tuple(each for each in rates if isinstance(each, float))
    return floats if len(floats) == len(rates) else ()


def _held(place: Place) -> Any:
    module = place[0]()
    return None if module is None else own_parameters(module).get(place[1])


def _loads() -> bool:
    """Whether ``load_state_dict`` of a module runs."""
    return any(each.f_code.co_name == "load_state_dict" for each in outwards(sys._getframe(1)))


def _moved(norm: _Norm, trained: set[int]) -> bool:
    """It is frozen to this moment, nothing trains it, and its mean is another."""
    module = norm.module()
    own = [each for each in own_parameters(module).values() if each is not None] if module else []
    if not own or any(each.requires_grad or id(each) in trained for each in own):
        return False
    mean = getattr(module, "running_mean", None)
    kept = torch.equal(norm.weight, plain(own[0].detach()))
    return kept and mean is not None and not torch.equal(norm.mean, plain(mean))
