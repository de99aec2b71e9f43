"""What ``torch.compile`` does: compilations, broken graphs, guards that failed, and its limit."""

import re
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
    is_compilation,
)
from auditor.capture.instruments.torch_private.tensors import version_hint
from auditor.capture.probes.base import Context, Probe
from auditor.recordings.schema.run import CompileRow, RegionRow, RegionRunRow

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
        self._always.around(torch, "compile", before=self._begins, after=self._on_compile)

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

    def _on_compile(self, compiled: Any, model: Any = None, **options: Any) -> None:
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
            options=_describe_options(options),
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


def _describe_options(options: dict[str, Any]) -> str:
    told = (
        f"{name}={getattr(options[name], '__name__', None) or repr(options[name])}"
        for name in OPTIONS
        if options.get(name) is not None and options[name] != NOT_ASKED.get(name)
    )
    return ", ".join(told)[:OPTIONS_SHOWN]


_BREAK = re.compile(r"[Gg]raph break in user code at (?P<file>.+?):(?P<line>\d+)\n")
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<name>\S+)')
_CODE = re.compile(r"\bgb\d{4}\b", re.IGNORECASE)
_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<name>.+)_at_(?P<line>\d+)$")
OTHER_MODE = "GLOBAL_STATE changed: grad_mode"
_LIMIT = re.compile(r"recompile.?limit|cache.?size.?limit", re.IGNORECASE)
_LOST = "Failed to handle graph break gracefully. Skipping the function"
_ENCOUNTERED = "Graph break encountered:"
_ATTEMPTING = "Encountered graph break when attempting to trace"

TOLD = 300
"""Characters of a reason that are kept."""


class CompilesProbe(Probe):
    """Writes ``compiles``.

    The compiler tells of breaks and failed guards while it compiles a frame, and then of the frame:
    the rows wait for its number. Nothing is imported, and a program that does not compile costs
    nothing.
    """

    name = "compiles"
    passes = frozenset({"warmup", "quiet", "anomaly_off", "trace", "loud"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._waiting: list[CompileRow] = []
        self._stacks: list[tuple[CompileRow, list[dict[str, str]]]] = []

    def install(self) -> None:
        COMPILED_CODE.listeners.append(self._on_event)
        self._always.on_undo(lambda: COMPILED_CODE.listeners.remove(self._on_event))

    # -- what it says ------------------------------------------------------------------------------

    def _on_event(self, name: str, data: Callable[[], Any], text: Callable[[], Any] | None) -> None:
        try:
            self._take(name, data, text)
        except Exception as error:
            self.missed(error)

    def _take(self, name: str, data: Callable[[], Any], text: Callable[[], Any] | None) -> None:
        if name == "artifact" and text is not None:
            kind = data().get("name")
            if kind == "dynamo_graph_break_reason":
                self._broke(str(text()))
            elif kind == "recompile_reasons":
                self._recompiles(text())
        elif name.endswith("compilation_metrics"):
            self._compiled(name, data())

    def _broke(self, text: str) -> None:
        place = _BREAK.search(text)
        frames = [
            each.groupdict() for each in _FRAME.finditer(text.partition("Traceback (most")[0])
        ]
        if place is None:  # the whole frame is left to Python: said of frames that are no region
            return
        named = [each for each in frames if (each["file"], each["line"]) == place.group(1, 2)]
        function = named[-1]["name"] if named else ""
        code = _CODE.search(text)
        row = CompileRow(
            what="break",
            reason=_why(text),
            lost=_LOST in text,
            gb=code.group().lower() if code is not None else "",
        )
        self._stacks.append((row, frames))
        self._placed(row, place["file"], int(place["line"]), function)

    def _at(self, file: str, line: str, function: str) -> int | None:
        mine = self.context.frames.is_user(file)
        return self.context.frames.site(file, int(line), _resumed(function)) if mine else None

    def _recompiles(self, reasons: Any) -> None:
        each = [reasons] if isinstance(reasons, str) else list(reasons or ())
        if not each:
            return
        # the entry nearest to what was asked for: those of the other grad mode serve other calls
        newest = next((str(one) for one in each if OTHER_MODE not in str(one)), str(each[0]))
        guard = newest.partition("\n")[0].partition("  #")[0].strip()
        row = CompileRow(what="recompile", reason=re.sub(r"^\d+/\d+: ", "", guard)[:TOLD])
        frames = [found.groupdict() for found in _FRAME.finditer(newest)]
        if frames:
            self._placed(row, frames[-1]["file"], int(frames[-1]["line"]), frames[-1]["name"])
        else:
            self._placed(row, "", 0, "")

    def _placed(self, row: CompileRow, file: str, line: int, function: str) -> None:
        """Where the compiler says; the user's line that calls, where that is torch's own."""
        row.own = bool(file) and self.context.frames.is_user(file)
        row.at = (
            self.context.frames.site(file, line, _resumed(function))
            if row.own
            else self.context.frames.here()
        )
        row.pass_name, row.step = self.context.pass_name, self.context.step
        self._waiting.append(row)

    def _compiled(self, name: str, data: dict[str, Any]) -> None:
        frame, _, attempt = str(data.get("compile_id") or "").strip("[]").rpartition("/")
        backward = name.startswith("bwd")
        begin, end = data.get("start_time_us"), data.get("end_time_us")
        done = CompileRow(
            what="backward" if backward else "compile",
            us=float(data.get("duration_us") or (end - begin if begin and end else 0)),
        )
        if self.context.frames.is_user(str(data.get("co_filename") or "")):
            done.function = _resumed(str(data.get("co_name") or ""))
        after = _RESUMED.search(str(data.get("co_name") or ""))
        if after is not None and not backward:
            file = str(data.get("co_filename") or "")
            done.resumed = self._at(file, after["line"], after["name"])
        rows = [done] if is_compilation(name, data) else []
        limit = _LIMIT.search(str(data.get("fail_reason") or ""))
        if limit or not backward:  # torch 2.6 tells of the limit as of a backward
            waiting, self._waiting = self._waiting, []
            self._ends_at(data)
            rows = [*waiting, *rows]
            if limit:
                failed = [each for each in waiting if each.what == "recompile"]
                rows += [
                    CompileRow(what="limit", at=each.at, reason=each.reason, own=each.own)
                    for each in failed[-1:]
                ]
        for row in rows:
            row.frame, row.attempt = frame, int(attempt) if attempt.isdecimal() else 0
            row.function = row.function or done.function
            self.context.add(row)

    def _ends_at(self, data: dict[str, Any]) -> None:
        """At which line of the frame its graph broke: the compiler tells the whole stack."""
        name, file = _resumed(str(data.get("co_name") or "")), str(data.get("co_filename") or "")
        stacks, self._stacks = self._stacks, []
        for row, frames in stacks:
            mine = [
                each for each in frames if each["file"] == file and _resumed(each["name"]) == name
            ]
            if mine:
                row.resumed = self._at(file, mine[-1]["line"], name)


def _why(text: str) -> str:
    """``Unsupported Tensor.item() call .... Dynamo does not support ...``."""
    after = re.split(r"Reason: ", text, maxsplit=1)[-1]
    if after.startswith(_ATTEMPTING):
        after = after.partition("\n")[2]
    elif after.startswith(_LOST):
        after = after.partition(_ENCOUNTERED)[2]
    said = re.split(r"\n\s*(?:Hint:|Developer debug|User code)", after.strip())[0]
    title, _, more = said.partition("Explanation: ")
    return ". ".join(" ".join(part.split()) for part in (title, more) if part.strip())[:TOLD]


def _resumed(function: str) -> str:
    """A function that goes on after a break is that function."""
    while found := _RESUMED.search(function):
        function = found["name"]
    return function


# -- eager held ------------------------------------------------------------------------------------
# Holds ``torch.compile`` off for a pass, to find what it gains.


class EagerHeldProbe(Probe):
    """Writes nothing: compiled functions run eagerly in the pass ``eager_held``, as with
    ``torch.compiler.set_stance("force_eager")``. What was compiled stays in the compiler's cache.
    """

    name = "eager_held"
    parts = ("steps",)
    passes = frozenset({"eager_held"})
    always = True

    def start(self) -> None:
        held = torch.compiler.set_stance("force_eager")
        self._patches.on_undo(lambda: held.__exit__(None, None, None))
