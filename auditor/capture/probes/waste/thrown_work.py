"""Work whose results nobody needs: a few steps, each operator followed to who reads its result."""

from __future__ import annotations

import functools
import inspect
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType, GeneratorType
from typing import Any

import torch

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.instruments.module_stack import live_modules
from auditor.capture.instruments.monkeypatch import LOOKING
from auditor.capture.instruments.plain_tensor import tensors
from auditor.capture.instruments.storages import storage_key
from auditor.capture.instruments.torch_private.training import own_buffers
from auditor.capture.instruments.user_frames import OWN
from auditor.capture.probes.base import Context
from auditor.capture.probes.data.dataloader_facts import tensors_in
from auditor.capture.probes.numerics.nonfinite import homes_of
from auditor.capture.probes.operator_probe import OperatorProbe
from auditor.capture.probes.optim.optimizer_hooks import OptimizerSteps, live_optimizers, tensors_of
from auditor.capture.probes.sync.reads_methods import StandIn
from auditor.capture.probes.waste.flow import Path
from auditor.capture.probes.waste.flow_judging import Gradient, Judging
from auditor.capture.probes.waste.flow_watch import MOST_NODES, FlowWatch
from auditor.cycles import period_of
from auditor.recordings.schema.graph import ThrownRow

ADDRESSES = ("numpy", "data_ptr", "share_memory_", "untyped_storage", "__dlpack__")
"""Methods that hand out a tensor's memory: who reads it then is not seen."""

READS = ("tolist", "__deepcopy__", "__reduce_ex__")
"""Methods that read it past torch's operators."""

MOST_PERIOD = 5
"""Steps after which those that alternate must come again: a critic is trained five times as often as
its generator (Arjovsky et al. 2017, Wasserstein GAN, algorithm 1).
"""

REMEMBERED = 24
"""Steps of which it is known which optimizers stepped: two periods and what was irregular before."""

RETURNED = 1000
"""Tensors that are looked for in what the target returns."""


class ThrownWorkProbe(OperatorProbe):
    """Writes ``thrown`` when its pass is over."""

    name = "thrown"
    parts = ("thrown",)
    passes = frozenset({"numbers"})
    in_rehearsals = True
    unseen = "the flow of some values was not seen"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._watch: FlowWatch | None = None
        self._gradients: list[Gradient] = []
        self._owners: dict[int, tuple[weakref.ref[torch.Tensor], str]] = {}
        self._calls = 0
        self._open = 0
        self._steps = 0
        self._stepped = False
        self._stepping: dict[int, set[int]] = {}
        self._kinds: list[frozenset[Path]] = []
        self._known = 0
        self._told = OptimizerSteps(after=self.guarded(self._optimizer_stepped))

    def install(self) -> None:
        self._always.on_undo(self._told.uninstall)
        self._told.install()

    def watch(self) -> None:
        self._gradients, self._calls, self._open, self._steps = [], 0, 0, 0
        self._stepped = False
        self._kinds, self._known = [], 0
        self._owners = {
            id(each): (weakref.ref(each), f"{type(optimizer).__name__} {number}")
            for number, optimizer in enumerate(live_optimizers())
            for each in tensors_of(optimizer)
        }
        buffers = [
            each
            for module in live_modules()
            for each in own_buffers(module).values()
            if isinstance(each, torch.Tensor)
        ]
        self._watch = FlowWatch(self.context, buffers, self.fail)
        for name in (*ADDRESSES, *READS):
            original = getattr(torch.Tensor, name, None)
            if original is not None:
                call = self._taking(original, address=name in ADDRESSES)
                self._patches.attribute(torch.Tensor, name, StandIn(original, call))
        self._look_for_threads()  # what the program's own threads read is not seen
        for owner, name in ((threading.Thread, "start"), (ThreadPoolExecutor, "submit")):
            self._patches.attribute(owner, name, self._starting(getattr(owner, name)))
        self.watch_backward(self._patches)
        self.enter(self._watch)

    def _optimizer_stepped(self, optimizer: torch.optim.Optimizer) -> None:
        self._stepped = True
        step = self.context.global_step
        self._stepping.setdefault(step, set()).add(id(optimizer))
        self._stepping.pop(step - REMEMBERED, None)

    def wants_more(self) -> bool:
        """Steps alternate, and not all kinds of them were seen twice and once more: what the last
        one made may still be needed.
        """
        watch, last = self._watch, self.context.global_step
        if watch is None or watch.blind or not self._steps:
            return False
        if len(watch.flow.nodes) / self._steps * (self._steps + 1) >= MOST_NODES:
            return False
        stepping = [
            self._stepping.get(step) for step in range(max(0, last + 1 - REMEMBERED), last + 1)
        ]
        alternate = period_of(stepping, MOST_PERIOD) or 1
        period = period_of(self._kinds, MOST_PERIOD) or MOST_PERIOD
        return self._steps <= 2 * max(alternate, period)

    def step_gave(self, returned: Any) -> None:
        """That is its caller's to read."""
        if self._watch is not None:
            for tensor in tensors_in(returned, RETURNED):
                self._watch.escape(tensor, address=False)

    def step_end(self) -> None:
        """What outlives the step in more than a variable is kept for somebody."""
        self._steps += 1
        watch = self._watch
        self._look_for_threads()
        if watch is not None:
            nodes = watch.flow.nodes
            self._kinds.append(frozenset(node.path for node in nodes[self._known :]))
            self._known = len(nodes)
            local = {storage_key(each) for each in self._locals()}
            for key, value in watch.flow.survivors(self.context.step):
                if key not in local:
                    watch.flow.stored.append(value)

    def _locals(self) -> Iterator[torch.Tensor]:
        """Tensors in variables of the functions that run, or wait in a ``yield``."""
        held = self.context.target  # a script's is its module, which may have any names
        if isinstance(held, functools.partial):
            held = held.args[0] if held.args else None
        waiting = held.gi_frame if isinstance(held, GeneratorType) else None
        frame: FrameType | None = sys._getframe(1) if waiting is None else waiting
        while frame is not None:
            if self.context.frames.is_user(frame.f_code.co_filename):
                for value in tuple(frame.f_locals.values()):
                    yield from tensors((value,) if not isinstance(value, (dict, list)) else ())
            frame = frame.f_back

    def stop(self) -> None:
        """Leave the watch, then judge and write the rows."""
        super().stop()
        watch, self._watch = self._watch, None
        if watch is None:
            return
        self.context.writer.touch("thrown")
        judged = self._steps and not watch.blind
        if judged:
            judging = Judging(watch.flow, self._gradients, self._steps)
            alive = [each for ref, _ in self._owners.values() if (each := ref()) is not None]
            for row in judging.rows(homes_of(alive) if self._gradients else {}):
                self.context.add(row)
        nodes = watch.flow.nodes
        copied = sum(node.nbytes for node in nodes if node.copied)
        self.context.add(
            ThrownRow(
                what="all",
                steps=self._steps,
                operators=len(nodes) / max(1, self._steps),
                share=1.0,
                nbytes=copied // max(1, self._steps),
                blind=watch.blind,
                trained=self._stepped,
            )
        )
        self._gradients, self._owners = [], {}

    # -- who takes memory away ---------------------------------------------------------------------

    def _taking(self, original: Callable[..., Any], *, address: bool) -> Callable[..., Any]:
        @functools.wraps(original)
        def taken(*args: Any, **kwargs: Any) -> Any:
            watch = self._watch
            if (
                watch is not None
                and self.watches_operators
                and not LOOKING.depth
                and args
                and isinstance(args[0], torch.Tensor)
                and not sys._getframe(1).f_code.co_filename.startswith(OWN)
            ):
                try:
                    watch.escape(args[0], address=address)
                except Exception as error:  # the user's step goes on
                    self.fail(error)
            return original(*args, **kwargs)

        return taken

    # -- other threads -----------------------------------------------------------------------------

    def _starting(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def started(*args: Any, **kwargs: Any) -> Any:
            watch = self._watch
            if watch is not None and not watch.flow.threads and args:
                try:
                    what = args[1] if len(args) > 1 else getattr(args[0], "_target", None)
                    files = [
                        file
                        for each in (getattr(args[0], "run", None), what)
                        if (file := _home(each))
                    ]
                    watch.flow.threads = any(map(self.context.frames.is_user, files))
                except Exception as error:  # the user's step goes on
                    self.fail(error)
            return original(*args, **kwargs)

        return started

    def _look_for_threads(self) -> None:
        watch = self._watch
        if watch is None or watch.flow.threads or threading.active_count() == 1:
            return
        own = threading.get_ident()
        for number, top in sys._current_frames().items():
            frame: FrameType | None = None if number == own else top
            while frame is not None:
                watch.flow.threads |= self.context.frames.is_user(frame.f_code.co_filename)
                frame = frame.f_back

    # -- backwards ---------------------------------------------------------------------------------

    def backward_begins(self, call: Backward) -> None:
        """What runs from now on is its."""
        self._open += 1
        watch = self._watch
        if watch is None or self._open > 1:
            return
        self._calls = watch.backwards = self._calls + 1
        path = watch.stacks.here()[0] if self.context.in_step else ()
        watch.backward = self._calls, path
        for tensor in call.tensors:
            watch.flow.kept.append(watch.value(tensor))

    def backward_ends(self, call: Backward) -> None:
        """Note what it left in the parameters' gradients."""
        self._open -= 1
        watch = self._watch
        if watch is None or self._open or watch.backward is None:
            return
        number, path = watch.backward
        watch.backward = None
        for owned, (ref, optimizer) in self._owners.items():
            parameter = ref()
            gradient = None if parameter is None else parameter.grad
            value = None if gradient is None else watch.find(gradient)
            if value is not None and value.node is not None and value.node.backward == number:
                self._gradients.append(
                    Gradient(number, self.context.step, path, optimizer, owned, value)
                )


def _home(function: Any) -> str:
    """The file that what a thread will run is written in; empty where that is not known."""
    while isinstance(function, functools.partial):
        function = function.func
    if not callable(function):
        return ""
    inner = inspect.unwrap(function)
    code = getattr(inner, "__code__", None) or getattr(type(inner).__call__, "__code__", None)
    return "" if code is None else str(code.co_filename)
