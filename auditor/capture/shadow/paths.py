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
import functools
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
    ExcludeDispatchKeys,
    destroy,
    has_kernel,
    is_functorch_wrapped,
    keys_from_bits,
    operator_names,
    schema_of,
    tree_leaves,
    tree_map_only,
)
from auditor.capture.instruments.torch_private.tensors import base_of
from auditor.capture.shadow import operators
from auditor.capture.shadow.current import PLAYING, tell
from auditor.capture.shadow.operators import look, overload, register, run, weighted_and_smoothed
from auditor.capture.shadow.tensor import ShadowTensor, wrap

Tensor = torch.Tensor


# -- autocast --------------------------------------------------------------------------------------
# torch's own kernels at its dispatch key leave a shadow alone: they ask its C++ device. The same
# lists (ATen/autocast_mode.h, torch 2.13; names that a version lacks are left out) are registered
# with kernels in Python.


def _names(text: str) -> list[str]:
    return text.split()


LOWER: Final = _names(
    """
    _convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
    conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm
    bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell
    rnn_relu_cell _scaled_dot_product_flash_attention scaled_dot_product_attention
    """
)
FP32: Final = _names(
    """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar pow.Tensor_Tensor
    pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim nuclear_norm
    nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d hinge_embedding_loss
    kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss
    triplet_margin_loss multi_margin_loss binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp
    upsample_nearest1d _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
    _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
    upsample_bicubic2d _upsample_bicubic2d_aa
    """
)
FP32_BY_DTYPE: Final = _names(
    """
    prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
    linalg_matrix_norm.str_ord sum sum.dim_IntList
    """
)
WIDEST: Final = _names(
    """
    addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
    """
)
APPEND_DTYPE: Final = {
    "norm.Scalar": "norm.ScalarOpt_dtype",
    "norm.ScalarOpt_dim": "norm.ScalarOpt_dim_dtype",
}

_TO: Final = Tensor.to
_casts: dict[int, tuple[Tensor, Tensor]] = {}
"""Parameters cast in this autocast block; cleared where torch clears its own."""


def install_autocast(patches: Patches) -> None:
    """Register the lists, and clear our casts with torch's."""
    library = torch.library.Library("aten", "IMPL")
    patches.on_undo(lambda: destroy(library))
    patches.on_undo(_casts.clear)
    policies = ((LOWER, _lower), (FP32, _fp32), (FP32_BY_DTYPE, _fp32_by_dtype), (WIDEST, _widest))
    for names, policy in policies:
        for name in names:
            _register(library, name, policy)
    for name, other in APPEND_DTYPE.items():
        _register(library, name, functools.partial(_append_dtype, other=overload(other)))
    clear = torch.clear_autocast_cache

    def clear_both() -> None:
        _casts.clear()
        clear()

    patches.attribute(torch, "clear_autocast_cache", clear_both)


def _register(library: Any, name: str, policy: Callable[..., Any]) -> None:
    operator = overload(name)
    if operator is None:
        return

    keys = DispatchKeySet(DispatchKey.AutocastCUDA)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with ExcludeDispatchKeys(keys):
            return policy(operator, args, kwargs)

    register(library, name, kernel, "AutocastCUDA")


def _lower(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    dtype = torch.get_autocast_dtype("cuda")
    return operator(*_cast(args, dtype), **_cast(kwargs, dtype))


def _fp32(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return operator(*_cast(args, torch.float32), **_cast(kwargs, torch.float32))


def _fp32_by_dtype(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    at = next(
        i for i, argument in enumerate(schema_of(operator).arguments) if argument.name == "dtype"
    )
    said = args[at] if len(args) > at else kwargs.get("dtype")
    if said is None and isinstance(args[0], ShadowTensor) and args[0].is_floating_point():
        args, kwargs = args[:at], {**kwargs, "dtype": torch.float32}
    return operator(*args, **kwargs)


def _widest(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    flat = [
        one
        for arg in (*args, *kwargs.values())
        for one in (arg if isinstance(arg, (list, tuple)) else (arg,))
    ]
    wide = any(isinstance(one, ShadowTensor) and one.dtype == torch.float32 for one in flat)
    dtype = torch.float32 if wide else torch.get_autocast_dtype("cuda")
    return operator(*_cast(args, dtype), **_cast(kwargs, dtype))


def _append_dtype(
    operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, other: Any
) -> Any:
    if args[0].is_floating_point() and args[0].dtype in (torch.float16, torch.bfloat16):
        filled = [
            *args,
            *(
                kwargs.get(a.name, a.default_value)
                for a in schema_of(operator).arguments[len(args) :]
            ),
        ]
        return other(*filled, dtype=torch.float32)
    return operator(*args, **kwargs)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, ShadowTensor):
        return _cast_tensor(value, dtype)
    if isinstance(value, (list, tuple)):
        return [_cast(one, dtype) for one in value]
    if isinstance(value, dict):
        return {key: _cast(one, dtype) for key, one in value.items()}
    return value


def _cast_tensor(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """As ``cached_cast``: leaves with gradients once a block, doubles and integers never."""
    with DisableTorchFunctionSubclass():
        if tensor.dtype in (dtype, torch.float64) or not tensor.is_floating_point():
            return tensor
        keep = (
            dtype == torch.get_autocast_dtype("cuda")
            and tensor.dtype == torch.float32
            and tensor.requires_grad
            and tensor.is_leaf
            and base_of(tensor) is None
            and torch.is_autocast_cache_enabled()
        )
        if not keep:
            return _TO(tensor, dtype)
        if id(tensor) not in _casts:
            _casts[id(tensor)] = tensor, _TO(tensor, dtype)
        return _casts[id(tensor)][1]


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
"""Operators whose forward-mode derivative asks; too frequent to watch before one is taken."""


def install(patches: Patches) -> None:
    """Register what keeps to the host's path."""
    library = torch.library.Library("aten", "IMPL")
    patches.on_undo(lambda: destroy(library))
    for name in kept_whole():
        register(library, name, _kernel_at_cuda(overload(name)), "CUDA")
    for name in ASK:
        _ask_the_host(library, name)
    operators.install_dropout(library)
    operators.install_attention(library)
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
    """Operators with a kernel for the CPU and none for CUDA, which would take a composite one."""
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
            return operator.redispatch(_as_cpu(keys), *args, **kwargs)
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


def _as_cpu(keys: Any) -> Any:
    """The call's keys with the CPU in CUDA's place: there autograd's kernel is still registered."""
    cpu, cuda = (
        DispatchKeySet(DispatchKey.CPU).raw_repr(),
        DispatchKeySet(DispatchKey.CUDA).raw_repr(),
    )
    return keys_from_bits(keys.raw_repr() & ~(cpu ^ cuda) | (cpu & ~cuda))


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
    """LinearAlgebra.cpp, _matmul_impl: only a subclass folds one matrix against a batch."""
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
