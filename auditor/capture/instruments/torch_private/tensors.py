"""What tensors and storages do not tell in public: owners, versions, sparse parts, exchange."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter, methodcaller
from typing import Any, Final

import torch

from auditor.capture.instruments.torch_private.look_up import (
    Missing,
    for_rehearsals,
    on_instances,
    private,
)

Tensor = torch.Tensor


def _attribute(path: str, otherwise: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return otherwise if private(path) is None else attrgetter(path.rpartition(".")[2])


def _missing(path: str) -> Callable[[Any], Any]:
    def read(instance: Any) -> Any:
        raise Missing(path)

    return read


# -- identity --------------------------------------------------------------------------------------

key_of: Callable[[torch.UntypedStorage], int] = _attribute(
    "torch.UntypedStorage._cdata", methodcaller("data_ptr")
)
"""The address of the C++ storage: one for all views of it, as long as it lives. Without it: that of
its bytes, which empty storages share."""

base_of: Callable[[Tensor], Tensor | None] = _attribute("torch.Tensor._base", lambda tensor: None)
"""The tensor that a view was made of. Without it: None; views weigh as a graph's own."""

version_of: Callable[[Tensor], int] = _attribute(
    "torch.Tensor._version", _missing("torch.Tensor._version")
)
"""How often a tensor was written in place. Without it: Missing, as are probes of versions."""

has_hooks: Callable[[Tensor], Any] = _attribute("torch.Tensor._backward_hooks", lambda tensor: True)
"""Whether hooks of the program run as a gradient reaches a leaf. Without it: they may, and
gradients are compared at the model's outputs.
"""

version_hint: Callable[[Tensor], int] = _attribute("torch.Tensor._version", lambda tensor: 0)
"""Version counter for callers that compare values as well. Without it: always 0."""


def fix_weakref(found: Any) -> None:
    """Tell torch that a weak reference brought a tensor or storage back that only C++ still held.

    Without ``_fix_weakref``: nothing to tell, in a torch that keeps the Python object alive by
    itself.
    """
    if isinstance(found, _FIXABLE):
        found._fix_weakref()  # type: ignore[union-attr]


_FIXABLE: Final = tuple(
    kind
    for kind in (Tensor, torch.UntypedStorage)
    if private(f"torch.{kind.__name__}._fix_weakref") is not None
)

# -- parts -----------------------------------------------------------------------------------------

stored_values: Callable[[Tensor], Tensor] = (
    methodcaller("_values")
    if private("torch.Tensor._values") is not None
    else lambda tensor: tensor.coalesce().values()
)
"""The values of a sparse COO tensor as they are stored. Without it: those of a coalesced copy."""

stored_indices: Callable[[Tensor], Tensor] = (
    methodcaller("_indices")
    if private("torch.Tensor._indices") is not None
    else lambda tensor: tensor.coalesce().indices()
)
"""The indices of it. Without it: those of a coalesced copy."""

_untyped: Callable[[Any], Any] = on_instances("torch.TypedStorage._untyped_storage")


def untyped(storage: Any) -> Any:
    """The storage of bytes inside a typed one; itself where it has no type. Without
    ``_untyped_storage``: itself, so a tensor of a checkpoint in an old format stays on the host of
    a rehearsal.
    """
    inner = _untyped(storage)
    return storage if inner is None else inner


# -- many at once ----------------------------------------------------------------------------------

flatten: Callable[[Any], Tensor] = private(
    "torch._C._nn.flatten_dense_tensors",
    lambda tensors: torch.cat([tensor.reshape(-1) for tensor in tensors]),
)
"""All elements of several tensors in one. Without it: by ``torch.cat``, which is slower."""


norms: Callable[[list[Tensor]], Any] = private(
    "torch._foreach_norm", lambda tensors: [torch.linalg.vector_norm(tensor) for tensor in tensors]
)
"""The Euclidean norm of each tensor. Without it: one by one, several times slower."""

foreach_copy: Any = for_rehearsals("torch._foreach_copy_")
"""Copies a list of tensors into another; compared, not called."""

# -- printing --------------------------------------------------------------------------------------

tensor_printing: Any = private("torch._tensor_str")
"""The module that prints tensors. Without it: None, and printing counts as its reads."""

print_tensor: Callable[..., str] | None = private("torch._tensor_str._str")
"""Its function that does. Without it: None, as :data:`tensor_printing`."""

# -- for tensors of the shadow ---------------------------------------------------------------------

functions: Any = private("torch._C._VariableFunctions", torch)
"""Torch's functions as C has them, before Python wraps a few. Without it: torch itself."""

pack_padded: Any = for_rehearsals("torch._C._VariableFunctions._pack_padded_sequence")
"""What ``pack_padded_sequence`` calls; compared, not called."""

pad_packed: Any = for_rehearsals("torch._C._VariableFunctions._pad_packed_sequence")
"""What ``pad_packed_sequence`` calls; compared, not called."""

compatible_shallow_copy: Any = for_rehearsals("torch._has_compatible_shallow_copy_type")
"""What ``Module._apply`` asks before it sets ``data``; compared, not called."""

swap: Callable[[Tensor, Tensor], None] = for_rehearsals("torch._C._swap_tensor_impl")
"""Lets two tensors change places in C++. ``torch.utils.swap_tensors`` also changes their classes
and attributes, and refuses those with weak references.
"""

rebuild_parameter: Any = for_rehearsals("torch._utils._rebuild_parameter")
"""What a checkpoint calls to make a parameter of tensor, requires_grad and hooks."""

rebuild_tensor: Any = for_rehearsals("torch._utils._rebuild_tensor_v2")
"""What a checkpoint calls to make a tensor."""

locations: list[tuple[int, Any, Any]] = for_rehearsals("torch.serialization._package_registry")
"""Where ``torch.save`` and ``torch.load`` look up where storages lie: priority, tagger, restorer."""
