"""Origin: was a value that the host reads computed on the training device? Decides what a GPU run
would wait for.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.optim.optimizer as optimizers
from torch.nn.modules import module as modules

from auditor.capture.instruments.dispatch_modes import leave_function, run_compiled_code_eagerly
from auditor.capture.instruments.module_stack import keep_hooks
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.training import own_buffers, own_parameters
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.operator_stream import subscribe
from auditor.capture.probes.sync.origin_marks import DERIVED, Origins, activate
from auditor.capture.probes.sync.origin_modes import Births, Propagation
from auditor.capture.probes.sync.reads_stack import Stack
from auditor.errors import fault


class OriginProbe(Probe):
    """Runs beside :class:`auditor.capture.probes.sync.reads.ReadsProbe` in the ``origin`` pass;
    gives its rows the field ``derived``.

    Derived are parameters and buffers, what was moved by ``.to(device)`` or made with ``device=``
    where the source does not write ``"cpu"``, and whatever is computed from them. It slows the step
    several times and changes no result.
    """

    name = "origin"
    parts = ("reads",)
    watches_operators = True
    passes = frozenset({"origin"})
    after = ("reads",)  # over whose kernels the modes are entered

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.origins = Origins()
        self.errors = 0
        self._patches = Patches()

    def start(self) -> None:
        """Enter the modes in the calling thread, which must be the one that runs the step."""
        self.stop()
        try:
            self._watch()
        except BaseException:
            self.stop()
            raise

    def _watch(self) -> None:
        self.origins = Origins()
        self._patches.on_undo(activate(self.origins))
        keep_hooks(self._patches, modules.register_module_forward_pre_hook(self._module_called))
        self._watch_optimizers()
        run_compiled_code_eagerly(self._patches)
        births = Births(self.origins, Stack(self.context.frames), self.fail)
        births.__enter__()  # type: ignore[no-untyped-call]  # torch's own, without annotations
        self._patches.on_undo(lambda: leave_function(births))
        watch = Propagation(self.origins, self.fail)
        self._patches.on_undo(subscribe(self.context, watch))

    def _watch_optimizers(self) -> None:
        register = getattr(optimizers, "register_optimizer_step_pre_hook", None)
        if register is not None:
            self._patches.on_undo(register(self._optimizer_steps).remove)

    def _module_called(self, module: torch.nn.Module, args: Any) -> None:
        try:
            for tensor in (*own_parameters(module).values(), *own_buffers(module).values()):
                if tensor is not None:
                    self.origins.mark(tensor, DERIVED)
        except Exception as error:  # the user's step goes on whatever we got wrong
            self.fail(error)

    def _optimizer_steps(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        try:
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    self.origins.mark(parameter, DERIVED)
                    if parameter.grad is not None:
                        self.origins.mark(parameter.grad, DERIVED)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Count one of our own errors; warn about the first."""
        self.errors += 1
        if self.errors == 1:
            self.context.lapse(self.name, self.parts, error)
            self.context.warn(f"the origin of some values is unknown: {fault(error)}")

    def step_end(self) -> None:
        """Forget storages that are gone."""
        self.origins.prune()

    def stop(self) -> None:
        """Leave the modes and remove the hooks."""
        self._patches.undo()
