"""Torch's dispatcher: modes that see every operator, keys, kernels in Python, transforms."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import torch

from auditor.capture.instruments.torch_private.look_up import Absent, needed, on_instances, private

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
"""The mode on top of the stack. Without it: a watch of ours stays on the stack to the end, and
passes everything through.
"""

pop_dispatch_mode: Callable[[], Any] | None = private("torch.utils._python_dispatch._pop_mode")
"""Takes the top of the stack. Without it: as without :data:`dispatch_mode_now`."""

push_dispatch_mode: Callable[[Any], None] | None = private(
    "torch.utils._python_dispatch._push_mode"
)
"""Puts a mode of the user's back that came on top of ours. Without it: as without
:data:`dispatch_mode_now`.
"""

dispatch_modes: Callable[[], list[Any]] | None = private(
    "torch.utils._python_dispatch._get_current_dispatch_mode_stack"
)
"""The stack. Without it: as without :data:`dispatch_mode_now`."""

function_mode_now: Callable[[], Any] | None = private("torch.overrides._get_current_function_mode")
"""The same of modes over torch's functions. Without it: the watch stays on its stack, and passes
everything through.
"""

pop_function_mode: Callable[[], Any] | None = private("torch.overrides._pop_mode")
"""Takes the top of that stack. Without it: as without :data:`function_mode_now`."""

push_function_mode: Callable[[Any], None] | None = private("torch.overrides._push_mode")
"""Puts a mode back on it. Without it: as without :data:`function_mode_now`."""

function_modes: Callable[[], list[Any]] = private(
    "torch.overrides._get_current_function_mode_stack", list
)
"""That stack. Without it: empty, so a watch of ours stays on it, and a rehearsal knows of no
default device.
"""

count_function_modes: Callable[[], int] = private(
    "torch._C._len_torch_function_stack", lambda: len(function_modes())
)
"""How many modes over functions there are, at the price of no list. Without it: the list's
length.
"""

# -- operators -------------------------------------------------------------------------------------

schema_of: Callable[[Any], Any] = on_instances("torch._ops.OpOverload._schema")
"""An operator's schema: its name, its arguments, which of them it writes. None of a higher-order
operator, which has none. Without it: None, and :data:`HAS_SCHEMAS` says so."""

HAS_SCHEMAS: Final[bool] = schema_of(torch.ops.aten.add.Tensor) is not None
"""Operators have schemas. Where they do not, watches over operators raise Missing when they are
made.
"""

overload_of: Callable[[Any], str] = on_instances("torch._ops.OpOverload._overloadname", "")
"""``"Tensor"`` of ``aten::add.Tensor``, ``"default"`` of ``aten::mm``. Without it: empty, so a
rehearsal computes half-precision products by the CPU's slow kernels."""

has_kernel: Callable[[str, str], bool] = private(
    "torch._C._dispatch_has_kernel_for_dispatch_key", lambda operator, key: False
)
"""Whether ``"aten::mm"`` has a kernel of its own at ``"CPU"``. Without it: no, and results of a
rehearsal may differ from the CPU's in the last bits, where CUDA's key takes an operator apart."""

operator_names: Callable[[], list[str]] = private("torch._C._dispatch_get_all_op_names", list)
"""All operators. Without it: none, with the same consequence as without :data:`has_kernel`."""

_destroy: Callable[[Any], None] | None = private("torch.library.Library._destroy")


def destroy(library: Any) -> None:
    """Take back all kernels that were registered by a ``torch.library.Library``.

    Without ``Library._destroy``: torch does it when the library is collected, which is soon after
    its owner lets go of it.
    """
    if _destroy is not None:
        _destroy(library)


# -- what a shadow tensor is made of ---------------------------------------------------------------

DisableTorchFunctionSubclass: Any = needed("torch._C.DisableTorchFunctionSubclass")
"""Inside, tensor subclasses are taken for plain ones. Torch documents it, though only under
``torch._C``. Without it: no rehearsal, and no watch over operators.
"""

MODES_NEED: Final = ("torch._C.DisableTorchFunctionSubclass",)
"""Without it a watch over operators raises Missing when it is made."""

EnableTorchFunction: Any = private("torch._C._EnableTorchFunction", contextlib.nullcontext)
"""Inside, tensor subclasses are asked again although something around it forbids that. Without it:
what the program's own ``saved_tensors_hooks`` do in the forward pass is not followed."""

DispatchKey: Any = needed("torch._C.DispatchKey")
"""Names of the dispatcher's keys. Without it: no rehearsal."""

DispatchKeySet: Any = needed("torch._C.DispatchKeySet")
"""Sets of them. Without it: no rehearsal."""

keys_from_bits: Callable[[int], Any] | None = private("torch._C.DispatchKeySet.from_raw_repr")
"""A set of keys made of its bits; later than torch 2.6. Without it: None. An operator that asks
whether it is given a subclass is then recorded on the host's tensors also where torch's own kernel
would do, and inside a transform of ``torch.func`` refused by name."""

ExcludeDispatchKeys: Any = needed("torch._C._ExcludeDispatchKeyGuard")
"""Inside, operators pass the keys of a set by: autocast's own kernels would call themselves.
Without it: no rehearsal.
"""

make_subclass: Callable[..., Any] = needed("torch.Tensor._make_subclass")
"""A tensor of a subclass over another one's storage, with the keys of another device. Without it:
no rehearsal.
"""

REHEARSAL_NEEDS: Final = (
    "torch._C.DisableTorchFunctionSubclass",
    "torch._C.DispatchKey",
    "torch._C.DispatchKeySet",
    "torch._C._ExcludeDispatchKeyGuard",
    "torch.Tensor._make_subclass",
    "torch._C._group_tensors_by_device_and_dtype",
    "torch._C._swap_tensor_impl",
)
"""Without any of these a rehearsal does not start, and says which one it lacks."""

# -- transforms, trees, factories ------------------------------------------------------------------

is_functorch_wrapped: Callable[[Any], bool] = private(
    "torch._C._functorch.is_functorch_wrapped_tensor", lambda tensor: False
)
"""Whether a transform of ``torch.func`` wraps the tensor. Without it: no, so programs that use
transforms may not be rehearsed right.
"""

functorch_level: Callable[[], int | None] = private(
    "torch._C._functorch.maybe_current_level", lambda: None
)
"""The depth of transforms; None outside of them. Without it: None, with the same consequence."""


def _leaves(tree: Any) -> list[Any]:
    if isinstance(tree, (list, tuple)):
        return [leaf for each in tree for leaf in _leaves(each)]
    return (
        [leaf for each in tree.values() for leaf in _leaves(each)]
        if isinstance(tree, dict)
        else [tree]
    )


def _map_only(kind: type, function: Callable[[Any], Any], tree: Any) -> Any:
    if isinstance(tree, kind):
        return function(tree)
    if isinstance(tree, (list, tuple)):
        mapped = [_map_only(kind, function, each) for each in tree]
        return type(tree)(*mapped) if hasattr(tree, "_fields") else type(tree)(mapped)
    return (
        {key: _map_only(kind, function, each) for key, each in tree.items()}
        if isinstance(tree, dict)
        else tree
    )


tree_leaves: Callable[[Any], list[Any]] = private("torch.utils._pytree.tree_leaves", _leaves)
"""What lies in nested containers. Without it: in lists, tuples and dictionaries, not in containers
that the user registered.
"""

tree_map_only: Callable[..., Any] = private("torch.utils._pytree.tree_map_only", _map_only)
"""The same containers with each object of a kind replaced. Without it: as :data:`tree_leaves`."""

_FACTORIES: Final = (
    "arange as_tensor asarray bartlett_window blackman_window empty empty_permuted empty_quantized "
    "empty_strided eye from_file full hamming_window hann_window kaiser_window linspace logspace "
    "ones rand randint randn randperm range sparse_bsc_tensor sparse_bsr_tensor "
    "sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor tensor "
    "tril_indices triu_indices vander zeros"
)


made_on_default_device: Callable[[], set[Any]] = private(
    "torch.utils._device._device_constructors",
    lambda: {getattr(torch, name) for name in _FACTORIES.split() if hasattr(torch, name)},
)
"""Functions that make tensors on the default device. Without it: those of torch 2.13, by name."""

DeviceContext: Any = private("torch.utils._device.DeviceContext", ())
"""The mode of ``with torch.device(...)`` and of ``set_default_device``, for isinstance. Without it:
a rehearsal knows of no default device, and a program that sets one to CUDA fails in it."""
