"""Digests of what each operator gave, from torch's import on, to lay beside another run's."""

import math
import os
import threading
from collections.abc import Iterable
from typing import Any

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.instruments.compiled_code import COMPILED_CODE
from auditor.capture.instruments.dispatch_modes import run_compiled_code_eagerly
from auditor.capture.instruments.environment import random_states
from auditor.capture.instruments.plain_tensor import bytes_of, digest
from auditor.capture.instruments.storages import Storages, storage_bytes
from auditor.capture.instruments.torch_private.data import LoaderIterator
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.data.dataloader_facts import tensors_in
from auditor.capture.probes.operator_stream import Call, Operator, Subscriber, subscribe
from auditor.capture.probes.reproduce.sources import SOURCES
from auditor.capture.probes.waste.flow import OVERWRITING
from auditor.recordings.schema.other_runs import (
    ReproduceOperatorRow,
    ReproduceOutcomeRow,
    ReproduceRow,
    ReproduceSourceRow,
    ReproduceValuesRow,
)
from auditor.runs.repeat import VALUES, Repeat

MOST_BEFORE, MOST = 50_000, 200_000
"""Operators that are written down before the first recorded step, and in all."""

BATCH_TENSORS = 100
"""Tensors of a batch that its digest covers."""

TEXT = 160
"""Characters of an operator's arguments that are kept; the rest becomes a hash."""

PRUNE = 10_000
"""Operators after which what is known of tensors that are gone is forgotten."""

PARTIAL = ("index_", "masked_", "scatter", "put", "slice_scatter", "select_scatter")
"""How the names of operators begin that write into a part of what they are given."""


class ReproduceProbe(Probe):
    """Writes ``reproduce``. Slow on purpose: it reads every result; no times are taken."""

    name = "reproduce"
    passes = frozenset({"reproduce"})
    watches_operators = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.keep = (context.plan.purpose_as(Repeat) or Repeat()).keep
        self.made: Storages[int] = Storages()
        """Which operator wrote last into each storage."""
        self.raw: Storages[bool] = Storages()
        """Storages of memory that was taken as it was."""
        self.number = 0
        self._written = 0
        self._noted = 0
        self._drawn: dict[str, int] = {}
        self._begun = False
        self._process = os.getpid()

    # -- its life ----------------------------------------------------------------------------------

    def install(self) -> None:
        """Watch operators from now on: weights and data are made before the first step."""
        self.context.writer.touch("reproduce")
        self._drawn = random_states()
        self._always.on_undo(SOURCES.end)
        self._always.on_undo(subscribe(self.context, Watch(self)))
        self._always.on_undo(register_optimizer_step_post_hook(self._stepped).remove)
        if LoaderIterator is not None:
            self._always.around(LoaderIterator, "__next__", after=self._batch)
        self.watch_backward(self._always)

    def start(self) -> None:
        """Steps begin; compiled code runs eagerly, so that its operators are seen."""
        self._begun = True
        run_compiled_code_eagerly(self._patches)

    def stop(self) -> None:
        """Let it run compiled again, and say that it did not."""
        if COMPILED_CODE.calls or COMPILED_CODE.compiles:
            self.context.warn("code under torch.compile ran eagerly: its kernels were not compared")
        self._patches.undo()

    # -- rows --------------------------------------------------------------------------------------

    def add(self, row: ReproduceRow) -> None:
        """Write a row of this step; of operators and sources up to :data:`MOST`."""
        if not isinstance(row, ReproduceOutcomeRow):
            most = MOST if self._begun else MOST_BEFORE
            if self._written >= most:
                when = "" if self._begun else " before the first step"
                self.context.warn(f"operators after the first {most:,}{when} were not compared")
                return
            self._written += 1
        row.pass_name, row.step = self.context.pass_name, self.context.step
        self.context.writer.add(row)

    def here(self) -> int | None:
        """The user's line that runs now, in a step or before one."""
        return self.context.frames.here()

    @property
    def elsewhere(self) -> bool:
        """In a worker that was forked, or another thread."""
        return os.getpid() != self._process or threading.get_ident() != self._thread

    def inputs(self, tensors: Iterable[torch.Tensor]) -> list[int]:
        """The operators that made them."""
        found = (self.made.of(each) for each in tensors)
        return list(dict.fromkeys(number for number in found if number is not None))

    def note_sources(self) -> None:
        """Write what was drawn, set and read since the last look."""
        for note in SOURCES.notes[self._noted :]:
            at = self.context.frames.site(*note.place)
            row = ReproduceSourceRow(name=note.name, value=note.value, at=at, before=self.number)
            self.add(row)
        self._noted = len(SOURCES.notes)
        for name, state in random_states().items():
            if name == "torch":  # its operators say so
                continue
            place = SOURCES.drawn.get(name)
            # a module that is imported by now may have been drawn from already
            before = self._drawn.get(name, state if place is None else None)
            self._drawn[name] = state
            if state != before:
                value = f"{state if before is None else before:x}"
                row = ReproduceSourceRow(name=name, value=value, before=self.number)
                row.at = None if place is None else self.context.frames.site(*place)
                self.add(row)

    # -- outcomes ----------------------------------------------------------------------------------

    def _batch(self, batch: Any, iterator: Any) -> None:
        if self.elsewhere:
            return
        tensors = list(tensors_in(batch, BATCH_TENSORS))
        if tensors:
            self.note_sources()
            inputs = self.inputs(tensors)
            row = ReproduceOperatorRow(
                number=self.number,
                at=self.here(),
                name="DataLoader",
                digest=digest(tensors),
                inputs=inputs,
            )
            self.finish(row, tensors)

    def finish(self, row: ReproduceOperatorRow, tensors: Iterable[torch.Tensor]) -> None:
        """Write the row; these tensors are what it made."""
        for each in tensors:
            self.made.lay(each, self.number)
        self.number += 1
        if self.number % PRUNE == 0:
            self.made.prune()
            self.raw.prune()
        self.add(row)

    def backward_begins(self, call: Backward) -> None:
        if not (call.nested or self.elsewhere):
            self._outcome("loss", call.tensors)

    def _stepped(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        groups = optimizer.param_groups
        self._outcome("weights", [each for group in groups for each in group["params"]])

    def _outcome(self, name: str, tensors: Iterable[torch.Tensor]) -> None:
        tensors = list(tensors)
        row = ReproduceOutcomeRow(
            name=name, at=self.here(), digest=digest(tensors), inputs=self.inputs(tensors)
        )
        self.add(row)


class Watch(Subscriber):
    """Shows operators to the probe."""

    def __init__(self, probe: ReproduceProbe) -> None:
        super().__init__(probe.missed)
        self._probe = probe

    def wants(self, operator: Operator) -> bool:
        return not operator.view and operator.name not in ("set", "resize")

    def before(self, call: Call) -> Any:
        """What it is given, and the state that it will draw from."""
        probe = self._probe
        probe.note_sources()
        kind = state = ""
        if torch.Tag.nondeterministic_seeded in getattr(call.operator.func, "tags", ()):
            own = [
                each
                for each in (*call.args, *call.kwargs.values())
                if isinstance(each, torch.Generator)
            ]
            kind, state = "own" if own else "default", _state(call, own)
        whole = call.operator.name in OVERWRITING
        old = [  # all of its storage: nothing of it stays
            id(each) for each in call.written if whole and storage_bytes(each) == bytes_of(each)
        ]
        inputs = probe.inputs(each for each in call.given if id(each) not in old)
        given = digest(call.given) if probe.number == probe.keep else ""
        return inputs, kind, state, given

    def after(self, call: Call, noted: Any) -> None:
        probe, operator = self._probe, call.operator
        if operator.name.startswith(("empty", "new_empty")):
            for each in call.made:
                probe.raw.lay(each, True)
            return
        results = list({id(each): each for each in (*call.made, *call.written)}.values())
        if not results:
            return
        inputs, kind, state, given = noted
        partly = operator.writes and operator.name.startswith(PARTIAL)
        unwritten = partly and any(probe.raw.of(each) for each in call.written)
        rnn = "rnn" in operator.name  # its workspace for the backward is not all written
        told = [each for each in results if not (rnn and each.dtype is torch.uint8)]
        row = ReproduceOperatorRow(
            number=probe.number,
            at=_site(call),
            name=f"{operator.namespace}::{operator.own_name}",
            digest="" if unwritten else digest(told),
            inputs=inputs,
            numbers=_numbers((call.args, call.kwargs)),
            generator=kind,
            state=state,
        )
        if probe.number == probe.keep:
            probe.add(_values(results[0], given))
        probe.finish(row, results)


def _site(call: Call) -> int | None:
    if (known := call.site) is not None:
        return known
    frame, via = call.frames
    return None if frame is None else call._context.frames.number(frame, via)


def _state(call: Call, own: list[torch.Generator]) -> str:
    on_gpu = any(each.is_cuda for each in call.given) or "cuda" in str(call.kwargs.get("device"))
    if own:
        return digest([own[0].get_state()])
    return digest([torch.cuda.get_rng_state() if on_gpu else torch.get_rng_state()])


def _values(tensor: torch.Tensor, given: str) -> ReproduceValuesRow:
    floats = tensor.dtype.is_floating_point
    flat = tensor.detach().flatten()[:VALUES].double().tolist() if floats else []
    finite = [each if math.isfinite(each) else None for each in flat]
    dtype = str(tensor.dtype).removeprefix("torch.")
    return ReproduceValuesRow(given=given, dtype=dtype, values=finite)


def _numbers(value: Any) -> str:
    text = _spelled(value)
    if len(text) <= TEXT:
        return text
    whole = torch.frombuffer(bytearray(text.encode("utf-8", "replace")), dtype=torch.uint8)
    return f"{text[:TEXT]}... {digest([whole])}"


def _spelled(value: Any) -> str:
    """Numbers, names and lists of them; else the class, as a text may hold an address."""
    if isinstance(value, torch.Tensor):
        return "tensor"
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return repr(value)
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_spelled, value))})"
    if isinstance(value, dict):
        return ", ".join(f"{key}={_spelled(each)}" for key, each in value.items())
    if isinstance(value, (torch.dtype, torch.device, torch.layout)):
        return str(value)
    return type(value).__name__
