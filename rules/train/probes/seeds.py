"""Whether steps or epochs draw the random numbers of earlier ones, from generators seeded again."""

import random
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch.optim.optimizer import Optimizer
from torch.utils.data import DataLoader, RandomSampler

from auditor.capture.instruments.environment import random_states
from auditor.capture.instruments.storages import Storages
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.data.dataloader_facts import LoaderOrigins
from auditor.capture.probes.operator_stream import Call, OperatorProbe, Subscriber

from ..rows import GeneratorRow, SeedRow

SHOWN = 40
"""Characters of a seed that are kept."""

IN_STEP = "in step"
"""What begins where a step seeds a generator, and draws from it afterwards."""


@dataclass
class _Seed:
    """The last one that a generator was given."""

    call: int
    at: int
    value: str
    evaluates: bool
    """A step set it without gradients."""


@dataclass
class _Again:
    """What one seed was seen to repeat."""

    evaluates: bool = False
    """In a step that evaluates, and the first time as well."""
    calls: set[int] = field(default_factory=set)
    times: int = 0
    first: int = 0
    number: int = 0


@dataclass
class _Draws:
    """``seen``: the step in which a state was met first, by what then began in it, and the seed
    before it. ``drew`` of ``steps`` drew from the generator, of those of which that is known;
    ``after`` drew after a seed of their own.
    """

    seen: dict[tuple[int | str | None, int], tuple[int, _Seed | None]] = field(default_factory=dict)
    seed: _Seed | None = None
    calls: int = 0
    steps: int = 0
    drew: int = 0
    after: int = 0
    again: dict[tuple[int | str | None, int, str], _Again] = field(default_factory=dict)

    def begins(self, loader: int | str | None, state: int, step: int) -> None:
        """A step, or an epoch of a loader that shuffles, began in this state and drew from it."""
        first, seed = self.seen.setdefault((loader, state), (step, self.seed))
        if first == step or self.seed is None:
            return
        key = loader, self.seed.at, self.seed.value
        again = self.again.setdefault(key, _Again(first=first, number=step))
        before = seed is not None and seed.evaluates and (seed.at, seed.value) == key[1:]
        again.evaluates |= before and self.seed.evaluates
        again.calls.add(self.seed.call)
        again.times += 1


class SeedsProbe(Probe):
    """Writes ``seeds``: looks at the states of generators and at calls that seed them; draws
    nothing.

    Of a step in which a loader begins, it is not known what drew. A new optimizer begins another
    training, which may have the seed of the first.
    """

    name = "seeds"
    passes = frozenset({"quiet", "loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._origins = LoaderOrigins(context.frames)
        self._draws: dict[str, _Draws] = {}
        self._began: dict[str, int] = {}
        self._seeded_in_step: dict[str, int] = {}
        self._all_steps = 0

    def install(self) -> None:
        self._origins.install(self._always)

    def start(self) -> None:
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
                before, after = partial(self._seeded, name), partial(self._is_seeded, name)
                self._patches.around(module, function, before=before, after=after)

    def stop(self) -> None:
        super().stop()
        for name, draws in self._draws.items():
            for (loader, at, value), again in draws.again.items():
                within = loader == IN_STEP
                row = SeedRow(
                    at=at,
                    generator=name,
                    seed=value,
                    calls=len(again.calls),
                    times=again.times,
                    number=again.number,
                    first=again.first,
                    drew=draws.after if within else draws.drew,
                    steps=self._all_steps if within else draws.steps,
                    loader_at=loader if isinstance(loader, int) else None,
                    within=within,
                    evaluates=again.evaluates,
                )
                self.context.add(row)

    def step_begin(self) -> None:
        super().step_begin()
        self._began, self._all_steps = random_states(), self._all_steps + 1
        self._seeded_in_step.clear()

    def step_end(self) -> None:
        now = random_states()
        for name, state in self._began.items():
            self._of(name).steps += 1
            self._drew(name, state, now)
        for name, state in self._seeded_in_step.items():
            if now.get(name) != state:
                draws = self._of(name)
                draws.after += 1
                draws.begins(IN_STEP, state, self.context.global_step)

    def _drew(self, name: str, state: int, now: dict[str, int]) -> bool:
        """Note that the step drew from the generator, which began in that state, if it did."""
        if now.get(name) == state:
            return False
        draws = self._of(name)
        draws.drew += 1
        draws.begins(None, state, self.context.global_step)
        return True

    def _of(self, name: str) -> _Draws:
        return self._draws.setdefault(name, _Draws())

    def _seeded(self, name: str, *args: Any, **kwargs: Any) -> None:
        state = self._began.pop(name, None)
        draws, at = self._of(name), self.context.frames.here()
        if state is not None and self._drew(name, state, random_states()):
            draws.steps += 1
        given = next(iter((*args, *kwargs.values())), None)
        value = str(given)[:SHOWN] if isinstance(given, (int, float, str)) else ""
        draws.calls += 1
        evaluates = self.context.in_step and not torch.is_grad_enabled()
        draws.seed = None if at is None else _Seed(draws.calls, at, value, evaluates)

    def _is_seeded(self, name: str, *_: Any, **__: Any) -> None:
        if self.context.in_step and torch.is_grad_enabled():
            self._seeded_in_step[name] = random_states()[name]

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
        self._seeded_in_step.clear()
        self._all_steps = 0


class GeneratorsProbe(OperatorProbe):
    """Writes ``generators``: in which states the program's own generators are where a line first
    draws from one in a step. States are read on the host, and nothing is drawn.
    """

    name = "generators"
    passes = frozenset({"numbers"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._watching: _OwnDraws | None = None

    def watch(self) -> None:
        """Look at draws from generators that were handed over."""
        self._watching = _OwnDraws(self.context, self.missed)
        self.enter(self._watching)

    def step_end(self) -> None:
        if self._watching is not None:
            self._watching.trails.clear()

    def stop(self) -> None:
        super().stop()
        watching, self._watching = self._watching, None
        if watching is not None:
            self.context.writer.touch("generators")
        for (at, name), drawn in ({} if watching is None else watching.drawn).items():
            if drawn.trains:
                states = len(set(drawn.states.values()))
                row = GeneratorRow(at=at, name=name, steps=len(drawn.states), states=states)
                self.context.add(row)


@dataclass
class _Drawn:
    """``states``: at each step's first draw. ``trains``: a gradient was computed from a draw."""

    states: dict[int, int] = field(default_factory=dict)
    trains: bool = False


class _OwnDraws(Subscriber):
    """Draws of the forward from generators that the program made, and what is computed from them."""

    in_backward = False

    def __init__(self, context: Context, on_error: Callable[[Exception], None]) -> None:
        super().__init__(on_error)
        self._context = context
        self.drawn: dict[tuple[int, str], _Drawn] = {}
        self.trails: Storages[_Drawn] = Storages()

    def before(self, call: Call) -> _Drawn | None:
        generator, step = call.kwargs.get("generator"), self._context.step
        if generator is None or not torch.is_grad_enabled() or call.site is None:
            known = map(self.trails.of, call.given) if len(self.trails) else ()
            return next((each for each in known if each is not None), None)
        drawn = self.drawn.setdefault((call.site, call.operator.name), _Drawn())
        if step not in drawn.states:
            drawn.states[step] = hash(generator.get_state().numpy().tobytes())
        return drawn

    def after(self, call: Call, noted: _Drawn) -> None:
        noted.trains |= call.graph
        for each in (*call.made, *call.written):
            self.trails.lay(each, noted)
