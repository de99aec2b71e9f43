"""Which class an operator's kernels belong to, by its name."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

MATMUL: Final = "matmul"
CONV: Final = "conv"
CONV_BACKWARD: Final = "conv_backward"
ATTENTION: Final = "attention"
ATTENTION_BACKWARD: Final = "attention_backward"
NORM: Final = "norm"
NORM_BACKWARD: Final = "norm_backward"
BATCH_NORM: Final = "batch_norm"
BATCH_NORM_BACKWARD: Final = "batch_norm_backward"
SOFTMAX: Final = "softmax"
REDUCTION: Final = "reduction"
POINTWISE: Final = "pointwise"
COPY: Final = "copy"
FOREACH: Final = "foreach"
POOLING: Final = "pooling"
LOOKUP: Final = "lookup"
CAT: Final = "cat"
IRREGULAR: Final = "irregular"
CONV_UNKNOWN: Final = "conv without strides"
NOTHING: Final = "nothing"
TRANSFER: Final = "transfer"
COLLECTIVE: Final = "collective"
CUSTOM: Final = "custom"

MODELLED: Final = (
    CONV,
    CONV_BACKWARD,
    ATTENTION,
    ATTENTION_BACKWARD,
    NORM,
    NORM_BACKWARD,
    BATCH_NORM,
    BATCH_NORM_BACKWARD,
    SOFTMAX,
    REDUCTION,
    POINTWISE,
    COPY,
    FOREACH,
    POOLING,
    LOOKUP,
    CAT,
    IRREGULAR,
)
"""Classes with five numbers each; products have a model of their own."""

STREAMS: Final = frozenset(
    {FOREACH, BATCH_NORM, BATCH_NORM_BACKWARD, NORM_BACKWARD, POOLING, SOFTMAX, REDUCTION, COPY}
)
"""Classes that pass over memory as operators by element do, and may borrow their numbers."""

NEVER_FITTED: Final = frozenset({CAT, IRREGULAR, CONV_UNKNOWN})
"""Classes whose time depends on more than shapes tell: fitted, they were off by a factor."""

MATMULS: Final = frozenset(
    """
    mm addmm addmm_ _addmm_activation bmm baddbmm baddbmm_ linear matmul mv addmv addmv_ dot vdot
    _scaled_mm _int_mm
    """.split()
)
_VIEWS = frozenset(
    """
    view _unsafe_view reshape _reshape_alias expand expand_as t transpose permute slice select
    narrow unsqueeze squeeze as_strided detach detach_ alias split split_with_sizes chunk
    tensor_split unbind unflatten flatten movedim swapaxes mT mH T adjoint numpy_T view_as
    view_as_real view_as_complex real imag diagonal unfold_view empty empty_like empty_strided
    new_empty new_empty_strided _empty_affine_quantized resize_ resize_as_ set_ lift_fresh lift
    is_same_size size stride storage_offset numel requires_grad_ _version record_stream
    _local_scalar_dense item result_type is_pinned pin_memory set_data
    """.split()
)
"""Operators that start no kernel (``_local_scalar_dense`` copies a few bytes to the host)."""
_COLLECTIVES = re.compile(r"^(nccl|c10d|_c10d_functional|c10d_functional|rccl|record_param_comms)")
_IRREGULAR = re.compile(
    r"scatter|index_put|index_add|index_copy|index_fill|nonzero|sort|topk|unique|masked_select"
    r"|masked_scatter|^put|searchsorted|bucketize|^isin|multinomial|repeat_interleave|nms|roi_"
    r"|grid_sampl|bag|embedding_dense_backward|embedding_backward|bincount|histc|_grouped_mm|linalg"
    r"|cholesky|fft|_ctc|rnn|lstm|gru|median|mode|kthvalue|sparse|coalesce|renorm|triangular|cdist"
    r"|col2im|im2col|randperm|qr$|svd|unfold"
)
_LOOKUPS = frozenset({"embedding", "index_select", "gather", "index", "take", "take_along_dim"})
_REDUCTIONS = re.compile(
    r"^(sum|nansum|mean|nanmean|max|min|amax|amin|aminmax|norm|linalg_vector_norm|argmax|argmin|any|all"
    r"|std|std_mean|var|var_mean|prod|cumsum|cumsum_|cumprod|logsumexp|_logcumsumexp|nll_loss\w*"
    r"|cross_entropy\w*|mse_loss|l1_loss|smooth_l1_loss|huber_loss|binary_cross_entropy\w*|kl_div"
    r"|count_nonzero|_cummax_helper|_cummin_helper|trace|_is_all_true|_is_any_true|isfinite_all)$"
)
_COPIES = frozenset(
    {"copy_", "_to_copy", "clone", "contiguous", "to", "copy", "roll", "flip", "constant_pad_nd"}
)
_CATS = frozenset({"cat", "_cat", "stack", "_stack", "chunk_cat", "_chunk_cat", "concat"})
_COMPILED = re.compile(r"^(triton_|CompiledFunction|Torch-Compiled|## Call Compiled|inductor::)")


@cache
def kind_of(name: str) -> str:
    """The class of ``aten::addmm``. An operator of another library is ``custom``: what it starts is
    not known.
    """
    space, _, rest = name.rpartition("::")
    operator = rest.partition(".")[0]
    if _COLLECTIVES.match(name) or _COLLECTIVES.match(operator):
        return COLLECTIVE
    if space not in {"aten", "prims", ""} or _COMPILED.match(name):
        return CUSTOM
    if operator in MATMULS:
        return MATMUL
    if operator in _VIEWS:
        return NOTHING
    backward = "backward" in operator
    return (
        _of_products(operator, backward) or _of_norms(operator, backward) or _of_the_rest(operator)
    )


def _of_products(operator: str, backward: bool) -> str | None:
    if "attention" in operator:
        return ATTENTION_BACKWARD if backward else ATTENTION
    if "conv" in operator and "convert" not in operator:
        return CONV_BACKWARD if backward else CONV
    return None


def _of_norms(operator: str, backward: bool) -> str | None:
    if "foreach" in operator or (operator.startswith("_fused_") and operator.endswith("_")):
        return FOREACH
    if "batch_norm" in operator or "instance_norm" in operator:
        return BATCH_NORM_BACKWARD if backward else BATCH_NORM
    if re.search(r"(layer|group|rms)_?norm", operator):
        return NORM_BACKWARD if backward else NORM
    return SOFTMAX if "softmax" in operator else None


def _of_the_rest(operator: str) -> str:
    if operator in _LOOKUPS:
        return LOOKUP
    if _IRREGULAR.search(operator):
        return IRREGULAR
    if "pool" in operator or "upsample" in operator:
        return POOLING
    if _REDUCTIONS.match(operator):
        return REDUCTION
    if operator in _CATS:
        return CAT
    return COPY if operator in _COPIES else POINTWISE
