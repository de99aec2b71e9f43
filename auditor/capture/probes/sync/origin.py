"""Origin: was a value that the host reads computed on the training device? Decides what a GPU run
would wait for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nn.modules import module as modules
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.overrides import TorchFunctionMode

from auditor.capture.instruments.dispatch_modes import leave_function
from auditor.capture.instruments.module_stack import keep_hooks
from auditor.capture.instruments.monkeypatch import LOOKING
from auditor.capture.instruments.plain_tensor import tensors
from auditor.capture.instruments.torch_private.dispatch import (
    has_default_device,
    made_on_default_device,
)
from auditor.capture.instruments.torch_private.training import own_buffers, own_parameters
from auditor.capture.probes.base import Context
from auditor.capture.probes.operator_probe import OperatorProbe
from auditor.capture.probes.operator_stream import Call, Subscriber
from auditor.capture.probes.sync.origin_marks import DERIVED, HOST, HOST_DEVICE, Origins, activate
from auditor.capture.probes.sync.reads_source import says_cpu
from auditor.capture.probes.sync.reads_stack import Stack

# -- origin modes ----------------------------------------------------------------------------------
# What the origin pass watches: births of tensors (a function mode), and what is computed from what
# (the stream of operators).

OnError = Callable[[Exception], None]

_NEW: Final = frozenset(
    {"new", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_tensor", "new_zeros"}
)
_FROM_HOST: Final = frozenset({"from_numpy", "frombuffer"})
_COPIES: Final = frozenset({"copy", "foreach_copy", "set"})
"""Writing into a tensor does not move it: a host buffer stays one."""
_MIXED_DEVICES: Final = ("index", "copy", "pack", "ctc", "set_", "segment", "_like")
"""Parts of names of operators that take host tensors beside device tensors."""
_HOST_OUTPUTS: Final = {"pack_padded_sequence": 1}
"""Operators one of whose outputs is a host tensor on every device."""


class Births(TorchFunctionMode):
    """Marks new tensors by the device that the source asks for, and makes ``.device`` of host
    tensors recognisable.
    """

    def __init__(self, origins: Origins, stack: Stack, on_error: OnError) -> None:
        super().__init__()
        self._origins = origins
        self._stack = stack
        self._on_error = on_error
        self._process = os.getpid()
        self._factories = frozenset(made_on_default_device())
        self.live = True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if LOOKING.depth or not self.live or os.getpid() != self._process:
            return result
        try:
            return self._seen(func, args, kwargs, result)
        except Exception as error:  # the user's step goes on whatever we got wrong
            self._on_error(error)
            return result

    def _seen(self, func: Any, args: Any, kwargs: dict[str, Any], result: Any) -> Any:
        name = getattr(func, "__name__", "")
        if name == "__get__":
            return self._device_of(func, args, result)
        if not isinstance(result, torch.Tensor):
            return result
        factory = name in _FROM_HOST or func in self._factories
        if kwargs.get("device") is not None and (factory or name in _NEW or name.endswith("_like")):
            self._asked(result, kwargs["device"])
        elif name in _NEW:
            self._like(result, args[0])
        elif factory:
            self._unasked(result, host_source=name in _FROM_HOST)
        return result

    def _device_of(self, func: Any, args: Any, result: Any) -> Any:
        if func.__self__ is not torch.Tensor.device or result != HOST_DEVICE:
            return result
        return result if self._origins.derived(args[0]) else HOST_DEVICE

    def _asked(self, tensor: torch.Tensor, device: Any) -> None:
        if tensor.device.type != "cpu":
            return
        caller = self._stack.caller(sys._getframe(1))
        host = device is HOST_DEVICE or (caller is not None and says_cpu(caller))
        self._origins.mark(tensor, HOST if host else DERIVED)

    def _like(self, tensor: torch.Tensor, model: torch.Tensor) -> None:
        if self._origins.derived(model):
            self._origins.mark(tensor, DERIVED)
        elif self._origins.state(model) is HOST:
            self._origins.mark(tensor, HOST)

    def _unasked(self, tensor: torch.Tensor, *, host_source: bool) -> None:
        if self._origins.state(tensor) is not None:
            return
        on_device = has_default_device() and not host_source
        self._origins.mark(tensor, DERIVED if on_device else HOST)


class Propagation(Subscriber):
    """Marks what operators compute from marked tensors."""

    higher_order = True

    def __init__(self, origins: Origins, on_error: OnError) -> None:
        super().__init__(on_error)
        self._origins = origins

    def before(self, call: Call) -> tuple[bool, list[torch.Tensor] | None]:
        """Whether its result is derived, and what ran around it."""
        origins, around = self._origins, self._origins.computing
        derived = any(map(origins.derived, call.given))
        inside = derived and call.operator.namespace == "aten"
        origins.computing = call.given if inside else None
        return derived, around

    def after(self, call: Call, noted: tuple[bool, list[torch.Tensor] | None]) -> None:
        derived, self._origins.computing = noted
        self._spread(call, derived=derived)

    def raised(self, noted: tuple[bool, list[torch.Tensor] | None]) -> None:
        self._origins.computing = noted[1]

    def _spread(self, call: Call, *, derived: bool) -> None:
        if not call.given or call.operator.name in _COPIES:
            return
        if derived:
            self._derive(call)
        elif all(self._origins.state(tensor) is HOST for tensor in call.given):
            for tensor in call.made:
                self._origins.mark(tensor, HOST)

    def _derive(self, call: Call) -> None:
        result = call.result
        host = _HOST_OUTPUTS.get(call.operator.name, -1)
        for index, output in enumerate(result if isinstance(result, (tuple, list)) else (result,)):
            for tensor in tensors((output,)):
                self._origins.mark(tensor, HOST if index == host else DERIVED)
        for tensor in call.written:
            self._origins.mark(tensor, DERIVED)
        self._same_device(call.operator.own_name, call.given)

    def _same_device(self, name: str, inputs: list[torch.Tensor]) -> None:
        """On a GPU the inputs of an operator stand on one device, but for 0-d tensors and a few
        operators.

        So a tensor that was there before this pass began (data kept on the device) shows where it
        lives.
        """
        origins = self._origins
        one_device = not any(part in name for part in _MIXED_DEVICES)
        promote = one_device and any(tensor.dim() and origins.derived(tensor) for tensor in inputs)
        for tensor in inputs:
            of_model = tensor.requires_grad or isinstance(tensor, torch.nn.Parameter)
            if of_model or (promote and tensor.dim() and origins.state(tensor) is None):
                origins.mark(tensor, DERIVED)


# -- origin ----------------------------------------------------------------------------------------


class OriginProbe(OperatorProbe):
    """Runs beside :class:`auditor.capture.probes.sync.reads.ReadsProbe` in the ``origin`` pass;
    gives its rows the field ``derived``.

    Derived are parameters and buffers, what was moved by ``.to(device)`` or made with ``device=``
    where the source does not write ``"cpu"``, and whatever is computed from them. It slows the step
    several times and changes no result.
    """

    name = "origin"
    parts = ("reads",)
    passes = frozenset({"origin"})
    after = ("reads",)  # over whose kernels the modes are entered
    unseen = "the origin of some values is unknown"

    def __init__(self, context: Context) -> None:
        super().__init__(context)
        self.origins = Origins()

    def watch(self) -> None:
        self.origins = Origins()
        self._patches.on_undo(activate(self.origins))
        keep_hooks(self._patches, modules.register_module_forward_pre_hook(self._module_called))
        self._patches.on_undo(register_optimizer_step_pre_hook(self._optimizer_steps).remove)
        births = Births(self.origins, Stack(self.context.frames), self.fail)
        births.__enter__()  # type: ignore[no-untyped-call]  # torch's own, without annotations
        self._patches.on_undo(lambda: leave_function(births))
        self.enter(Propagation(self.origins, self.fail))

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

    def step_end(self) -> None:
        self.origins.prune()
