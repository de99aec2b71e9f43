"""The step by module: time, saved bytes and operations of each, forward and backward."""

from collections import Counter
from functools import partial
from statistics import median
from time import perf_counter_ns
from typing import Any

import torch
from torch.nn.modules import module as module_hooks
from torch.utils.flop_counter import flop_registry

from auditor.capture.instruments.autograd_graph import Backward, saved_by
from auditor.capture.instruments.module_stack import Modules, keep_hooks, names_from_roots
from auditor.capture.instruments.plain_tensor import tensors
from auditor.capture.instruments.torch_private.autograd import current_node
from auditor.capture.probes.base import Context
from auditor.capture.probes.operator_stream import Call, Operator, OperatorProbe, Subscriber
from auditor.capture.probes.step.clock import RunQueue
from auditor.recordings.schema.run import ModuleRow

FOLLOWED = 6
"""Diagnostic steps that are followed; of several the first is not timed."""


class ModulesProbe(OperatorProbe):
    """Writes ``modules``: when the pass is over, one row for each module that was called.

    Time passes from module to module: from one begin, end or backward node to the next it is that
    of the module that runs, or made the node. So the rows add up to the step. A GPU's is not known.
    """

    name = "modules"
    also = frozenset({"numbers"})
    unseen = "the operations of some modules were not counted"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.modules = Modules()
        self.rows: dict[str, ModuleRow] = {}
        self._names: dict[int, str] = {}
        self._times: list[Counter[tuple[str, bool]]] = []
        self._queue, self._since = RunQueue(), 0
        self._running, self._back, self._timed = "", False, False
        self._hooks: list[Any] = []
        self._ids: dict[tuple[int, ...], int] = {}

    def start(self) -> None:
        if self.context.device.simulated:
            return
        self.context.writer.touch(*self.parts)
        self._names = names_from_roots() | self._names  # a module has one name in all passes
        self._timed = self.context.pass_name == "loud" and not self.context.device.timed
        if self.context.pass_name == "numbers":
            super().start()
            return
        self.modules.watch(self._patches, self._names)
        keep_hooks(
            self._patches,
            module_hooks.register_module_forward_pre_hook(self.guarded(self._entered)),
            module_hooks.register_module_forward_hook(self.guarded(self._left), always_call=True),
        )
        self.watch_backward(self._patches)

    def watch(self) -> None:
        self.modules.watch(self._patches, self._names)
        self.enter(Operations(self))

    def step_begin(self) -> None:
        super().step_begin()
        if self._patches:
            self._times.append(Counter())
            self.row("")
            self._back, self._since, self._ids = False, 0, {}
            self._pass_to("")

    def step_end(self) -> None:
        if self._patches:
            self._pass_to("")
            self.modules.forget()
            if len(self._times) == FOLLOWED:
                self._patches.undo()

    def stop(self) -> None:
        super().stop()
        self._queue.close()
        self.modules.forget()
        for row in self.rows.values():
            row.us, row.backward_us = (
                median(each[row.name, back] / 1e3 for each in self._times[1:] or self._times)
                for back in (False, True)
            )
            row.steps = len(self._times)
            self.context.add(row)
        self.rows, self._times = {}, []

    def row(self, name: str) -> ModuleRow:
        return self.rows.setdefault(name, ModuleRow(name=name))

    def _pass_to(self, name: str, *_: Any) -> None:
        """The time from now on is that of this module."""
        if self._timed:
            now = perf_counter_ns() - self._queue.ns()  # a busy machine must not count
            if self._since:
                self._times[-1][self._running, self._back] += max(now - self._since, 0)
            self._running, self._since = name, now

    def _entered(self, module: torch.nn.Module, args: Any) -> None:
        if not self.in_step:
            return
        row, frames = self.row(self.modules.current), self.context.frames
        if not row.kind:
            row.kind = type(module).__name__
            code = getattr(type(module).forward, "__code__", None)
            if code is not None and frames.is_user(code.co_filename):
                row.at = frames.site(code.co_filename, code.co_firstlineno, code.co_qualname)
            else:
                row.at = frames.here()
        if isinstance(module, torch.nn.Embedding) and torch.is_grad_enabled() and not self._back:
            self._ids |= {tuple(ids.shape): ids.numel() for ids in tensors(args) if ids.dim() == 2}
        elif self._ids and next(module.parameters(recurse=False), None) is not None:
            # columns of a table and sets of items have become one row each: no tokens
            for first, *rest in (each.shape for each in tensors(args) if each.dim() == 3):
                row.tokens += sum(self._ids.pop((first, size), 0) for size in rest)
        self._pass_to(row.name)

    def _left(self, module: torch.nn.Module, args: Any, result: Any) -> None:
        if self.in_step:
            self._pass_to(self.modules.current)

    def backward_begins(self, call: Backward) -> None:
        if call.nested or not self.in_step:
            return
        if len(self._times) == 1:
            for name, size in (saved_by(call.walked, self.modules.that_made) or {}).items():
                self.row(name).saved_bytes = max(size, self.row(name).saved_bytes)
        for node in call.walked.nodes if self._timed else ():
            begins = partial(self._pass_to, self.modules.that_made(node))
            self._hooks.append(node.register_prehook(begins))
        self._pass_to("")
        self._back = True

    def backward_ends(self, call: Backward) -> None:
        if not call.nested and self._back:
            self._pass_to(self.modules.current)
            self._back = False
            while self._hooks:
                self._hooks.pop().remove()


class Operations(Subscriber):
    """Counts the operations of products, convolutions and attention by module."""

    def __init__(self, probe: ModulesProbe) -> None:
        super().__init__(probe.missed)
        self._probe = probe

    def wants(self, operator: Operator) -> bool:
        return getattr(operator.func, "overloadpacket", None) in flop_registry

    def before(self, call: Call) -> bool | None:
        return self._probe.in_step or None

    def after(self, call: Call, noted: Any) -> None:
        formula = flop_registry[call.operator.func.overloadpacket]
        count, modules = (
            int(formula(*call.args, **call.kwargs, out_val=call.result)),
            self._probe.modules,
        )
        made = modules.that_made(current_node()) if call.backward else ""
        row = self._probe.row(modules.current or made)
        row.flops += count * (not call.backward)
        row.backward_flops += count * call.backward
        first = next(each for each in call.given if each.is_floating_point())
        kind = str(first.dtype).removeprefix("torch.")
        if kind == "float32" and first.is_cuda:
            convolves = "conv" in call.operator.name
            backend = torch.backends.cudnn if convolves else torch.backends.cuda.matmul
            kind = "tf32" if backend.allow_tf32 else kind
        row.types = {**row.types, kind: row.types.get(kind, 0) + count}
