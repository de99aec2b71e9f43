"""Where torch takes another path for a shadow than for a host tensor: the host's path is taken, so
that the bits are its.

Three reasons, each found by running torch's own samples of every operator on both:

- An operator has a kernel for each device *and* one made of other operators (``silu_backward``). A
  build without CUDA has none at CUDA's key and would take it apart there: :func:`kept_whole`.
- A composite asks ``isTensorSubclassLike`` (ATen/TensorSubclassLikeUtils.h), which is true of a
  shadow, and computes something else then; or a backward formula asks it
  (torch/csrc/autograd/FunctionsManual.cpp). Both are in :data:`ASK`: without a graph they run whole
  on what is behind the shadows; with one torch records them there, between :class:`_Behind` and
  :class:`_InFront`, so that its own formulas see host tensors.
- ``matmul`` asks it too, and is too frequent for that: :func:`alike` gives it what the host's path
  makes first.

Others ask as well and compute the same (``add`` in place of ``add_``): they are left alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.autograd import forward_level
from auditor.capture.instruments.torch_private.dispatch import (
    DisableTorchFunctionSubclass,
    DispatchKey,
    DispatchKeySet,
    destroy,
    has_kernel,
    is_functorch_wrapped,
    keys_from_bits,
    operator_names,
    tree_leaves,
    tree_map_only,
)
from auditor.capture.shadow import attention, dropout
from auditor.capture.shadow.current import PLAYING, refuse, tell
from auditor.capture.shadow.operators import look, run, weighted_and_smoothed
from auditor.capture.shadow.registering import overload, register
from auditor.capture.shadow.tensor import ShadowTensor, wrap

Tensor = torch.Tensor

ASK: Final = (
    "linalg_eigvals",  # BatchLinearAlgebra.cpp: with the eigenvectors
    "linalg_eigvalsh",
    "linalg_svdvals",
    # FunctionsManual.cpp, prod_backward: by the longer way, which is safe where there are zeros
    "prod",
    "prod.dim_int",
    "cumprod",  # cumprod_backward, where a graph of the gradient is made
    "_linalg_det",  # linalg_det_backward, the same
    "masked_fill.Tensor",  # masked_fill_backward of the value: a sum with the zeros in it
    # LossNLL.cpp, with weights and label smoothing: the weights are summed with zeros in them
    "cross_entropy_loss",
)
"""Operators that ask, and whose results or gradients differ for it."""

ASK_FORWARD: Final = ("native_layer_norm", "native_batch_norm", "native_group_norm")
"""Operators whose forward-mode derivative asks; too frequent to be looked at before the program
takes one.
"""


def install(patches: Patches) -> None:
    """Register what keeps to the host's path."""
    library = torch.library.Library("aten", "IMPL")
    patches.on_undo(lambda: destroy(library))
    for name in kept_whole():
        register(library, name, _kernel_at_cuda(overload(name)), "CUDA")
    for name in ASK:
        _ask_the_host(library, name)
    dropout.install(library)
    attention.install(library)
    asked: list[str] = []

    def enter_dual_level(original: Callable[..., Any]) -> Any:
        if not asked:
            asked.extend(ASK_FORWARD)
            for name in ASK_FORWARD:
                _ask_the_host(library, name)
        return original()

    level: Any = torch.autograd.forward_ad.enter_dual_level
    patches.code(level, enter_dual_level)


def _ask_the_host(library: Any, name: str) -> None:
    operator = overload(name)
    if operator is not None:
        register(
            library, name, _kernel_at_autograd(operator, name), "AutogradCUDA", with_keyset=True
        )


@cache
def kept_whole() -> tuple[str, ...]:
    """Operators with a kernel for the CPU, none for CUDA, and one made of others, which CUDA's key
    would take.
    """
    names = [name for name in operator_names() if name.startswith("aten::")]
    found = [
        name
        for name in names
        if has_kernel(name, "CompositeImplicitAutograd")
        and has_kernel(name, "CPU")
        and not has_kernel(name, "CUDA")
    ]
    return tuple(sorted(name.removeprefix("aten::") for name in found))


def _kernel_at_cuda(operator: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: run(operator, args, kwargs)


def _kernel_at_autograd(operator: Any, name: str) -> Callable[..., Any]:
    composite = has_kernel(f"aten::{name}", "CompositeImplicitAutograd")

    def kernel(keys: Any, *args: Any, **kwargs: Any) -> Any:
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        # what a transform wraps answers yes on every device
        wrapped = any(is_functorch_wrapped(one) for one in given)
        if (
            wrapped
            or (name in ASK_FORWARD and not _has_tangent(given))
            or (name == "cross_entropy_loss" and not weighted_and_smoothed(args))
        ):
            if composite:
                return operator.decompose(*args, **kwargs)
            if keys_from_bits is not None:
                return operator.redispatch(_as_cpu(keys, keys_from_bits), *args, **kwargs)
            if wrapped:
                refuse(
                    f"aten::{name}",
                    "this version of torch cannot play it inside a transform of torch.func",
                )
        with DisableTorchFunctionSubclass():
            if not (
                (torch.is_grad_enabled() and any(one.requires_grad for one in given))
                or _has_tangent(given)
            ):
                return run(operator, args, kwargs)
            look(operator, args, kwargs)
            wait = _backward_wait(name, args)
            behind = tree_map_only(ShadowTensor, _Behind.apply, (args, kwargs))
            with _held():
                results = operator(*behind[0], **behind[1])
            return tree_map_only(Tensor, lambda one: _InFront.apply(one, wait), results)  # type: ignore[no-untyped-call]

    return kernel


def _as_cpu(keys: Any, from_bits: Callable[[int], Any]) -> Any:
    """The call's keys with the CPU in CUDA's place: there autograd's kernel is still registered."""
    cpu, cuda = (
        DispatchKeySet(DispatchKey.CPU).raw_repr(),
        DispatchKeySet(DispatchKey.CUDA).raw_repr(),
    )
    return from_bits(keys.raw_repr() & ~(cpu ^ cuda) | (cpu & ~cuda))


def _has_tangent(given: list[Tensor]) -> bool:
    forward = torch.autograd.forward_ad
    return forward_level() >= 0 and any(
        forward.unpack_dual(one).tangent is not None for one in given
    )


_BACKWARD_WAITS: Final = {
    # FunctionsManual.cpp: where are zeros? prod_backward, cumprod_backward
    "prod": ("nonzero", 0),
    "prod.dim_int": ("item", 0),
    "cumprod": ("item", 0),
    "masked_fill.Tensor": ("masked_select", 2),  # masked_fill_backward: what the value filled
}
"""Operator -> the kind of wait in its backward, and the argument that must have asked for one."""


def _backward_wait(name: str, args: tuple[Any, ...]) -> tuple[str, str] | None:
    """Kind and operator of the wait in the backward of this call; None: it has none."""
    kind, which = _BACKWARD_WAITS.get(name, ("", 0))
    learned = args[which] if which < len(args) else None
    if not kind or learned is None or not learned.requires_grad:
        return None
    if which == 0 and not learned.dim():  # a formula of its own
        return None
    return kind, f"aten::{name.partition('.')[0]}"


def _held() -> contextlib.AbstractContextManager[Any]:
    """What the graph keeps of host tensors lies on the device: followed as such where memory is."""
    playing = PLAYING[0]
    if playing is None or not playing.listener.tracks_memory:
        return contextlib.nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(wrap, lambda shadow: shadow._inner)


class _Behind(torch.autograd.Function):
    """From a shadow to the host tensor behind it."""

    @staticmethod
    def forward(ctx: Any, shadow: ShadowTensor) -> Tensor:
        return shadow._inner.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return _InFront.apply(grad)  # type: ignore[no-any-return,no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:  # type: ignore[override]
        return _Behind.apply(tangent) if isinstance(tangent, ShadowTensor) else tangent  # type: ignore[no-any-return,no-untyped-call]


class _InFront(torch.autograd.Function):
    """From a host tensor to the shadow of it."""

    @staticmethod
    def forward(ctx: Any, host: Tensor, wait: tuple[str, str] | None = None) -> ShadowTensor:
        ctx.wait = wait
        return wrap(host.detach())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        if ctx.wait is not None:
            kind, operator = ctx.wait
            tell(kind, operator, 8, "d2h")
        with DisableTorchFunctionSubclass():
            return _Behind.apply(grad) if isinstance(grad, ShadowTensor) else grad, None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None = None) -> Tensor:  # type: ignore[override]
        return _InFront.apply(tangent)  # type: ignore[no-any-return,no-untyped-call]


def alike(left: Any, right: Any) -> tuple[Any, Any]:
    """LinearAlgebra.cpp, _matmul_impl: one matrix against a batch is folded for a subclass, and
    without a graph for no other.
    """
    if not (
        isinstance(left, ShadowTensor)
        and isinstance(right, Tensor)
        and left.dim() == right.dim() == 3
    ):
        return left, right
    if left.shape[0] == 1 != right.shape[0] and not left.requires_grad:
        return left.expand(right.shape[0], -1, -1), right
    if right.shape[0] == 1 != left.shape[0] and not right.requires_grad:
        return left, right.expand(left.shape[0], -1, -1)
    return left, right
