"""What device memory is for: addresses of parameters, gradients, state, and when seen."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from auditor.capture.probes.optim.optimizer_hooks import OptimizerProbe
from auditor.recordings.schema.sync import OwnerRow

PARAMETER, GRADIENT, STATE = "parameter", "gradient", "optimizer state"
WORKSPACE = "workspace"
PART = "owners"


class AllocationOwnersProbe(OptimizerProbe):
    """Writes ``owners`` for the passes whose allocations are recorded (memory on a GPU, all of a
    rehearsal and on the null device).

    Looks at each optimizer's step, when all gradients are there; reads addresses, never values.
    Anything may lie elsewhere at the next step, so every step writes all.
    """

    name = "owners"
    parts = (PART,)
    passes = frozenset({"warmup", "loud", "memory"})
    always = True
    in_rehearsals = True

    def install(self) -> None:
        """Notice steps if this torch could have a device."""
        if self.context.device.shadow or torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
            super().install()

    def start(self) -> None:
        if self.context.device.shadow or self.context.history:  # allocations are recorded then
            super().start()

    def step_begin(self) -> None:
        """Mark where the step begins in the history of allocations."""
        if self.watching:
            self.context.add(OwnerRow(what="step", time_us=now_us(), addresses=[]))

    def before_optimizer(self, optimizer: Optimizer) -> None:
        if not self.watching:
            return
        with contextlib.suppress(Exception):  # the groups are the user's
            parameters = [each for group in optimizer.param_groups for each in group["params"]]
            self._write(PARAMETER, parameters)
            self._write(GRADIENT, [each.grad for each in parameters if each.grad is not None])

    def after_optimizer(self, optimizer: Optimizer) -> None:
        if not self.watching:
            return
        with contextlib.suppress(Exception):  # the same
            self._write(STATE, list(_tensors(optimizer.state.values())))
        if self.context.shadow is not None and self.context.shadow.memory.workspaces:
            addresses = sorted(self.context.shadow.memory.workspaces)
            self.context.add(OwnerRow(what=WORKSPACE, time_us=now_us(), addresses=addresses))

    def _write(self, what: str, tensors: list[torch.Tensor]) -> None:
        found = sorted({address for each in tensors if (address := self._address(each))})
        if found:
            self.context.add(OwnerRow(what=what, time_us=now_us(), addresses=found))

    def _address(self, tensor: torch.Tensor) -> int:
        """Where the tensor's storage begins on the device; 0 if it is not on one."""
        if self.context.shadow is not None:
            return self.context.shadow.address_of(tensor)
        return (
            tensor.untyped_storage().data_ptr()
            if tensor.device.type == self.context.device.kind
            else 0
        )


def now_us() -> int:
    """Time as memory snapshots have it: us since 1970."""
    return time.time_ns() // 1000


def _tensors(states: Iterable[Any]) -> Iterator[torch.Tensor]:
    """Tensors in the state of each parameter, one level of lists deep (L-BFGS keeps lists)."""
    for state in states:
        for value in state.values() if isinstance(state, dict) else ():
            yield from (
                each
                for each in (value if isinstance(value, list) else [value])
                if isinstance(each, torch.Tensor)
            )
