"""Checkpoints of which the optimizer's state was loaded and its scheduler's was not, or the other way
round.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any, Literal, cast

import torch
from torch.optim import lr_scheduler
from torch.optim.optimizer import Optimizer

from auditor.capture.instruments.live_objects import live_instances
from auditor.capture.probes.base import Context
from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe, groups_of

from ..rows import PartialResumeRow

What = Literal["optimizer", "scheduler"]

MOST_FILES = 16
"""Files that are followed at a time: the newest."""

DEPTH = 2
"""Dictionaries inside dictionaries in which states are looked for."""

PROGRESS = frozenset(
    "last_epoch best num_bad_epochs cooldown_counter T_cur T_i total_steps verbose".split()
)
"""What changes while a scheduler runs, beside names that begin with an underscore; or what torch no
longer keeps. The rest is how it was made.
"""


@dataclass
class _State:
    """A state in a file, known by the dictionary that it is: the program may let that go."""

    what: What
    key: str
    number: int
    epoch: int = 0
    made: dict[str, Any] = field(default_factory=dict)
    """Of a scheduler: how it was made."""
    parameters: tuple[int, ...] = ()
    """Of an optimizer: how many parameters each group has."""
    loaded: bool = False


@dataclass
class _File:
    """One result of ``torch.load``."""

    at: int
    states: list[_State]
    loads: list[tuple[int, Any]] = field(default_factory=list)
    """Line of each load of a state in it, with the ``id`` of its owner's optimizer."""


class PartialResumesProbe(OptimizerProbe):
    """Writes ``resumes``, when an optimizer steps for the first time since its state, or that of its
    scheduler, was loaded.

    Of a file only facts are remembered, so that nothing in it is kept alive.
    """

    name = "resumes"
    parts = ("resumes",)
    passes = frozenset()

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._files: list[_File] = []

    def install(self) -> None:
        """Watch ``torch.load``, and ``load_state_dict`` of optimizers and schedulers."""
        super().install()
        self.context.writer.touch("resumes")
        self._always.code(cast("FunctionType", torch.load), self._load)
        kinds = {each for each in vars(lr_scheduler).values() if isinstance(each, type)}
        for owner in (Optimizer, *kinds):
            if "load_state_dict" in vars(owner):
                loaded = self._around(vars(owner)["load_state_dict"])
                self._always.attribute(owner, "load_state_dict", loaded)

    def uninstall(self) -> None:
        super().uninstall()
        self._files.clear()

    def _load(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        self.guarded(self._file_loaded)(result)
        return result

    def _file_loaded(self, result: Any) -> None:
        at = self.context.frames.here()
        states = list(_states(result))
        if at is not None and {state.what for state in states} == {"optimizer", "scheduler"}:
            self._files = [*self._files[1 - MOST_FILES :], _File(at, states)]

    def _around(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def load_state_dict(owner: Any, state_dict: Any, *args: Any, **kwargs: Any) -> Any:
            number = id(state_dict)
            result = original(owner, state_dict, *args, **kwargs)
            if self._files:
                self.guarded(self._loaded)(owner, number)
            return result

        return load_state_dict

    def _loaded(self, owner: Any, number: int) -> None:
        of = owner if isinstance(owner, Optimizer) else getattr(owner, "optimizer", None)
        at = self.context.frames.here()
        for file in self._files:
            for state in file.states:
                if state.number == number:
                    state.loaded = True
                    if at is not None:
                        file.loads.append((at, id(of)))

    def before_optimizer(self, optimizer: Optimizer) -> None:
        """The first step since: what will be loaded has been."""
        if not self._files:
            return
        own = [file for file in self._files if any(id(optimizer) == of for _, of in file.loads)]
        for file in own:
            self._files.remove(file)
            at = next(at for at, of in reversed(file.loads) if of == id(optimizer))
            for row in self._left_out(file, optimizer, at):
                self.context.add(row)

    def _left_out(self, file: _File, optimizer: Optimizer, at: int) -> Iterator[PartialResumeRow]:
        by_kind = {
            what: [state for state in file.states if state.what == what]
            for what in ("optimizer", "scheduler")
        }
        if any(len(states) != 1 for states in by_kind.values()):
            return  # whose is which cannot be told
        ((own,), (schedule,)) = by_kind["optimizer"], by_kind["scheduler"]
        if own.loaded and not schedule.loaded:
            begins = _begins(schedule, optimizer)
            if begins is not None:
                yield PartialResumeRow(
                    at=at,
                    file_at=file.at,
                    left_out="scheduler",
                    key=schedule.key,
                    owner=type(begins).__name__,
                    saved=schedule.epoch,
                    now=int(begins.last_epoch),
                )
        sizes = tuple(len(group["params"]) for group in groups_of(optimizer))
        if schedule.loaded and not own.loaded and sizes == own.parameters and not optimizer.state:
            owner = type(optimizer).__name__
            yield PartialResumeRow(
                at=at, file_at=file.at, left_out="optimizer", key=own.key, owner=owner
            )


def _states(value: Any, key: str = "", depth: int = 0) -> Iterator[_State]:
    """Those in what was loaded, each with where it lies (``train.scheduler``)."""
    for name, each in list(value.items()) if isinstance(value, Mapping) else ():
        if not isinstance(each, Mapping) or not isinstance(name, str):
            continue
        path = f"{key}.{name}" if key else name
        groups = each.get("param_groups")
        epoch = each.get("last_epoch")
        if isinstance(groups, list) and each.get("state"):
            sizes = tuple(len(group.get("params", ())) for group in groups)
            yield _State("optimizer", path, id(each), parameters=sizes)
        elif isinstance(epoch, int) and "_last_lr" in each:
            if epoch > 0:
                yield _State("scheduler", path, id(each), epoch, _made(each))
        elif depth + 1 < DEPTH:
            yield from _states(each, path, depth + 1)


def _made(state: Mapping[str, Any]) -> dict[str, Any]:
    """How a scheduler was made: its names, and those of its values that are a number or a text."""
    kept = {
        name: value
        for name, value in state.items()
        if isinstance(value, (int, float, str))
        and not name.startswith("_")
        and name not in PROGRESS
    }
    return {**kept, "": sorted(map(str, state))}


def _begins(state: _State, optimizer: Optimizer) -> Any | None:
    """The optimizer's scheduler that was made as that of the file was, and is at its beginning."""
    own = [
        each
        for each in live_instances(lr_scheduler.LRScheduler)
        if getattr(each, "optimizer", None) is optimizer
    ]
    if any(getattr(each, "last_epoch", None) == state.epoch for each in own):
        return None  # it was put there in another way
    same = [each for each in own if _made(each.state_dict()) == state.made]
    return next((each for each in same if 0 <= each.last_epoch < min(state.epoch, 2)), None)
