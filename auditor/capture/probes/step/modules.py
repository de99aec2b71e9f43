"""The step by module: time, saved bytes and operations of each, forward and backward."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch.nn.modules import module as module_hooks
from torch.utils.flop_counter import flop_registry

from auditor.capture.instruments.autograd_graph import Backward, saved_by
from auditor.capture.instruments.module_stack import Modules, keep_hooks, names_from_roots
from auditor.capture.instruments.plain_tensor import tensors
from auditor.capture.instruments.torch_private.autograd import current_node
from auditor.capture.probes.base import Context
from auditor.capture.probes.operator_probe import OperatorProbe
from auditor.capture.probes.operator_stream import Call, Operator, Subscriber
from auditor.capture.probes.step.clock import RunQueue
from auditor.recordings.schema.run import ModuleRow

FOLLOWED = 6
"""Diagnostic steps that are followed; of several the first is not timed."""

ON_CPU = "_for_cpu"
"""In the name of an attention that torch has no formula for: it takes what the GPU's takes."""


class ModulesProbe(OperatorProbe):
    """Writes ``modules``: when the pass is over, one row for each module that was called.

    Time passes from module to module: from one begin, end or backward node to the next it is that
    of the module that runs, or made the node. So the rows add up to the step. On a CPU it is the
    thread's, on a GPU the stream's by its events.
    """

    name = "modules"
    parts = ("modules",)
    passes = frozenset({"loud"})
    also = frozenset({"numbers"})
    unseen = "the operations of some modules were not counted"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.modules = Modules()
        self.rows: dict[str, ModuleRow] = {}
        self._names: dict[int, str] = {}
        self._times: list[Counter[tuple[str, bool]]] = []
        self._laps: list[tuple[str, bool, Any]] = []
        self._queue, self._back, self._node = RunQueue(), False, ""
        self._known = set[int]()
        self._hooks: list[Any] = []

    def start(self) -> None:
        self.stop()
        if self.context.device.simulated:
            return
        self.context.writer.touch(*self.parts)
        if self.context.pass_name == "numbers":
            super().start()
            return
        self._follow()
        keep_hooks(
            self._patches,
            module_hooks.register_module_forward_pre_hook(self.guarded(self._entered)),
            module_hooks.register_module_forward_hook(self.guarded(self._left), always_call=True),
        )
        self.watch_backward(self._patches)

    def watch(self) -> None:
        self._follow()
        self.enter(Operations(self))

    def _follow(self) -> None:
        self._names = names_from_roots() | self._names  # a module has one name in all passes
        self.modules.watch(self._patches, self._names)

    def step_begin(self) -> None:
        super().step_begin()
        self._laps, self._back, self._node = [], False, ""
        self._pass_to("")

    def step_end(self) -> None:
        if self._patches:
            self._pass_to("")
            self._times.append(self._timed())
            self.modules.forget()
            if self.context.pass_name == "loud" and len(self._times) == FOLLOWED:
                self._patches.undo()

    def stop(self) -> None:
        super().stop()
        self._queue.close()
        self.modules.forget()
        timed = self._times[1:] or self._times
        for row in self.rows.values() if timed else ():
            row.us, row.backward_us = (
                median(each[row.name, back] for each in timed) for back in (False, True)
            )
            row.steps = len(self._times)
            if row.kind or row.types or not row.name:
                self.context.add(row)
        self.rows, self._times = {}, []
        self._known.clear()

    def row(self, name: str) -> ModuleRow:
        """That of a module."""
        return self.rows.setdefault(name, ModuleRow(name=name))

    # -- time --------------------------------------------------------------------------------------

    def _pass_to(self, name: str) -> None:
        """The time from now on is that of this module."""
        if self.context.pass_name != "loud" or not self._patches:
            return
        # the loader is waited for outside of modules; inside them a busy machine must not count
        now: Any = time.thread_time_ns(), time.perf_counter_ns() - self._queue.ns()
        if self.context.device.kind == "cuda":
            if torch.cuda.is_current_stream_capturing():
                return
            now = torch.cuda.Event(enable_timing=True)
            now.record()
        self._laps.append((name, self._back, now))

    def _timed(self) -> Counter[tuple[str, bool]]:
        """Time of the step in us by module, forward and backward."""
        found = Counter[tuple[str, bool]]()
        if self._laps and self.context.device.kind == "cuda":
            self._laps[-1][2].synchronize()
        for (name, back, begin), (_, _, end) in pairwise(self._laps):
            if isinstance(end, torch.cuda.Event):
                with contextlib.suppress(ValueError):  # of two devices
                    found[name, back] += begin.elapsed_time(end) * 1e3
            else:
                clock = not (name or back)
                found[name, back] += (end[clock] - begin[clock]) / 1e3
            self.row(name)
        return found

    # -- forward -----------------------------------------------------------------------------------

    def _entered(self, module: torch.nn.Module, args: Any) -> None:
        if self.in_step:
            row = self.row(self.modules.current)
            if not row.kind:
                self._describe(row, module)
            if torch.is_grad_enabled() and not self._back:
                self._feed(row, module, args)
            self._pass_to(row.name)

    def _left(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        if self.in_step:
            self._pass_to(self.modules.current or self._node)

    def _describe(self, row: ModuleRow, module: torch.nn.Module) -> None:
        own = [each for each in module.parameters(recurse=False) if id(each) not in self._known]
        self._known.update(map(id, own))
        row.kind, row.parameters = type(module).__name__, sum(each.numel() for each in own)
        frames, (frame, _) = self.context.frames, self.context.frames.user_frame()
        code = getattr(type(module).forward, "__code__", None)
        if code is not None and frames.is_user(code.co_filename):
            row.at = frames.site(code.co_filename, code.co_firstlineno, code.co_qualname)
        elif frame is not None:
            code = frame.f_code
            row.at = frames.site(code.co_filename, frame.f_lineno, code.co_qualname)

    def _feed(self, row: ModuleRow, module: torch.nn.Module, args: Any) -> None:
        """Count samples of an outermost module, and tokens of an embedding."""
        first = next(iter(tensors(args)), None)
        if first is not None and first.dim():
            row.samples += first.shape[0] * (self.modules.depth == 1)
            words = isinstance(module, torch.nn.Embedding) and first.dim() == 2
            row.tokens += first.numel() * words

    # -- backward ----------------------------------------------------------------------------------

    def backward_begins(self, call: Backward) -> None:
        if call.nested or not self.in_step:
            return
        if not self._times:
            for name, size in (saved_by(call.walked, self.modules.that_made) or {}).items():
                row = self.row(name)
                row.saved_bytes = max(size, row.saved_bytes or 0)
        for node in call.walked.nodes:
            begins = partial(self._node_begins, self.modules.that_made(node))
            self._hooks.append(node.register_prehook(begins))
        self._back = True
        self._pass_to("")

    def backward_ends(self, call: Backward) -> None:
        if not call.nested and self._back:
            self._back, self._node = False, ""
            self._pass_to(self.modules.current)
            for each in self._hooks:
                each.remove()
            self._hooks.clear()

    def _node_begins(self, made: str, gradients: Any) -> None:
        self._node = made
        self._pass_to(made)


class Operations(Subscriber):
    """Counts the operations of products, convolutions and attention by module."""

    def __init__(self, probe: ModulesProbe) -> None:
        super().__init__(probe.fail)
        self._probe = probe
        self._formulas: dict[Any, Callable[..., int]] = {}

    def wants(self, operator: Operator) -> bool:
        packet = getattr(operator.func, "overloadpacket", None)
        if ON_CPU in operator.own_name:
            packet = getattr(torch.ops.aten, operator.own_name.replace(ON_CPU, ""), packet)
        if packet in flop_registry:
            self._formulas[operator.func] = flop_registry[packet]
        return packet in flop_registry

    def before(self, call: Call) -> bool | None:
        return self._probe.in_step or None

    def after(self, call: Call, noted: Any) -> None:
        count, modules = self._formulas[call.operator.func], self._probe.modules
        n = int(count(*call.args, **call.kwargs, out_val=call.result))
        made = modules.that_made(current_node()) if call.backward else ""
        row = self._probe.row(modules.current or made)
        row.flops += n * (not call.backward)
        row.backward_flops += n * call.backward
        kind = _kind(call)
        row.types = {**row.types, kind: row.types.get(kind, 0) + n}


def _kind(call: Call) -> str:
    """The type that a call computes in; ``tf32`` where a GPU may take it for float32."""
    first = next(each for each in call.given if each.is_floating_point())
    if first.dtype is torch.float32 and first.is_cuda:
        convolves = torch.backends.cudnn.allow_tf32 if "conv" in call.operator.name else None
        if convolves or (convolves is None and torch.get_float32_matmul_precision() != "highest"):
            return "tf32"
    return str(first.dtype).removeprefix("torch.")
