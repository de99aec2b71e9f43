"""Where torch takes another path for a shadow than for a host tensor: the host's path is taken.

- An operator has a kernel for each device *and* one made of other operators (``silu_backward``). A
  build without CUDA has none at CUDA's key and would take it apart there: :func:`kept_whole`.
- ``matmul`` asks ``isTensorSubclassLike`` (ATen/TensorSubclassLikeUtils.h), which is true of a
  shadow, and computes something else then: :func:`alike` gives it what the host's path makes first.

Others ask as well (``prod``, ``cumprod``, ``linalg_det``, eigenvalues): their values may differ from
the host's in the last bits.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.dispatch import (
    DisableTorchFunctionSubclass,
    DispatchKey,
    DispatchKeySet,
    ExcludeDispatchKeys,
    destroy,
    has_kernel,
    operator_names,
    schema_of,
)
from auditor.capture.instruments.torch_private.tensors import base_of
from auditor.capture.shadow import operators
from auditor.capture.shadow.operators import overload, register, run
from auditor.capture.shadow.tensor import ShadowTensor

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


def install(patches: Patches) -> None:
    """Register what keeps to the host's path."""
    library = torch.library.Library("aten", "IMPL")
    patches.on_undo(lambda: destroy(library))
    for name in kept_whole():
        register(library, name, _kernel_at_cuda(overload(name)), "CUDA")
    operators.install_dropout(library)
    operators.install_attention(library)


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
