"""Runs an operator of the shadow device on the CPU tensors behind it, and says what crosses when
CUDA runs it.

What blocks is read from torch's CUDA sources (aten/src/ATen/native/cuda); the file is named beside
each entry.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import torch

from auditor.capture.instruments.torch_private.autograd import forward_level
from auditor.capture.instruments.torch_private.dispatch import (
    DisableTorchFunctionSubclass,
    DispatchKey,
    DispatchKeySet,
    ExcludeDispatchKeys,
    is_functorch_wrapped,
    overload_of,
    schema_of,
)
from auditor.capture.shadow.current import (
    CPU,
    HERE,
    PLAYING,
    PRODUCTS,
    VERSION,
    caller,
    refuse,
    tell,
)
from auditor.capture.shadow.streams import current_stream
from auditor.capture.shadow.tensor import Rooms, ShadowTensor, copied, wrap

Tensor = torch.Tensor


def overload(name: str) -> Any:
    """The operator ``aten::name`` (``"prod.dim_int"``); None if this torch does not have it."""
    packet, _, rest = name.partition(".")
    try:
        return getattr(getattr(torch.ops.aten, packet), rest or "default")
    except AttributeError:
        return None


def register(
    library: Any, name: str, kernel: Callable[..., Any], key: str, *, with_keyset: bool = False
) -> None:
    """Let ``kernel`` be what ``aten::name`` does at ``key``, until the library is destroyed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is overridden is the point
        library.impl(name, kernel, key, with_keyset=with_keyset, allow_override=True)


# -- attention with dropout ------------------------------------------------------------------------
# As CUDA keeps it, with the host's numbers. The CPU's fused kernel knows no dropout, and its
# composite keeps three matrices of all pairs of tokens; CUDA's fused kernels keep the result and one
# number for each row (``_efficient_attention_forward`` in
# aten/src/ATen/native/transformers/cuda/attention.cu). The memory is theirs here, the values are the
# composite's, computed again where the gradient is.

ALIGNED: Final = {torch.float32: 4, torch.float16: 8, torch.bfloat16: 8}
"""What a head's width is a multiple of (sdp_utils.cpp, ``check_head_dim_size_mem_efficient``)."""

ROWS: Final = 32
"""The rows' numbers are filled up to a multiple of this (attention.cu, ``kAlignLSE``)."""

_MATH: Final = overload("_scaled_dot_product_attention_math")
_FUSED: Final = overload("_scaled_dot_product_efficient_attention")


def install_attention(library: Any) -> None:
    """Let attention of shadows with dropout take the fused kernel's way where CUDA does."""
    operator = overload("scaled_dot_product_attention")
    if operator is None or _MATH is None or _FUSED is None:
        return

    def attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        *more: Any,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        p, causal = _dropout_and_causal(more)
        given = [query, key, value]
        if not p or enable_gqa or not _is_fused(given, attn_mask, causal=causal):
            grouped = {"enable_gqa": True} if enable_gqa else {}
            return operator.decompose(  # type: ignore[no-any-return]
                query, key, value, attn_mask, p, causal, scale=scale, **grouped
            )
        with DisableTorchFunctionSubclass():
            bias = attn_mask
            if bias is not None and bias.dtype is torch.bool:
                bias = torch.zeros_like(bias, dtype=query.dtype)
                bias.masked_fill_(attn_mask.logical_not(), float("-inf"))  # type: ignore[union-attr]
            if bias is not None:
                bias = bias.expand(*query.shape[:-1], key.shape[-2])
            graph = torch.is_grad_enabled() and any(each.requires_grad for each in given)
            results = _FUSED(query, key, value, bias, graph, p, causal, scale=scale)
            return results[0]  # type: ignore[no-any-return]

    register(library, "scaled_dot_product_attention", attention, "AutogradCUDA")


def _is_fused(given: list[Tensor], mask: Tensor | None, *, causal: bool) -> bool:
    """Whether CUDA takes a fused kernel (sdp_utils.cpp)."""
    query, key, value = given
    backends = torch.backends.cuda
    return (
        (backends.mem_efficient_sdp_enabled() or backends.flash_sdp_enabled())
        and forward_level() < 0
        and not any(is_functorch_wrapped(each) for each in given)
        and all(each.dim() == 4 and each.numel() and each.stride(-1) == 1 for each in given)
        and query.dtype in ALIGNED
        and query.dtype == key.dtype == value.dtype
        and query.shape[:2] == key.shape[:2] == value.shape[:2]
        and not any(each.shape[-1] % ALIGNED[query.dtype] for each in given)
        and (mask is None or not (causal or mask.requires_grad))
    )


def _dropout_and_causal(more: tuple[Any, ...]) -> tuple[float, bool]:
    return (more[0] if more else 0.0), bool(more[1:] and more[1])


def _attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    rows: Any,
    *more: Any,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Result, a number for each row, and in the seed's place the generator's state."""
    state = torch.get_rng_state()
    result = _MATH(query, key, value, bias, *_dropout_and_causal(more), scale=scale)[0]
    long = -(-query.shape[2] // ROWS) * ROWS if rows else 0
    numbers = query.new_empty((*query.shape[:2], long), dtype=torch.float32)
    return result.transpose(1, 2).contiguous().transpose(1, 2), numbers, state, state.new_empty(())


def _attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    *more: Any,
    **scale: Any,
) -> tuple[Tensor | None, ...]:
    _, _, state, _, p, _, *causal = more
    before = torch.get_rng_state()
    try:
        torch.set_rng_state(state)
        # below a watch over operators its key would be back without it
        hosts = ExcludeDispatchKeys(DispatchKeySet(DispatchKey.Python))
        with torch.overrides.enable_reentrant_dispatch(), hosts, torch.enable_grad():
            inputs = [each.detach().requires_grad_() for each in (query, key, value)]
            again = _MATH(*inputs, bias, p, bool(causal and causal[0]), **scale)[0]
            found = torch.autograd.grad(again, inputs, grad)
    finally:
        torch.set_rng_state(before)
    return (*found, None)


ATTENTION: Final[dict[str, Callable[..., Any]]] = {
    "_scaled_dot_product_efficient_attention": _attention_forward,
    "_scaled_dot_product_efficient_attention_backward": _attention_backward,
}
"""Operator -> what computes it on the host tensors behind the shadows."""


# -- dropout ---------------------------------------------------------------------------------------
# CUDA's fused kernel saves one byte for each element (aten/src/ATen/native/Dropout.cpp,
# ``is_fused_kernel_acceptable``; native/cuda/Dropout.cu), the host's composite a mask of the input's
# type. The values here are the composite's, bit for bit: the CPU's own ``native_dropout`` rounds
# otherwise for one probability in seven. Gradients with a graph (``create_graph``) take torch's
# formula over the mask, and may differ in the last bit.


def install_dropout(library: Any) -> None:
    """Let ``dropout`` of a shadow take the fused kernel's way where CUDA does."""
    register(library, "dropout", _dropout, "AutogradCUDA")


def _dropout(inputs: Tensor, p: float, train: bool) -> Tensor:
    if not train or p == 0 or not inputs.numel():
        return inputs
    if p == 1:
        return inputs * torch.zeros((), dtype=inputs.dtype, device=inputs.device)
    if is_functorch_wrapped(inputs) or forward_level() >= 0:
        return inputs * _dropout_mask(inputs, p).div_(1 - p)
    with DisableTorchFunctionSubclass():
        return torch.native_dropout(inputs, p, train)[0]


def _dropout_mask(inputs: Tensor, p: float) -> Tensor:
    return torch.empty_like(inputs).bernoulli_(1 - p)


def _dropout_forward(inputs: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    if train is False or not 0 < p < 1:
        return torch.native_dropout(inputs, p, train)
    kept = _dropout_mask(inputs, p)
    mask = kept.bool()
    return inputs * kept.div_(1 - p), mask


def _dropout_backward(grad: Tensor, mask: Tensor, scale: float) -> Tensor:
    if not scale:
        return grad * mask * scale
    return grad * mask.to(grad.dtype).div_(1 / scale)


DROPOUT: Final[dict[str, Callable[..., Any]]] = {
    "native_dropout": _dropout_forward,
    "native_dropout_backward": _dropout_backward,
}
"""Operator -> what computes it on the host tensors behind the shadows."""


# -- products in half precision --------------------------------------------------------------------

FORWARD: Final = frozenset({"convolution", "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot"})
BACKWARD: Final = frozenset({"convolution_backward"})
FLOAT32: Final = FORWARD | BACKWARD
"""Operators that may have to be computed in float32."""
HALVES: Final = (torch.float16, torch.bfloat16)


def slow_dtype(name: str, args: list[Any]) -> torch.dtype | None:
    """The half dtype of the operator's first argument, if this CPU has no fast kernel for it."""
    dtype = args[0].dtype
    return (
        dtype
        if dtype in HALVES and not (_fast(dtype) and (name in FORWARD or dtype == torch.bfloat16))
        else None
    )


def in_float32(
    func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], dtype: torch.dtype
) -> Any:
    """The results of ``func``, computed in float32 and rounded to ``dtype``."""
    result = func(*map(_wide, args), **kwargs)
    return (
        tuple(_rounded(one, dtype) for one in result)
        if isinstance(result, tuple)
        else _rounded(result, dtype)
    )


@cache
def _fast(dtype: torch.dtype) -> bool:
    """Whether oneDNN has kernels for this dtype on this CPU."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return False
    name = "_is_mkldnn_fp16_supported" if dtype == torch.float16 else "_is_mkldnn_bf16_supported"
    # a torch that does not tell counts as slow: float32 is always right
    supported = getattr(torch.ops.mkldnn, name, None)
    return supported is not None and bool(supported())


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, torch.Tensor) and value.dtype in HALVES else value


def _rounded(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, torch.Tensor) else value


_DATA: Any = Tensor.data
PLAYED: Final = {**DROPOUT, **ATTENTION}
_MASKS: Final = (torch.bool, torch.uint8)
_MEAN: Final = 1  # of at::Reduction
_INDEXING: Final = frozenset(
    {
        Tensor.__getitem__,
        Tensor.__setitem__,
        *(getattr(Tensor, name) for name in ("index_put", "index_put_")),
        *(getattr(torch, name) for name in ("index_put", "index_put_")),
    }
)
"""Functions that are given indices by the program."""
_Look = Callable[[tuple[Any, ...], dict[str, Any]], None]

HOST_INDEX: Final = "aten::index"
"""What copies an index of the host's to the device, in the words of :class:`Crossing`."""

READS: Final[dict[str, tuple[str, int]]] = {
    "nonzero": ("nonzero", 8),  # Nonzero.cu: the count by memcpy_and_sync
    "argwhere": ("nonzero", 8),
    "masked_select": ("masked_select", 8),  # IndexKernel.cpp: by nonzero
    "_unique2": ("unique", 8),  # UniqueCub.cu
    "_unique": ("unique", 8),
    "unique_dim": ("unique", 8),
    "unique_consecutive": ("unique", 8),
    "unique_dim_consecutive": ("unique", 8),
    "allclose": ("item", 1),  # TensorCompare.cpp: isclose().all().item()
    "is_nonzero": ("item", 1),
    "bincount": ("bincount", 8),  # SummaryOps.cu: max().item()
    "_linalg_check_errors": ("check", 1),  # BatchLinearAlgebra.cpp: infos.any().item()
    # the same file: these check in the kernel; svd reads how its iteration converged as well
    "_linalg_eigh": ("check", 1),
    "linalg_eigvalsh": ("check", 1),
    "_linalg_svd": ("check", 1),
    "linalg_svdvals": ("check", 1),
    "linalg_eig": ("check", 1),
    "linalg_eigvals": ("check", 1),
    "linalg_lstsq": ("check", 1),
    "linalg_pinv": ("check", 1),
    "linalg_matrix_exp": ("to_cpu", 8),  # LinearAlgebra.cpp: the norms decide the degrees
    "_to_sparse": ("nonzero", 8),  # dense to COO by nonzero
    "_coalesce": ("unique", 8),  # SparseCUDATensor.cu: the number of segments
    # nested/NestedTensorMath.cpp: sizes.equal(nums)
    "_nested_tensor_from_mask_left_aligned": ("equal", 1),
    "_nested_tensor_from_mask": ("to_cpu", 8),  # the same: sizes.to(kCPU)
    "_assert_scalar": ("item", 1),
}
"""Operator -> kind and bytes, where every call makes the host wait."""


def _item(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    frame = caller()
    scaler = frame is not None and frame.f_code.co_filename.replace("\\", "/").endswith(
        "torch/amp/grad_scaler.py"
    )
    operator = "GradScaler.step" if scaler else "aten::_local_scalar_dense"
    tell("item", operator, args[0].element_size(), "d2h")


def _index(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """TensorAdvancedIndexing.cpp: masks become indices by nonzero; host indices are moved."""
    if not isinstance(args[0], ShadowTensor):
        return
    said = HERE.function is None or HERE.function in _INDEXING
    for index in args[1]:
        if index is None:
            continue
        if not isinstance(index, ShadowTensor):
            if said:  # else torch allocated it with self.options(): on CUDA it lies on the device
                _host_index(index)
        elif index.dtype in _MASKS:
            tell("mask_index", "aten::index", 8, "d2h")


def _index_put(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """As :func:`_index`; one mask and one host number are masked_fill, which waits for nothing."""
    target, indices, value = args[0], args[1], args[2]
    if not isinstance(target, ShadowTensor):
        return
    accumulate = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    given = [index for index in indices if index is not None]
    host_number = value.numel() == 1 and not isinstance(value, ShadowTensor)
    filled = (
        host_number
        and not accumulate
        and len(given) == 1
        and given[0].dtype in _MASKS
        and isinstance(given[0], ShadowTensor)
    )
    for index in () if filled else given:
        if not isinstance(index, ShadowTensor):
            _host_index(index)
        elif index.dtype in _MASKS:
            tell("mask_put", "aten::index_put_", 8, "d2h")
    if not isinstance(value, ShadowTensor) and not filled and HERE.function is not None:
        # value.to(self.device()); the engine's own, which formulas make, lies on the device
        tell("copy", "aten::index_put_", value.nbytes, "h2d", constant=HERE.constant)


def _host_index(index: Tensor) -> None:
    size = int(index.sum()) * 8 if index.dtype in _MASKS else index.numel() * 8
    if size:
        tell("copy", HOST_INDEX, size, "h2d", constant=HERE.constant)


def _masked_fill(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Cuda/TensorCompare: a tensor given as the value is read by item()."""
    value = args[2] if len(args) > 2 else kwargs.get("value")
    if isinstance(value, ShadowTensor):
        tell("item", "aten::masked_fill", value.nbytes, "d2h")


def _smoothed_loss(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """LossNLL.cpp: the mean of a smoothed loss divides by the selected targets' weights."""
    if weighted_and_smoothed(args) and args[3] == _MEAN:
        tell("masked_select", "aten::cross_entropy_loss", 8, "d2h")


def weighted_and_smoothed(args: tuple[Any, ...]) -> bool:
    """Of ``cross_entropy_loss``: ``args`` end with the last given; label_smoothing is the sixth."""
    return len(args) > 5 and args[2] is not None


def _sparse_product(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """SparseCUDABlas: a product with a sparse matrix brings it into order first."""
    for one in args[:2]:
        if one.layout == torch.sparse_coo and not one.is_coalesced():
            tell("unique", "aten::_coalesce", 8, "d2h")


def _repeat_interleave(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if kwargs.get("output_size") is None:  # Repeat.cu: the sum of repeats by item()
        tell("repeat_interleave", "aten::repeat_interleave", 8, "d2h")


def _equal(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Cuda/Equal.cpp: eq().all().item(), unless sizes answer, or that it is the same memory."""
    one, other = args
    if one.shape == other.shape and not (isinstance(other, ShadowTensor) and one.is_set_to(other)):
        tell("equal", "aten::equal", 1, "d2h")


_NORMAL_READS: Final = VERSION < (2, 13)
"""DistributionTemplates.h: std.min().ge(0).item(); pull request 186508 of June 2026 made it a check
on the device. Torch 2.12 is older, 2.14 has it; of 2.13, which is between, nothing is said.
"""


def _normal(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if _NORMAL_READS and isinstance(args[1], ShadowTensor):
        tell("item", "aten::normal", 1, "d2h")


def _histc(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    low, high = args[2:4] if len(args) > 3 else (kwargs.get("min", 0), kwargs.get("max", 0))
    if low == high:  # SummaryOps.cu: bounds from the data, by item()
        tell("item", "aten::histc", 2 * args[0].element_size(), "d2h")


def _copies(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for target, source in zip(args[0], args[1], strict=True):
        copied((target, source, *args[2:]), kwargs)


LOOKS: Final[dict[str, _Look]] = {
    "_local_scalar_dense": _item,
    **dict.fromkeys(("index", "_unsafe_index"), _index),
    **dict.fromkeys("index_put index_put_ _index_put_impl_ _unsafe_index_put".split(), _index_put),
    "repeat_interleave": _repeat_interleave,
    "normal": _normal,
    "equal": _equal,
    "histc": _histc,
    "copy_": copied,
    "_foreach_copy_": _copies,
    **dict.fromkeys(("masked_fill", "masked_fill_"), _masked_fill),
    "cross_entropy_loss": _smoothed_loss,
    **dict.fromkeys(("_sparse_mm", "_sparse_addmm"), _sparse_product),
}
"""Operator -> what to look at before it runs."""


HOST_RESULTS: Final = {"_pack_padded_sequence": 1}
"""Operator -> the result that lies on the host on CUDA too (batch sizes)."""


class _Plan:
    """What is known of one overload, worked out once."""

    __slots__ = ("aliases", "bare", "blas", "host_result", "look", "played", "product", "resync")

    def __init__(self, func: Any) -> None:
        name = schema_of(func).name.removeprefix("aten::")
        self.product = name if name in FLOAT32 and overload_of(func) == "default" else None
        self.played = PLAYED.get(name, func) if overload_of(func) == "default" else func
        self.blas = name if name in PRODUCTS else None
        self.host_result = HOST_RESULTS.get(name)
        self.look = LOOKS.get(name) or _always(name)
        self.bare = not any(
            str(result.type) in {"Tensor", "Tensor[]", "List[Tensor]"}
            for result in schema_of(func).returns
        )
        self.aliases = _written(schema_of(func))
        self.resync = torch.Tag.inplace_view in func.tags or name in {
            "set_",
            "resize_",
            "resize_as_",
        }


def _always(name: str) -> _Look | None:
    if name not in READS:
        return None
    kind, size = READS[name]

    def look(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        tell(kind, f"aten::{name}", size, "d2h")

    return look


def _written(schema: Any) -> tuple[int | str | None, ...] | None:
    """For each result, the argument that it is (``add_`` gives back ``self``); None if none is."""
    places: list[int | str | None] = []
    for result in schema.returns:
        place: int | str | None = None
        if result.alias_info is not None and result.alias_info.is_write:
            for at, argument in enumerate(schema.arguments):
                if (
                    argument.alias_info is not None
                    and argument.alias_info.before_set == result.alias_info.before_set
                ):
                    place = argument.name if argument.kwarg_only else at
        places.append(place)
    return tuple(places) if any(place is not None for place in places) else None


_PLANS: dict[Any, _Plan] = {}


def look(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Say what crosses when CUDA runs ``func``, which something else computes."""
    plan = _plan(func)
    if plan.look is not None:
        plan.look(args, kwargs)


def _plan(func: Any) -> _Plan:
    plan = _PLANS.get(func)
    if plan is None:
        plan = _PLANS[func] = _Plan(func)
    return plan


def run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run ``func`` on what is behind ``args``; results are shadows, written arguments stay."""
    plan = _PLANS.get(func) or _plan(func)
    with DisableTorchFunctionSubclass():
        if plan.look is not None:
            plan.look(args, kwargs)
        playing = PLAYING[0]
        if playing is not None:
            playing.operators += 1
        bare = [_bare(arg) for arg in args]
        named = {key: _bare(value) for key, value in kwargs.items()}
        result = _compute(plan.played, plan.product, bare, named)
        found = _given(plan, args, kwargs, result)
        if plan.blas is not None and playing is not None:
            playing.workspaces.use(plan.blas, bare, current_stream().cuda_stream)
        return found


def _given(plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Any:
    """What the program gets of a result."""
    if plan.bare:
        return result
    if plan.aliases is not None:
        return _written_results(plan, args, kwargs, result)
    if plan.host_result is not None:
        return tuple(
            one if at == plan.host_result else _shadows(one) for at, one in enumerate(result)
        )
    return _shadows(result)


def _compute(func: Any, product: str | None, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """``product`` names the operator if the CPU computes it slowly in half precision."""
    slow = slow_dtype(product, args) if product is not None else None
    try:
        return func(*args, **kwargs) if slow is None else in_float32(func, args, kwargs, slow)
    except (NotImplementedError, RuntimeError) as error:
        text = str(error)
        if "not implemented for" in text or isinstance(error, NotImplementedError):
            refuse(str(func), f"the CPU has no kernel to play it with ({text.splitlines()[0]})")
        raise


def _bare(value: Any) -> Any:
    if isinstance(value, ShadowTensor):
        return value._inner
    if isinstance(value, (list, tuple)):
        return [_bare(one) for one in value]
    if isinstance(value, torch.device) and value.type == "cuda":
        return CPU
    return value


def _shadows(result: Any) -> Any:
    if isinstance(result, Tensor):
        return result if isinstance(result, ShadowTensor) or result.is_meta else wrap(result)
    if isinstance(result, (list, tuple)):
        return type(result)(_shadows(one) for one in result)
    return result


def _written_results(
    plan: _Plan, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
) -> Any:
    assert plan.aliases is not None
    values = result if isinstance(result, (tuple, list)) else (result,)
    out = []
    for place, value in zip(plan.aliases, values, strict=False):
        owner = (
            None
            if place is None
            else (kwargs.get(place) if isinstance(place, str) else args[place])
        )
        out.append(_shadows(value) if owner is None else owner)
        if isinstance(owner, ShadowTensor) and (plan.resync or owner.shape != owner._inner.shape):
            resync(owner)
    return out[0] if not isinstance(result, (tuple, list)) else tuple(out)


def resync(outer: ShadowTensor) -> None:
    """Give the outer tensor what an in-place operator gave the inner one."""
    fresh = wrap(outer._inner)
    _DATA.__set__(outer, fresh)


Rooms.operators = run
