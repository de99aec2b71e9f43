"""What becomes of a planted fault: every forward, backward, optimizer step, save and load of a
drill, and the state after each step.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.amp.grad_scaler import GradScaler
from torch.nn.modules import module as module_hooks
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from auditor.capture.instruments.autograd_graph import Backward
from auditor.capture.instruments.module_stack import keep_hooks
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.data import LoaderIterator
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.data.dataloader_facts import tensors_in
from auditor.capture.probes.drill.fault_injection import Injector
from auditor.capture.probes.drill.state_digest import (
    NAMED,
    Training,
    digest,
    finite,
    tensors_by_path,
)
from auditor.errors import fault
from auditor.recordings.schema.drill import (
    DrillBackwardRow,
    DrillBatchRow,
    DrillBrokenRow,
    DrillEndRow,
    DrillForwardRow,
    DrillLoadRow,
    DrillOptimizerRow,
    DrillRow,
    DrillSaveRow,
    DrillSkippedRow,
    DrillStartRow,
    DrillStateRow,
)
from auditor.runs.plan import Drill

TENSORS_SEEN = 100
"""Tensors of a module's input that its digest covers."""


class DrillProbe(Probe):
    """Writes ``drill``: one row for each event, in order, on disk at once where the process may be
    killed next.

    Slow on purpose: it reads the loss, and after each step every parameter, on the host. No time is
    taken from it.
    """

    name = "drill"
    parts = ("drill",)
    passes = frozenset({"drill"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._training = Training()
        self._injector = Injector(context.drill or Drill(), self._tell)
        self._files = Files(self._tell)
        self._depth = self._fed = self._updates = 0
        self._begun = self._loaders = False
        self._process = os.getpid()

    def _tell(self, row: DrillRow) -> None:
        if os.getpid() == self._process:  # a loader's worker that was forked has the hooks, too
            self.context.add(row)
            self.context.writer.flush()

    # -- from the start ----------------------------------------------------------------------------

    def install(self) -> None:
        """Fix the seeds, and see optimizers, saves and loads from now on."""
        random.seed(0)
        torch.manual_seed(0)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(0)
        training = self._training
        self._always.around(
            Optimizer, "__init__", after=lambda _, optimizer, *__, **___: training.add(optimizer)
        )
        self._always.on_undo(register_optimizer_step_pre_hook(self._steps).remove)
        self._always.on_undo(register_optimizer_step_post_hook(self._stepped).remove)
        self._files.install(self._always)

    def start(self) -> None:
        super().start()
        self._patch_loader()
        self._patch_scaler()
        keep_hooks(
            self._patches,
            module_hooks.register_module_forward_pre_hook(self._entering),
            module_hooks.register_module_forward_hook(self._leaving),
            module_hooks.register_module_forward_hook(self._left, always_call=True),
        )

    def stop(self) -> None:
        """Put everything back; a step that raised has left something behind, too."""
        super().stop()
        if self.context.in_step or self._begun:
            self._state(DrillBrokenRow)
        self._injector.step_end()

    def step_begin(self) -> None:
        self._begun = True
        self._depth = 0
        if self.context.drill is not None and self.context.drill.what:
            self._injector.step_begin(self.context.step, self._training.parameters, self._fed)

    def step_end(self) -> None:
        self._begun = False
        self._injector.step_end()
        self._state(DrillEndRow)

    def _state(self, kind: type[DrillStateRow]) -> None:
        training, optimized = self._training, self._optimized()
        parameters = training.parameters
        bad = {
            "parameters": training.bad_parameters(),
            "state": [name for name, tensor in training.state() if not finite(tensor)],
            "buffers": [name for name, tensor in training.buffers() if not finite(tensor)],
        }
        row = kind(
            parameters=len(parameters),
            weights=optimized.weights,
            state=optimized.state,
            states=optimized.states,
            rates=optimized.rates,
            random=digest([torch.get_rng_state()]),
            bad={what: names[:NAMED] for what, names in bad.items() if names},
            counts={what: len(names) for what, names in bad.items()},
        )
        self._tell(row)

    def _optimized(self) -> DrillStartRow:
        """Weights, optimizers' state and rates, as they are now."""
        training = self._training
        state = [tensor for _, tensor in training.state()]
        return DrillStartRow(
            weights=digest(training.parameters),
            state=digest(state),
            states=len(state),
            rates=[*training.rates],
        )

    # -- optimizers --------------------------------------------------------------------------------

    def _steps(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._training.add(optimizer)
        if not self._fed:
            self._tell(self._optimized())
        self._fed = sum(parameter.grad is not None for parameter in self._training.parameters) or 1
        flag = getattr(optimizer, "found_inf", None)  # fused optimizers skip inside
        bad = self._training.bad_gradients() if flag is None or not bool(flag) else []
        row = DrillOptimizerRow(
            bad=bad[:NAMED], n=len(bad), fed=self._fed, rates=[*self._training.rates]
        )
        self._tell(row)

    def _stepped(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        self._updates += 1

    def _patch_scaler(self) -> None:
        original, probe = GradScaler.step, self

        @functools.wraps(original)
        def watched_step(scaler: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            before = probe._updates
            result = original(scaler, optimizer, *args, **kwargs)
            if scaler.is_enabled() and probe._updates == before:
                probe._tell(DrillSkippedRow(scale=float(scaler.get_scale())))
            return result

        self._patches.attribute(GradScaler, "step", watched_step)

    # -- forward and backward ----------------------------------------------------------------------

    def _entering(self, module: torch.nn.Module, args: tuple[Any, ...]) -> Any:
        self._depth += 1
        if not torch.is_grad_enabled():
            return None
        if self._depth == 1:
            self._training.roots.add(module)
            self._tell(
                DrillForwardRow(input=digest(tensors_in(args, TENSORS_SEEN)), handling=_handling())
            )
        return self._injector.entering(module, args, expected=self._loaders)

    def _leaving(self, module: torch.nn.Module, args: Any, output: Any) -> Any:
        return (
            None
            if next(module.children(), None) is not None
            else self._injector.leaving(module, output)
        )

    def _left(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        self._depth -= 1

    def backward_begins(self, call: Backward) -> None:
        if call.nested:
            return
        gradients = self._training.gradients()
        loss = next((tensor for tensor in call.tensors if tensor.numel() == 1), None)
        said = repr(float(loss.detach())) if loss is not None else None  # JSON has no NaN
        row = DrillBackwardRow(
            loss=said, held=len(gradients), gradients=digest(gradients), handling=_handling()
        )
        self._tell(row)

    def backward_lost(self, error: Exception) -> None:
        """The rest of the drill is watched all the same."""
        self.context.warn(f"the drill saw no backward after a failure of its own ({fault(error)})")

    # -- loaders -----------------------------------------------------------------------------------

    def _patch_loader(self) -> None:
        if LoaderIterator is None:
            return
        original, probe = LoaderIterator.__next__, self

        @functools.wraps(original)
        def poisoned_next(iterator: Any) -> Any:
            batch = original(iterator)
            probe._loaders = True
            probe._tell(DrillBatchRow(content=digest(tensors_in(batch, TENSORS_SEEN))))
            changed = probe._injector.batch(batch)
            # no floating-point tensor in it: the first module's input is poisoned instead
            if changed is batch:
                probe._loaders = False
            return changed

        self._patches.attribute(LoaderIterator, "__next__", poisoned_next)


def _handling() -> bool:
    """True inside an ``except`` block that holds an out-of-memory error: its traceback keeps the
    failed attempt's tensors.
    """
    return isinstance(sys.exc_info()[1], torch.OutOfMemoryError)


# -- checkpoint files ------------------------------------------------------------------------------
# Checkpoints of a drill: what each save held, and what was loaded.


class Files:
    """Watches ``torch.save`` and ``torch.load``, under whatever name the user has them.

    What they overwrite is none of their business: a drill runs in a copy
    (``auditor/capture/target/write_guard.py``).
    """

    def __init__(self, tell: Callable[[DrillRow], None]) -> None:
        self._tell = tell
        self._here = Path.cwd().resolve()

    def install(self, patches: Patches) -> None:
        """Begin; ``patches`` undoes it."""
        patches.code(torch.save, self._save)  # type: ignore[arg-type]  # a plain function
        patches.code(torch.load, self._load)  # type: ignore[arg-type]

    def _save(
        self, original: Callable[..., Any], obj: Any, f: Any, *args: Any, **kwargs: Any
    ) -> Any:
        path = _path_of(f)
        if path is None:
            return original(obj, f, *args, **kwargs)
        result = original(obj, f, *args, **kwargs)
        with contextlib.suppress(Exception):  # an object of the user's that answers in its own way
            found = list(tensors_by_path(obj))
            bad = [name for name, tensor in found if not finite(tensor)]
            self._tell(
                DrillSaveRow(
                    path=self._shown(path), tensors=len(found), bad=bad[:NAMED], n=len(bad)
                )
            )
        return result

    def _load(self, original: Callable[..., Any], f: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(f, *args, **kwargs)
        path = _path_of(f)
        if path is not None:
            self._tell(DrillLoadRow(path=self._shown(path)))
        return result

    def _shown(self, path: Path) -> str:
        return str(path.relative_to(self._here)) if path.is_relative_to(self._here) else str(path)


def _path_of(f: Any) -> Path | None:
    """Where the file really lies that was given to ``torch.save`` (links of its folder followed);
    None for a buffer.
    """
    name = f if isinstance(f, (str, os.PathLike)) else getattr(f, "name", None)
    if not isinstance(name, (str, os.PathLike)):
        return None
    folder, file = os.path.split(os.path.abspath(os.fsdecode(name)))
    return Path(os.path.realpath(folder), file)
