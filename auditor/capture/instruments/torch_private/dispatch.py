"""Torch's dispatcher: modes that see every operator, keys, kernels in Python, transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch

from auditor.capture.instruments.torch_private.look_up import (
    Absent,
    for_rehearsals,
    on_instances,
    private,
)

# -- modes -----------------------------------------------------------------------------------------

_MODE = "torch.utils._python_dispatch.TorchDispatchMode"


class NoDispatchMode:
    """Base of our watches where torch has no mode over operators: making one raises Missing."""

    def __init__(self) -> None:
        Absent(_MODE)()


if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode

    DispatchMode = TorchDispatchMode
else:
    DispatchMode = private(_MODE, NoDispatchMode)
    """Base of the watches over single operators. Without it: Missing when a watch is made, so its probe is one that failed."""

dispatch_mode_now: Callable[[], Any] | None = private(
    "torch.utils._python_dispatch._get_current_dispatch_mode"
)
"""The mode on top of the stack. Without it: a watch of ours stays there, and passes all on."""

pop_dispatch_mode: Callable[[], Any] | None = private("torch.utils._python_dispatch._pop_mode")
"""Takes the top of the stack. Without it: as without :data:`dispatch_mode_now`."""

push_dispatch_mode: Callable[[Any], None] | None = private(
    "torch.utils._python_dispatch._push_mode"
)
"""Puts back a mode of the user's on top of ours. Without it: as :data:`dispatch_mode_now`."""

dispatch_modes: Callable[[], list[Any]] | None = private(
    "torch.utils._python_dispatch._get_current_dispatch_mode_stack"
)
"""The stack. Without it: as without :data:`dispatch_mode_now`."""

function_mode_now: Callable[[], Any] | None = private("torch.overrides._get_current_function_mode")
"""The innermost mode over functions. Without it: the watch stays, and passes every call on."""

pop_function_mode: Callable[[], Any] | None = private("torch.overrides._pop_mode")
"""Takes the top of that stack. Without it: as without :data:`function_mode_now`."""

push_function_mode: Callable[[Any], None] | None = private("torch.overrides._push_mode")
"""Puts a mode back on it. Without it: as without :data:`function_mode_now`."""

function_modes: Callable[[], list[Any]] = private(
    "torch.overrides._get_current_function_mode_stack", list
)
"""That stack. Without it: empty; a watch stays on it, and no default device is known."""

count_function_modes: Callable[[], int] = for_rehearsals("torch._C._len_torch_function_stack")
"""How many modes over functions there are, at the price of no list."""

# -- operators -------------------------------------------------------------------------------------

schema_of: Callable[[Any], Any] = on_instances("torch._ops.OpOverload._schema")
"""An operator's schema: its name, its arguments, which of them it writes. None of a higher-order
operator, which has none. Without it: None, and :data:`HAS_SCHEMAS` says so."""

HAS_SCHEMAS: Final[bool] = schema_of(torch.ops.aten.add.Tensor) is not None
"""Operators have schemas. Without: watches over operators raise Missing when they are made."""

overload_of: Callable[[Any], str] = on_instances("torch._ops.OpOverload._overloadname", "")
"""``"Tensor"`` of ``aten::add.Tensor``, ``"default"`` of ``aten::mm``. Without it: empty, so a
rehearsal computes half-precision products by the CPU's slow kernels."""

has_kernel: Callable[[str, str], bool] = for_rehearsals(
    "torch._C._dispatch_has_kernel_for_dispatch_key"
)
"""Whether ``"aten::mm"`` has a kernel of its own at ``"CPU"``."""

operator_names: Callable[[], list[str]] = for_rehearsals("torch._C._dispatch_get_all_op_names")
"""All operators."""

_destroy: Callable[[Any], None] | None = private("torch.library.Library._destroy")


def destroy(library: Any) -> None:
    """Take back all kernels that were registered by a ``torch.library.Library``.

    Without ``Library._destroy``: torch does it when the library is collected, which is soon after
    its owner lets go of it.
    """
    if _destroy is not None:
        _destroy(library)


# -- what a shadow tensor is made of ---------------------------------------------------------------

DisableTorchFunctionSubclass: Any = for_rehearsals("torch._C.DisableTorchFunctionSubclass")
"""Inside, tensor subclasses are taken for plain ones. Torch documents it, though only under
``torch._C``. Without it also: no watch over operators.
"""

MODES_NEED: Final = ("torch._C.DisableTorchFunctionSubclass",)
"""Without it a watch over operators raises Missing when it is made."""

EnableTorchFunction: Any = for_rehearsals("torch._C._EnableTorchFunction")
"""Inside, tensor subclasses are asked again although something around it forbids that: for what the
program's own ``saved_tensors_hooks`` do in the forward pass.
"""

DispatchKey: Any = for_rehearsals("torch._C.DispatchKey")
"""Names of the dispatcher's keys."""

DispatchKeySet: Any = for_rehearsals("torch._C.DispatchKeySet")
"""Sets of them."""

keys_from_bits: Callable[[int], Any] = for_rehearsals("torch._C.DispatchKeySet.from_raw_repr")
"""A set of keys made of its bits."""

ExcludeDispatchKeys: Any = for_rehearsals("torch._C._ExcludeDispatchKeyGuard")
"""Inside, operators pass the keys of a set by: autocast's own kernels would call themselves."""

make_subclass: Callable[..., Any] = for_rehearsals("torch.Tensor._make_subclass")
"""A tensor of a subclass over another one's storage, with the keys of another device."""

# -- transforms, trees, factories ------------------------------------------------------------------

is_functorch_wrapped: Callable[[Any], bool] = for_rehearsals(
    "torch._C._functorch.is_functorch_wrapped_tensor"
)
"""Whether a transform of ``torch.func`` wraps the tensor."""

functorch_level: Callable[[], int | None] = for_rehearsals(
    "torch._C._functorch.maybe_current_level"
)
"""The depth of transforms; None outside of them."""

tree_leaves: Callable[[Any], list[Any]] = for_rehearsals("torch.utils._pytree.tree_leaves")
"""What lies in nested containers."""

tree_map_only: Callable[..., Any] = for_rehearsals("torch.utils._pytree.tree_map_only")
"""The same containers with each object of a kind replaced."""

made_on_default_device: Callable[[], set[Any]] = for_rehearsals(
    "torch.utils._device._device_constructors"
)
"""Functions that make tensors on the default device."""

DeviceContext: Any = for_rehearsals("torch.utils._device.DeviceContext")
"""The mode of ``with torch.device(...)`` and of ``set_default_device``, for isinstance."""
