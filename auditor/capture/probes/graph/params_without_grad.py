"""Which parameters an optimizer steps without ever a gradient, or with a rate of zero."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch.nn.modules import module as module_hooks
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer
from torch.utils.checkpoint import CheckpointFunction

from auditor.capture.instruments.autograd_graph import node_of, walk
from auditor.capture.instruments.module_stack import keep_hooks, live_modules, qualified_names
from auditor.capture.instruments.replaced_modules import ReplacedModules
from auditor.capture.probes.base import Context
from auditor.capture.probes.numerics.nonfinite import names_of
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, PerOptimizer
from auditor.recordings.schema.graph import FedRow, Parameter, StillGroup

NAMED = 20
"""Parameters that a row names; the rest are counted."""

CUTTING = ("detach", "argmax", "multinomial")
"""Functions whose results have no gradient, though what they are given has one."""

OWNERS_AFTER = 3
"""Steps before the one search of all live objects for modules of what had no gradient."""

OPTIMIZERS = 64
"""Upper bound on watched optimizers: a program that creates one per step would fill memory."""


@dataclass
class _Watched:
    """One optimizer: what has no gradient yet, and each group's highest rate (None: a tensor)."""

    name: str
    at: int | None
    unfed: list[tuple[str, torch.Tensor]]
    rates: list[float | None]
    steps: int = 0
    groups: list[int] = field(default_factory=list)
    looked: bool = False
    """For the modules that own what is without a gradient."""


class ParamsWithoutGradProbe(OptimizerProbe):
    """Writes ``fed``, when the pass is over.

    Each step looks only at the parameters that have had no gradient so far: after the first step
    hardly any. Nothing of a tensor is read. Only those few are held until the end of the pass.
    """

    name = "fed"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._watched = PerOptimizer[_Watched](OPTIMIZERS)
        self._owners: WeakKeyDictionary[torch.nn.Module, int | None] = WeakKeyDictionary()
        """Modules of which no parameter has a gradient, each with the line that called it last."""
        self._unfed: set[int] = set()
        self._cuts: dict[int, tuple[str, int | None]] = {}
        """What cuts a parameter off, by its ``id``, and where."""
        self._detached: dict[int, tuple[bool, set[int | None]]] = {}
        """Whether such a cut takes nothing else off, and the lines of those that are like it."""
        self._without: int | None = None
        """The line that switched gradients off last."""
        self._replaced = ReplacedModules(context.frames)
        self._unrun: WeakSet[torch.nn.Module] = WeakSet()
        """Modules that came or went and have what has no gradient, and what they are in: those that
        did not run since.
        """

    def install(self) -> None:
        """Notice which modules take others' places."""
        super().install()
        self._always.on_undo(self._replaced.watch(self.guarded))

    def start(self) -> None:
        self._watched.clear()
        self.watching = True

    def stop(self) -> None:
        """Write one row for each optimizer; the part stays absent where none stepped."""
        super().stop()
        for watched in self._watched:
            self.context.add(self._row(watched))
        self._watched.clear()
        self._owners.clear()
        self._unfed.clear()
        self._cuts.clear()
        self._detached.clear()
        self._unrun.clear()

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Look before the step: some optimizers drop gradients in it."""
        if self.watching:
            self._look(optimizer)

    def _look(self, optimizer: Optimizer) -> None:
        watched = self._watched.of(
            optimizer, lambda: _first_seen(optimizer, self.context.frames.here())
        )
        if watched is None:
            return
        watched.steps += 1
        _drop_fed(watched)
        if watched.unfed and watched.steps >= OWNERS_AFTER and not watched.looked:
            watched.looked = True
            self._look_for_owners([each for _, each in watched.unfed])
        for number, group in enumerate(optimizer.param_groups[: len(watched.rates)]):
            watched.rates[number] = _higher(watched.rates[number], group.get("lr"))

    def _look_for_owners(self, unfed: list[torch.Tensor]) -> None:
        """From now on note which lines call the outermost modules that have none but these."""
        begins = not self._unfed
        numbers = {id(each) for each in unfed}
        self._unfed |= numbers
        self._owners.update(dict.fromkeys(_outermost(numbers)))
        for put in filter(None, map(self._replaced.of, unfed)):
            both = put.module(), put.holder()
            self._unrun.update(each for each in both if each is not None)
        if begins:
            ran = self.guarded(self._ran)
            keep_hooks(self._patches, module_hooks.register_module_forward_pre_hook(ran))
            for name in CUTTING:
                for owner in (torch.Tensor, torch):
                    self._patches.around(owner, name, before=partial(self._cut_off, name))
            for switch in (torch.no_grad, torch.inference_mode):
                self._patches.around(switch, "__enter__", before=self._switched_off)
                self._patches.around(switch, "__exit__", after=self._switched_on)

    def _ran(self, module: torch.nn.Module, *_: Any) -> None:
        if not self.context.in_step:
            return
        self._unrun.discard(module)
        if torch.is_grad_enabled():
            if module in self._owners:
                self._owners[module] = self.context.frames.here()
            return
        if self._without is None:
            self._checkpointed(module)
        elif module in self._owners:
            self._cut(module, ("no_grad", self._without))

    def _checkpointed(self, module: torch.nn.Module) -> None:
        """It, or a part of what ran with gradients, runs in a checkpoint that gives it none."""
        outside = _cut_by_checkpoint()
        if outside is not None:
            frame = next(iter(self.context.frames.user_frames(outside, 1)), None)
            if frame is not None:
                self._cut(module, ("checkpoint", self.context.frames.number(frame)))

    def _cut(self, module: torch.nn.Module, cut: tuple[str, int]) -> None:
        for each in module.parameters():
            self._cuts.setdefault(id(each), cut)

    def _switched_off(self, *_: Any) -> None:
        if torch.is_grad_enabled() and self.context.in_step:
            self._without = self.context.frames.here()

    def _switched_on(self, *_: Any) -> None:
        if torch.is_grad_enabled():  # what runs without gradients from here on is not its doing
            self._without = None

    def _cut_off(self, name: str, tensor: torch.Tensor, *_: Any, **__: Any) -> None:
        if not (tensor.requires_grad and torch.is_grad_enabled() and self.context.in_step):
            return
        leaves = {id(leaf.variable) for leaf in walk([node_of(tensor)]).leaves}
        alone = leaves <= self._unfed
        for number in leaves & self._unfed:
            at = self.context.frames.here()
            was_alone, lines = self._detached.get(number, (False, set()))
            if name != "detach":
                self._cuts.setdefault(number, (name, at))
            elif alone >= was_alone:  # one that cuts trained ones off as well is meant to
                self._cuts[number] = name, at
                self._detached[number] = alone, ({at, *lines} if alone == was_alone else {at})

    def _called(self, unfed: list[torch.Tensor]) -> tuple[int | None, str]:
        """Line and name of the owner that ran and has most of them."""
        wanted = {id(each) for each in unfed}
        ran = [
            (sum(id(each) in wanted for each in owner.parameters()), at, owner)
            for owner, at in self._owners.items()
            if at is not None
        ]
        most, at, owner = max(ran, key=lambda each: each[0], default=(0, None, None))
        return (at, qualified_names().get(id(owner), "")) if most else (None, "")

    def _put(self, unfed: list[torch.Tensor]) -> tuple[int | None, int | None]:
        """Where the modules of all of them came or went, if none of these ran but what they are in
        did, or they are gone.
        """
        found = [each for each in map(self._replaced.of, unfed) if each is not None]
        for each in found:
            module = each.module()
            if module is not None and (module not in self._unrun or each.holder() in self._unrun):
                return None, None
        whole = found and len(found) == len(unfed)
        return (found[0].at, found[0].outside) if whole else (None, None)

    def after_optimizer(self, optimizer: Optimizer) -> None:
        """Look after it as well: a closure makes gradients there."""
        watched = self._watched.get(optimizer)
        if watched is not None and watched.unfed:
            _drop_fed(watched)

    def _row(self, watched: _Watched) -> FedRow:
        unfed = [(place, each) for place, each in watched.unfed if each.requires_grad]
        names = names_of([each for _, each in unfed[:NAMED]]) if unfed else {}
        called_at, called = self._called([each for _, each in unfed]) if unfed else (None, "")
        cuts = [(*self._cuts.get(id(each), ("", None)), each) for _, each in unfed]
        wanted = (*CUTTING, "checkpoint", *(["no_grad"] if called_at is None else []))
        put_at, put_from = self._put([each for _, each in unfed])
        cut, cut_at, off = next((each for each in cuts if each[0] in wanted), ("", None, None))
        _, lines = self._detached.get(id(off), (False, set()))
        return FedRow(
            at=watched.at,
            cut=cut,
            cut_at=cut_at,
            detached=[each for each in lines if each is not None],
            called_at=called_at,
            called=called,
            put_at=put_at,
            put_from=put_from,
            optimizer=watched.name,
            steps=watched.steps,
            parameters=sum(watched.groups),
            unfed=[
                Parameter(name=names.get(id(each), place), shape=list(each.shape))
                for place, each in unfed[:NAMED]
            ],
            n=len(unfed),
            still=[
                StillGroup(group=number, parameters=n)
                for number, (rate, n) in enumerate(zip(watched.rates, watched.groups, strict=True))
                if rate == 0.0 and n
            ],
        )


def _cut_by_checkpoint() -> FrameType | None:
    """The frame of the reentrant checkpoint() that runs, if no input requires a gradient."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code is not CheckpointFunction.forward.__code__:
        frame = frame.f_back
    given = () if frame is None else frame.f_locals.get("args", ())
    return None if any(getattr(each, "requires_grad", False) for each in given) else frame


def _outermost(unfed: set[int]) -> Iterator[torch.nn.Module]:
    """The outermost called modules all of whose trainable parameters are among these."""
    whole = []
    for module in live_modules():
        if isinstance(module, (torch.nn.ModuleList, torch.nn.ModuleDict)):
            continue
        own = [id(each) for each in module.parameters() if each.requires_grad]
        if own and unfed.issuperset(own):
            whole.append(module)
    inner = {id(part) for each in whole for part in each.modules() if part is not each}
    yield from (each for each in whole if id(each) not in inner)


def _first_seen(optimizer: Optimizer, at: int | None) -> _Watched:
    groups = [
        # programs keep an empty one to ask a module for its device
        [each for each in group["params"] if each.requires_grad and (is_lazy(each) or each.numel())]
        for group in optimizer.param_groups
    ]
    unfed = [
        (f"group {g}, parameter {p}", each)
        for g, group in enumerate(groups)
        for p, each in enumerate(group)
    ]
    rates: list[float | None] = [0.0] * len(groups)
    return _Watched(
        type(optimizer).__name__, at, unfed, rates, groups=[len(group) for group in groups]
    )


def _drop_fed(watched: _Watched) -> None:
    if watched.unfed:
        watched.unfed = [(place, each) for place, each in watched.unfed if each.grad is None]


def _higher(rate: float | None, now: Any) -> float | None:
    if rate is None or not isinstance(now, (int, float)):
        return None
    return max(rate, abs(float(now)))
