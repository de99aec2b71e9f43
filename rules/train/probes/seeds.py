"""Whether steps, or epochs of a loader, draw the random numbers of earlier ones, because a generator
was seeded again.
"""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader, RandomSampler

from auditor.capture.instruments.environment import random_states
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.data.dataloader_facts import LoaderOrigins

from ..rows import SeedRow

SHOWN = 40
"""Characters of a seed that are kept."""


@dataclass
class _Seed:
    """The last one that a generator was given."""

    call: int
    at: int
    value: str


@dataclass
class _Again:
    """What one seed was seen to repeat."""

    calls: set[int] = field(default_factory=set)
    times: int = 0
    first: int = 0
    number: int = 0


@dataclass
class _Draws:
    """``seen``: the step in which a state was met first, by what then began in it. ``drew`` of
    ``steps`` drew from the generator, of those in which it was not seeded and no loader began.
    """

    seen: dict[tuple[int | None, int], int] = field(default_factory=dict)
    seed: _Seed | None = None
    calls: int = 0
    steps: int = 0
    drew: int = 0
    again: dict[tuple[int | None, int, str], _Again] = field(default_factory=dict)

    def begins(self, loader: int | None, state: int, step: int) -> None:
        """A step, or an epoch of a loader that shuffles, began in this state and drew from it."""
        first = self.seen.setdefault((loader, state), step)
        if first == step or self.seed is None:
            return
        key = loader, self.seed.at, self.seed.value
        again = self.again.setdefault(key, _Again(first=first, number=step))
        again.calls.add(self.seed.call)
        again.times += 1


class SeedsProbe(Probe):
    """Writes ``seeds``: looks at the states of generators and at calls that seed them; draws
    nothing.

    Of a step in which a generator is seeded, or a loader begins, it is not known what drew. A new
    optimizer begins another training, which may have the seed of the first.
    """

    name = "seeds"
    parts = ("seeds",)
    passes = frozenset({"quiet", "loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._origins = LoaderOrigins(context.frames)
        self._draws: dict[str, _Draws] = {}
        self._began: dict[str, int] = {}

    def install(self) -> None:
        """Remember where each loader is made."""
        self._origins.install(self._always)

    def start(self) -> None:
        """Notice calls that seed, and loaders that begin."""
        super().start()
        self._patches.around(Optimizer, "__init__", before=self._restarts)
        self._patches.around(DataLoader, "__iter__", before=self._begins)
        for name, module, function in (
            ("torch", torch, "manual_seed"),
            ("torch", torch.random, "manual_seed"),
            ("random", random, "seed"),
            ("numpy", sys.modules.get("numpy.random"), "seed"),
        ):
            if module is not None:
                self._patches.around(module, function, before=partial(self._seeded, name))

    def stop(self) -> None:
        """Put the functions back, and write what was seen so far. May be called twice."""
        super().stop()
        for name, draws in self._draws.items():
            for (loader, at, value), again in draws.again.items():
                row = SeedRow(
                    at=at,
                    generator=name,
                    seed=value,
                    calls=len(again.calls),
                    times=again.times,
                    number=again.number,
                    first=again.first,
                    drew=draws.drew,
                    steps=draws.steps,
                    loader_at=loader,
                )
                self.context.add(row)

    def step_begin(self) -> None:
        """What the step will draw from."""
        super().step_begin()
        self._began = random_states()

    def step_end(self) -> None:
        now = random_states()
        for name, state in self._began.items():
            draws = self._of(name)
            draws.steps += 1
            if now.get(name) != state:
                draws.drew += 1
                draws.begins(None, state, self.context.global_step)

    def _of(self, name: str) -> _Draws:
        return self._draws.setdefault(name, _Draws())

    def _seeded(self, name: str, *args: Any, **kwargs: Any) -> None:
        self._began.pop(name, None)
        draws, at = self._of(name), self.context.frames.here()
        given = next(iter((*args, *kwargs.values())), None)
        value = str(given)[:SHOWN] if isinstance(given, (int, float, str)) else ""
        draws.calls += 1
        draws.seed = None if at is None else _Seed(draws.calls, at, value)

    def _begins(self, loader: Any) -> None:
        self._began.pop("torch", None)
        at = self._origins.of(loader)
        sampler = loader.sampler
        if at is not None and isinstance(sampler, RandomSampler) and sampler.generator is None:
            state = random_states()["torch"]
            self._of("torch").begins(at, state, self.context.global_step)

    def _restarts(self, *args: Any, **kwargs: Any) -> None:
        self._draws.clear()
        self._began.clear()
