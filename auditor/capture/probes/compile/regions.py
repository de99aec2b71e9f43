"""What the program gives to ``torch.compile``, and in how many steps that ran."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import torch

from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.instruments.torch_private.compiler import (
    CALL_OF_A_MODULE,
    callback_of,
    forced_to,
)
from auditor.capture.instruments.torch_private.tensors import version_hint
from auditor.capture.probes.base import Context, Probe
from auditor.recordings.schema.run import RegionRow, RegionRunRow

MOST = 1000
"""Regions that are watched: a program that calls ``torch.compile`` on each step makes more."""

OPTIONS = ("fullgraph", "dynamic", "backend", "mode", "options")
"""Keyword arguments of ``torch.compile`` that a row has."""

NOT_ASKED = {"fullgraph": False, "backend": "inductor"}
"""Values of them that are the default; of others it is None."""

OPTIONS_SHOWN = 200
"""Characters of them that are kept."""


@dataclass
class _Region:
    """One call of ``torch.compile``. ``callback`` is held so that its ``id`` stays its own."""

    number: int
    compiled: Callable[[], Any]
    module: Callable[[], Any]
    callback: Any
    written: int = 0
    """How often its parameters were written to when the pass began."""
    steps: int = 0
    called: bool = False


class RegionsProbe(Probe):
    """Writes ``regions`` and ``region_runs``.

    What runs in each step is asked of the compiler's own entry, which every compiled function calls
    (:attr:`CompiledCode.ran`): nothing of the user's is wrapped.
    """

    name = "regions"
    parts = ("regions", "region_runs")
    passes = frozenset({"warmup", "quiet", "anomaly_off", "trace", "loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._regions: list[_Region] = []
        self._number = 0
        self._began = 0
        self._unsure = False
        self._running = False

    def install(self) -> None:
        self._always.around(torch, "compile", before=self._begins, after=self._made)

    def uninstall(self) -> None:
        super().uninstall()
        self._regions.clear()

    def start(self) -> None:
        super().start()
        self._unsure, self._running = False, True
        for region in self._regions:
            region.steps, region.written = 0, _written(region.module())

    def step_begin(self) -> None:
        self._look()
        COMPILED_CODE.ran.clear()

    def step_end(self) -> None:
        self._unsure |= bool(self._regions) and forced_to() != "default"
        for region in self._regions:
            region.steps += self._ran(region)
        self._look()

    def stop(self) -> None:
        """Write what became of them in the pass; of those let go, the last time."""
        running, self._running = self._running, False
        if not running or self._unsure or not COMPILED_CODE.tells_of_calls:
            return
        self._look()
        regions, self._regions = self._regions, []
        for region in regions:
            dropped = region.compiled() is None
            self.context.add(
                RegionRunRow(
                    number=region.number,
                    steps=region.steps,
                    trained=_written(region.module()) > region.written,
                    called=region.called,
                    dropped=dropped,
                )
            )
            if not dropped:
                region.steps = 0
                self._regions.append(region)

    def _ran(self, region: _Region) -> bool:
        return id(region.callback) in COMPILED_CODE.ran

    def _look(self) -> None:
        for region in self._regions:
            region.called |= self._ran(region)

    # -- what is given to the compiler -------------------------------------------------------------

    def _begins(self, *_: Any, **__: Any) -> None:
        self._began = perf_counter_ns()

    def _made(self, compiled: Any, model: Any = None, **options: Any) -> None:
        us = (perf_counter_ns() - self._began) / 1e3
        if model is None or options.get("disable") or compiled is model:
            return  # a decorator with arguments calls again, with what it decorates
        at = self.context.frames.here()
        if at is None:
            return
        number, self._number = self._number, self._number + 1
        module = _module_of(model)
        row = RegionRow(
            number=number,
            at=at,
            what=str(getattr(model, "__name__", "")) if module is None else type(module).__name__,
            in_step=self.context.in_step,
            options=_said(options),
            method=getattr(model, "__name__", "") == CALL_OF_A_MODULE,
            torchs=module is not None and type(module).forward.__module__.startswith("torch."),
            us=us,
        )
        self.context.add(row)
        callback = callback_of(compiled)
        if callback is not None and len(self._regions) < MOST:
            held, owner = _reference(compiled), _reference(module)
            self._regions.append(_Region(number, held, owner, callback, _written(module)))


def _module_of(model: Any) -> torch.nn.Module | None:
    """The module; that of ``Module.compile()``, which hands in the module's own call."""
    if isinstance(model, torch.nn.Module):
        return model
    owner = getattr(model, "__self__", None)
    whole = getattr(model, "__name__", "") in (CALL_OF_A_MODULE, "forward", "__call__")
    return owner if whole and isinstance(owner, torch.nn.Module) else None


def _reference(value: Any) -> Callable[[], Any]:
    """Gives the value while it lives; for ever where it cannot be referred to weakly."""
    if value is None:
        return lambda: None
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: value


def _written(module: torch.nn.Module | None) -> int:
    if module is None:
        return 0
    return sum(version_hint(each) for each in module.parameters() if not each.is_inference())


def _said(options: dict[str, Any]) -> str:
    told = (
        f"{name}={getattr(options[name], '__name__', None) or repr(options[name])}"
        for name in OPTIONS
        if options.get(name) is not None and options[name] != NOT_ASKED.get(name)
    )
    return ", ".join(told)[:OPTIONS_SHOWN]
