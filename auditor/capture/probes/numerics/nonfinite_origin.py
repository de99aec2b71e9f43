"""Where a non-finite value was born: the last steps of a replay, every operator watched, and the
user's line of each birth.
"""

from __future__ import annotations

import os
import re
import sys
from types import FrameType
from typing import Any
from weakref import WeakSet

import torch

from auditor.capture.instruments.dispatch_modes import run_compiled_code_eagerly
from auditor.capture.instruments.module_stack import Modules
from auditor.capture.instruments.notebook_cells import source_path
from auditor.capture.instruments.torch_private.autograd import ENGINE, current_node
from auditor.capture.instruments.torch_private.compiler import CALL_OF_A_MODULE
from auditor.capture.instruments.torch_private.data import LoaderIterator, dataset_of
from auditor.capture.instruments.torch_private.training import BatchNorm
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.data.dataloader_facts import dataset_class, tensors_in
from auditor.capture.probes.numerics.nonfinite import Stepped, bad_tensors
from auditor.capture.probes.numerics.nonfinite_origin_log import (
    Birth,
    Line,
    NonfiniteOriginLog,
    Phase,
)
from auditor.capture.probes.numerics.nonfinite_origin_watch import NonfiniteOriginWatch
from auditor.capture.probes.numerics.norm_buffers import finite, statistics_of
from auditor.capture.probes.operator_stream import subscribe
from auditor.errors import fault

BATCH = 100
"""Tensors of a batch that are looked at."""

MOST_ROWS = 5
"""Births that are told of one step."""

_OPTIMIZERS = f"{os.sep}optim{os.sep}"
"""Part of the path of files that update parameters: torch/optim, timm/optim."""

_CALL_LINE = re.compile(r'\s*File "(?P<file>.+)", line (?P<line>\d+), in (?P<function>.+)')


class Position:
    """What runs at this moment, and which line of the user's it comes from.

    In the backward that is the forward's line which made the node, unless a function of the user's
    (a hook, a custom ``autograd.Function``) is what runs there.
    """

    def __init__(self, context: Context, modules: Modules) -> None:
        self._context = context
        self._writer = context.writer
        self._frames = context.frames
        self._modules = modules

    def now(self) -> dict[str, Any]:
        """``step``, ``at``, ``place``, ``phase``, ``node`` and ``module``."""
        node, (frame, optimizing) = current_node(), self._innermost()
        at, place = None, None
        if frame is not None:
            at = self._frames.number(frame)
            place = source_path(frame.f_code.co_filename), frame.f_lineno
        elif node is not None:
            at, place = self._forward_of(node)
        phase: Phase = "backward" if node is not None else "optimizer" if optimizing else "forward"
        name = "" if node is None else type(node).__name__
        step, module = self._context.step, self._modules.current
        if node is not None and not module:
            module = self._modules.that_made(node)
        return {
            "step": step,
            "at": at,
            "place": place,
            "phase": phase,
            "node": name,
            "module": module,
        }

    def entered(self) -> int | None:
        """Where a line of the user's called the outermost module that runs, if one does."""
        frame: FrameType | None = sys._getframe(1)
        found: FrameType | None = None
        while frame is not None and frame.f_code.co_name != ENGINE:
            if frame.f_code.co_name == CALL_OF_A_MODULE:
                torchs, caller = frame.f_code.co_filename, frame.f_back
                while caller is not None and caller.f_code.co_filename == torchs:
                    caller = caller.f_back
                if caller is not None and self._frames.is_user(caller.f_code.co_filename):
                    found = caller
            frame = frame.f_back
        return None if found is None else self._frames.number(found)

    def _innermost(self) -> tuple[FrameType | None, bool]:
        """The innermost user frame on this side of the engine; if an optimizer runs in it."""
        frame: FrameType | None = sys._getframe(1)
        optimizing = False
        while frame is not None and frame.f_code.co_name != ENGINE:
            file = frame.f_code.co_filename
            if self._frames.is_user(file):
                return frame, optimizing
            optimizing = optimizing or _OPTIMIZERS in file
            frame = frame.f_back
        return None, optimizing

    def _forward_of(self, node: Any) -> tuple[int | None, Line | None]:
        """Anomaly mode has left the forward's stack, as text, in the node's metadata."""
        for text in reversed(node.metadata.get("traceback_", ())):
            match = _CALL_LINE.match(text)
            if match and self._frames.is_user(match["file"]):
                file, line = os.path.abspath(match["file"]), int(match["line"])
                return self._writer.site(file, line, match["function"].strip()), (file, line)
        return None, None


class NonfiniteOriginProbe(Probe):
    """Writes ``births``: of the first watched step that ends badly, what made its gradients or
    parameters non-finite. Of steps that all end well, what the first batch norm was given whose
    statistics did not stay finite.

    ``context.plan.watched`` are the steps to watch. Runs only in a replay: it slows a step several times
    and reads every tensor on the host. It changes no result.
    """

    name = "birth"
    parts = ("births",)
    passes = frozenset({"replay"})
    in_rehearsals = True

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._log = NonfiniteOriginLog()
        self._modules = Modules()
        self._stepped = Stepped()
        self._done = False
        self._given: Birth | None = None
        """Behind what a batch norm was given whose statistics it spoiled."""
        self._spoiled: WeakSet[torch.nn.Module] = WeakSet()
        """Batch norms that began a forward with statistics that were not finite."""
        self._errors = 0

    def install(self) -> None:
        self._stepped.install()

    def uninstall(self) -> None:
        self._stepped.uninstall()

    def start(self) -> None:
        """Say that this recording looks for births."""
        super().start()
        if LoaderIterator is not None:
            self._always.around(LoaderIterator, "__next__", after=self._batch)

    def _batch(self, batch: Any, iterator: Any) -> None:
        if self._done or self.context.step + 1 < min(self.context.plan.watched, default=0):
            return
        dataset = dataset_class(dataset_of(iterator))
        for tensor in tensors_in(batch, BATCH):
            if tensor.is_floating_point() and not finite(tensor):
                self._log.note_batch(tensor, dataset.__name__)

    def step_begin(self) -> None:
        self._stepped.take()
        if self.context.step in self.context.plan.watched and not self._done:
            try:
                self._watch()
            except BaseException:
                self._patches.undo()
                raise

    def step_end(self) -> None:
        stepped = self._stepped.take()
        self._patches.undo()
        self._log.prune()
        if self.context.step not in self.context.plan.watched or self._done:
            return
        bad = bad_tensors(stepped)
        if bad:
            self._done = True
            reached = {birth for each in bad if (birth := self._log.of(each.tensor)) is not None}
            told = {self._log.told(birth) for birth in reached}
            for birth in sorted(told, key=lambda birth: birth.order)[:MOST_ROWS]:
                self.context.add(self._log.row(birth))

    def stop(self) -> None:
        """A step that raised never came to its end."""
        self.step_end()
        self._always.undo()
        if self._given is not None and not self._done:
            self.context.add(self._log.row(self._log.told(self._given)))
        self._given = None

    def _look_at_norms(self) -> None:
        def begins(module: torch.nn.Module, *_: Any, **__: Any) -> None:
            if not _all_finite(module):
                self._spoiled.add(module)

        def ran(_: Any, module: torch.nn.Module, given: Any, *__: Any) -> None:
            if self._given is None and module not in self._spoiled and not _all_finite(module):
                self._given = self._log.of(given)

        if BatchNorm is not None:
            self._patches.around(BatchNorm, "forward", before=begins, after=ran)

    def _watch(self) -> None:
        self._modules.watch(self._patches)
        before = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        torch.set_anomaly_enabled(True, before[1] and before[0])
        self._patches.on_undo(lambda: torch.set_anomaly_enabled(*before))
        run_compiled_code_eagerly(self._patches)
        watch = NonfiniteOriginWatch(self._log, Position(self.context, self._modules), self._fail)
        self._look_at_norms()
        self._patches.on_undo(subscribe(self.context, watch))

    def _fail(self, error: Exception) -> None:
        self._errors += 1
        if self._errors == 1:
            self.context.warn(
                f"some operators of the replayed step were not watched ({fault(error)})"
            )


def _all_finite(module: torch.nn.Module) -> bool:
    return all(finite(buffer) for _, buffer in statistics_of([module]))
