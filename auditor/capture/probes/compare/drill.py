"""Plants the fault of a drill, once, and says after each step what is not finite."""

import os
import random
import signal
import sys
import weakref
from collections.abc import Iterator
from typing import Any, Literal

import torch
from torch.nn.modules import module as module_hooks
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from auditor.capture.instruments.module_stack import keep_hooks
from auditor.capture.instruments.plain_tensor import digest, finite
from auditor.capture.probes.base import Context, Probe
from auditor.capture.probes.numerics.nonfinite import names_of
from auditor.recordings.schema.other_runs import DrillRow
from auditor.runs.plan import Drill

NAMED = 200
"""Names in a row of the recording at most; the rest are counted."""

OOM_MESSAGE = "CUDA out of memory. Tried to allocate 2.00 GiB. (raised by audit drill)"
"""As torch words it: handlers look for 'out of memory' in the text."""


class DrillProbe(Probe):
    """Writes ``drill``. Slow on purpose: after each step it reads every parameter on the host. No
    time is taken from it.

    A NaN or infinity is put into the first sample of what a module without children gives, in a
    copy; an error or a kill comes in the backward, as the gradient of that output arrives.
    """

    name = "drill"
    passes = frozenset({"drill"})

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self._fault = context.plan.purpose_as(Drill) or Drill()
        self._optimizers: dict[int, weakref.ref[Optimizer]] = {}
        self._buffered: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._due = self._planted = self._started = False
        self._process = os.getpid()

    def _tell(self, what: Literal["start", "planted", "end"], **told: Any) -> None:
        if os.getpid() == self._process:  # a loader's worker that was forked has the hooks, too
            self.context.add(DrillRow(what=what, **told))
            self.context.writer.flush()

    def install(self) -> None:
        """Fix the seeds, so that a restart can be told from a resume, and see optimizers."""
        random.seed(0)
        torch.manual_seed(0)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(0)
        self._always.on_undo(register_optimizer_step_pre_hook(self._steps).remove)

    def start(self) -> None:
        super().start()
        keep_hooks(self._patches, module_hooks.register_module_forward_hook(self._left))

    def step_begin(self) -> None:
        self._due = bool(self._fault.what) and self.context.step >= self._fault.step

    def step_end(self) -> None:
        self._due = False
        self._tell("end", **self._state())

    def _steps(self, optimizer: Optimizer, *_: Any) -> None:
        self._optimizers.setdefault(id(optimizer), weakref.ref(optimizer))
        if not self._started:
            self._started = True
            self._tell("start", weights=digest(self._parameters()))

    # -- the fault ---------------------------------------------------------------------------------

    def _left(self, module: torch.nn.Module, args: Any, output: Any) -> Any:
        if next(module.buffers(recurse=False), None) is not None:
            self._buffered.add(module)
        whole = isinstance(output, torch.Tensor) and output.is_floating_point()
        leaf = next(module.children(), None) is None
        if not (self._due and not self._planted and whole and leaf and output.numel()):
            return None
        if not torch.is_grad_enabled():
            return None
        if self._fault.what in ("nan", "inf"):
            self._happened()
            poison = torch.zeros_like(output)
            (poison[0] if output.dim() else poison).fill_(float(self._fault.what))
            return output + poison  # added, so that gradients pass
        if output.requires_grad:
            output.register_hook(self._strike)
        return None

    def _strike(self, _: torch.Tensor) -> None:
        if self._planted:
            return
        self._happened()
        if self._fault.what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        raise torch.OutOfMemoryError(OOM_MESSAGE)

    def _happened(self) -> None:
        """Written first: the process may be gone next."""
        self._planted = True
        self._tell("planted", **self._state())

    # -- the state ---------------------------------------------------------------------------------

    def _live(self) -> Iterator[Optimizer]:
        return (each for ref in self._optimizers.values() if (each := ref()) is not None)

    def _parameters(self) -> list[torch.Tensor]:
        groups = (group for optimizer in self._live() for group in optimizer.param_groups)
        return list(dict.fromkeys(each for group in groups for each in group["params"]))

    def _state(self) -> dict[str, Any]:
        """What is not finite now."""
        parameters = self._parameters()
        kept = [(each, "", each) for each in parameters]
        for optimizer in self._live():
            for parameter, state in optimizer.state.items():
                kept += [
                    (parameter, f"{key} of ", value)
                    for key, value in (state.items() if isinstance(state, dict) else ())
                    if isinstance(value, torch.Tensor)
                ]
        bad = [(owner, before) for owner, before, value in kept if not finite(value)]
        known = names_of([owner for owner, _ in bad]) if bad else {}
        names = [f"{before}{known.get(id(owner), 'a parameter')}" for owner, before in bad]
        names += [
            f"{name} of {type(module).__name__}"
            for module in list(self._buffered)
            for name, value in module.named_buffers(recurse=False)
            if not finite(value)
        ]
        return {"bad": names[:NAMED], "n": len(names)}
