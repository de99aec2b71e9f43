"""Methods of host tensors that reach the device, and whether torch asks an argument."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import overrides

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.dispatch import count_function_modes
from auditor.capture.shadow.copies import is_pinned, pin
from auditor.capture.shadow.functions import become
from auditor.capture.shadow.moving import as_type, moved
from auditor.capture.shadow.tensor import ShadowTensor, wrap

Tensor = torch.Tensor


def install(patches: Patches) -> None:
    """Patch ``torch.Tensor``, and the checks of torch functions written in Python."""
    for name, method in _methods().items():
        patches.attribute(Tensor, name, method)
    _install_checks(patches)
    backward: Any = torch.autograd.function.BackwardCFunction
    patches.attribute(backward, "apply", _with_device_gradients(backward.apply))


def _with_device_gradients(original: Callable[..., Any]) -> Callable[..., Any]:
    """The engine makes zeros for unused outputs on the C++ device: bring them to the others'."""

    def apply(self: Any, *gradients: Any) -> Any:
        if any(isinstance(one, ShadowTensor) for one in gradients):
            gradients = tuple(
                wrap(one.detach()) if type(one) is Tensor else one for one in gradients
            )
        return original(self, *gradients)

    return apply


def _methods() -> dict[str, Callable[..., Any] | property]:
    to: Any = Tensor.to
    kind: Any = Tensor.type

    def to_(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return moved(to, self, args, kwargs)

    def cuda_(
        self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None
    ) -> Tensor:
        more = {} if memory_format is None else {"memory_format": memory_format}
        target = "cuda" if device is None else device
        return moved(
            to, self, (target,), {"non_blocking": non_blocking, **more}, operator="Tensor.cuda"
        )

    def type_(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        return as_type(kind, self, *args, **kwargs)

    def pin_memory_(self: Tensor, device: Any = None) -> Tensor:
        if isinstance(self, ShadowTensor):
            raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")  # noqa: TRY004
        return pin(self)

    def is_pinned_(self: Tensor, device: Any = None) -> bool:
        return is_pinned(self)

    made = {
        "to": to_,
        "cuda": cuda_,
        "type": type_,
        "pin_memory": pin_memory_,
        "is_pinned": is_pinned_,
    }
    methods: dict[str, Callable[..., Any] | property] = {
        name: functools.wraps(getattr(Tensor, name))(method) for name, method in made.items()
    }
    methods["data"] = _data()
    return methods


def _data() -> property:
    """``p.data = shadow`` for a host tensor: torch sees two CPU tensors, keeping the class."""
    slot: Any = Tensor.data

    def get(self: Tensor) -> Tensor:
        return slot.__get__(self)  # type: ignore[no-any-return]

    def put(self: Tensor, value: Tensor) -> None:
        if isinstance(self, ShadowTensor) == isinstance(value, ShadowTensor):
            slot.__set__(self, value)
            if isinstance(self, ShadowTensor):
                assert isinstance(value, ShadowTensor)
                self._inner = value._inner
        else:
            become(self, value)

    return property(get, put)


def _install_checks(patches: Patches) -> None:
    """Let torch's Python functions run as they are on shadows, so that what they call is seen
    function by function.

    Otherwise ``Tensor.backward`` and all of ``torch.nn.functional`` would be one opaque call each,
    user hooks included.
    """
    checks = {
        id(check): make(check)
        for check, make in (
            (overrides.has_torch_function, _any_of),
            (overrides.has_torch_function_unary, _unary),
            (overrides.has_torch_function_variadic, _variadic),
        )
    }
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "torch" or module is None:
            continue
        if checks.keys().isdisjoint(map(id, vars(module).values())):
            continue
        for attribute, value in list(vars(module).items()):
            if id(value) in checks:
                patches.attribute(module, attribute, checks[id(value)])


def _modes() -> bool:
    return count_function_modes() > 0


def _any_of(original: Callable[..., bool]) -> Callable[..., bool]:
    def has_torch_function(values: Any) -> bool:
        return _modes() or original(
            tuple(value for value in values if not isinstance(value, ShadowTensor))
        )

    return has_torch_function


def _unary(original: Callable[..., bool]) -> Callable[..., bool]:
    def has_torch_function_unary(value: Any) -> bool:
        return _modes() or (not isinstance(value, ShadowTensor) and original(value))

    return has_torch_function_unary


def _variadic(original: Callable[..., bool]) -> Callable[..., bool]:
    def has_torch_function_variadic(*values: Any) -> bool:
        return _modes() or original(
            *(value for value in values if not isinstance(value, ShadowTensor))
        )

    return has_torch_function_variadic
