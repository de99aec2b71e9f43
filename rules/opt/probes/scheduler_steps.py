"""How often schedulers of learning rates are stepped, against how many steps they were made for;
and in a rehearsal the operators of optimizers that are set to step parameter by parameter.
"""

from __future__ import annotations

import functools
import inspect
import math
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.optim import lr_scheduler
from torch.optim.optimizer import Optimizer

from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, PerOptimizer, groups_of

from ..rows import SchedulerRow, SingleTensorStepRow


class SingleTensorStepsProbe(OptimizerProbe):
    """Adds rows to ``optimizer``, for torch's own optimizers whose groups all say that there is to
    be no list of tensors.

    What is left open is not looked at: torch then decides by the types of the parameters, and those
    of the shadow are its own.
    """

    name = "stepping"
    parts = ("optimizer",)
    in_runs = False
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._made_at: weakref.WeakKeyDictionary[Optimizer, int | None] = (
            weakref.WeakKeyDictionary()
        )
        self._stepped: dict[int, tuple[Optimizer, SingleTensorStepRow]] = {}
        self._before = 0

    def install(self) -> None:
        super().install()
        self._always.around(Optimizer, "__init__", before=self._on_scheduler)

    def _on_scheduler(self, optimizer: Any, *_: Any, **__: Any) -> None:
        self._made_at[optimizer] = self.context.frames.here()

    def start(self) -> None:
        super().start()
        self._stepped.clear()

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """Operators from here on are its own."""
        if self.context.shadow is not None:
            self._before = self.context.shadow.operators

    def after_optimizer(self, optimizer: Optimizer) -> None:
        shadow = self.context.shadow
        if shadow is None or self.context.pass_name != "loud" or not _one_by_one(optimizer):
            return
        at, made_at = self.context.frames.here(), self._made_at.get(optimizer)
        name = type(optimizer).__name__
        row = SingleTensorStepRow(at=at, made_at=made_at, name=name, n=0, operators=0)
        row = self._stepped.setdefault(id(optimizer), (optimizer, row))[1]
        row.n += 1
        row.operators += shadow.operators - self._before

    def step_end(self) -> None:
        for _, row in self._stepped.values():
            self.context.add(row)
        self._stepped.clear()


def _one_by_one(optimizer: Optimizer) -> bool:
    groups = groups_of(optimizer)
    return (
        type(optimizer).__module__.startswith("torch.optim.")
        and bool(groups)
        and all(map(_is_alone, groups))
    )


def _is_alone(group: dict[str, Any]) -> bool:
    """``foreach=False``, or only ``fused=False``, which does not choose the lists either."""
    foreach, fused = group.get("foreach", True), group.get("fused")
    return not fused and (foreach is False or (foreach is None and fused is False))


SOON = 8
"""Calls to the end of a swing for which the pass goes on."""

MOST = 64
"""Schedulers that are followed, and optimizers."""

GONE = 1e-3
"""Share of its first value at which a rate counts as gone."""


@dataclass
class _StepCounts:
    """Of an optimizer: how often it stepped, and how often before the loud pass."""

    n: int = 0
    before: int = 0


@dataclass
class _Followed:
    """A scheduler since it was first stepped in a step of ours."""

    scheduler: weakref.ref[Any]
    at: int
    calls: int = 0
    first: int = 0
    last: int = 0
    apart: int | None = None

    def stepped(self, steps: int) -> None:
        """It steps after ``steps`` steps of its optimizer."""
        if self.calls:
            between = steps - self.last
            self.apart = between if self.apart is None else min(self.apart, between)
        else:
            self.first = steps
        self.last = steps
        self.calls += 1


@dataclass
class _Plateau:
    """A ``ReduceLROnPlateau``: how often it was stepped, and with the number of the call before."""

    at: int
    patience: int
    calls: int = 0
    repeated: int = 0
    last: float | None = None


class SchedulerStepsProbe(OptimizerProbe):
    """Writes ``schedulers``, at the end of the loud pass: of all steps so far.

    Only the classes of ``torch.optim.lr_scheduler`` that count whole steps are followed, also inside
    a ``SequentialLR`` or ``ChainedScheduler``.
    """

    name = "schedulers"
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._stepped = PerOptimizer[_StepCounts](MOST)
        self._followed: dict[int, _Followed] = {}
        self._plateaus: weakref.WeakKeyDictionary[Any, _Plateau] = weakref.WeakKeyDictionary()
        self._epochs: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """Steps of an epoch that a ``OneCycleLR`` was made for, where that was said."""

    def install(self) -> None:
        super().install()
        owners = {owner for kind in MADE_FOR for owner in kind.__mro__ if "step" in vars(owner)}
        for owner in owners:
            self._always.attribute(owner, "step", self._around(vars(owner)["step"]))
        self._always.around(lr_scheduler.OneCycleLR, "__init__", after=self._one_cycle_made)
        self._always.around(lr_scheduler.ReduceLROnPlateau, "step", before=self._plateau_steps)

    def uninstall(self) -> None:
        super().uninstall()
        self._followed.clear()
        self._stepped.clear()
        self._epochs.clear()

    def start(self) -> None:
        """The part is there also where nothing is in it."""
        super().start()
        for each in self._stepped:
            each.before = each.n

    def wants_more(self) -> bool:
        """A rate comes to the end of a swing soon."""
        alive = (each.scheduler() for each in self._followed.values())
        swings = [(each, MADE_FOR[type(each)](each)[0]) for each in alive if each is not None]
        return any(period and 0 < period - each.last_epoch <= SOON for each, period in swings)

    def stop(self) -> None:
        for each in self._followed.values():
            scheduler = each.scheduler()
            steps = scheduler and self._stepped.get(scheduler.optimizer)
            if steps and each.calls > 1:
                self.context.add(self._row(each, scheduler, steps.n - steps.before))
        self._followed.clear()
        for plateau in self._plateaus.values():
            if plateau.repeated > plateau.patience:
                row = SchedulerRow(
                    at=plateau.at,
                    name="ReduceLROnPlateau",
                    calls=plateau.calls,
                    repeated=plateau.repeated,
                    steps=0,
                    in_pass=0,
                    apart=0,
                    epoch=0,
                )
                self.context.add(row)

    def after_optimizer(self, optimizer: Optimizer) -> None:
        steps = self._stepped.of(optimizer, _StepCounts)
        if steps is not None:
            steps.n += 1

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        seen = self.guarded(self._scheduler_steps)

        @functools.wraps(original)
        def step(scheduler: Any, *args: Any, **kwargs: Any) -> Any:
            if type(scheduler) in MADE_FOR:
                seen(scheduler)
            return original(scheduler, *args, **kwargs)

        return step

    def _scheduler_steps(self, scheduler: Any) -> None:
        optimizer = getattr(scheduler, "optimizer", None)
        steps = self._stepped.get(optimizer) if isinstance(optimizer, Optimizer) else None
        if steps is None:
            return  # before the first step of its optimizer: it is being made
        each = self._followed.get(id(scheduler))
        if each is None or each.scheduler() is not scheduler:
            at = self.context.frames.here() if len(self._followed) < MOST else None
            if at is None:
                return
            each = self._followed[id(scheduler)] = _Followed(weakref.ref(scheduler), at)
        each.stepped(steps.n)

    def _plateau_steps(self, scheduler: Any, metrics: Any = None, *_: Any, **__: Any) -> None:
        each, at = self._plateaus.get(scheduler), self.context.frames.here()
        if each is None and at is not None and len(self._plateaus) < MOST:
            each = self._plateaus[scheduler] = _Plateau(at, int(scheduler.patience))
        if each is not None:
            number = metrics if isinstance(metrics, float) else None  # a tensor may be a GPU's
            each.calls += 1
            each.repeated += number is not None and number == each.last
            each.last = number

    def _one_cycle_made(self, _: None, scheduler: Any, *args: Any, **kwargs: Any) -> None:
        given = _ONE_CYCLE_TAKES.bind(scheduler, *args, **kwargs).arguments
        if isinstance(given.get("steps_per_epoch"), int) and given.get("total_steps") is None:
            self._epochs[scheduler] = given["steps_per_epoch"]

    def _row(self, each: _Followed, scheduler: Any, in_pass: int) -> SchedulerRow:
        period, gone = MADE_FOR[type(scheduler)](scheduler)
        return SchedulerRow(
            at=each.at,
            name=type(scheduler).__name__,
            calls=each.calls,
            steps=each.last - each.first,
            in_pass=in_pass,
            apart=each.apart or 0,
            epoch=int(scheduler.last_epoch),
            epoch_of=self._epochs.get(scheduler),
            period=period,
            gone=gone,
        )


Calls = tuple[int | None, int | None]
"""Calls of one swing of a scheduler's rate, and those after which its rate is gone."""

_ONE_CYCLE_TAKES = inspect.signature(lr_scheduler.OneCycleLR.__init__)


def _cosine(scheduler: Any) -> Calls:
    swings = scheduler.eta_min <= 0.5 * max(scheduler.base_lrs, default=0.0)
    return 2 * int(scheduler.T_max) if swings and scheduler.T_max > 0 else None, None


def _steps(scheduler: Any) -> Calls:
    decays = _decays(scheduler.gamma)
    return None, None if decays is None else decays * int(scheduler.step_size)


def _milestones(scheduler: Any) -> Calls:
    decays = _decays(scheduler.gamma)
    milestones = sorted(scheduler.milestones.elements())
    gone = milestones[decays - 1] if decays is not None and decays <= len(milestones) else None
    return None, gone


def _decays(gamma: float) -> int | None:
    if not 0 < gamma < 1:
        return None
    return math.ceil(math.log(GONE) / math.log(gamma) - 1e-9)


MADE_FOR: dict[type, Callable[[Any], Calls]] = {
    lr_scheduler.CosineAnnealingLR: _cosine,
    lr_scheduler.OneCycleLR: lambda _: (None, None),
    lr_scheduler.LambdaLR: lambda _: (None, None),
    lr_scheduler.LinearLR: lambda _: (None, None),
    lr_scheduler.PolynomialLR: lambda _: (None, None),
    lr_scheduler.ExponentialLR: lambda each: (None, _decays(each.gamma)),
    lr_scheduler.StepLR: _steps,
    lr_scheduler.MultiStepLR: _milestones,
}
