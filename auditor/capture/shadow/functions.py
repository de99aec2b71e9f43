"""torch functions that are given shadow tensors: what differs from a CPU call, before any operator
runs.

A function is seen here once, whole: what it does inside reaches :mod:`operators`. This is the place
of the device check (inside, torch allocates with ``self.options()``, which says CPU here) and of
results that were allocated that way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from auditor.capture.instruments.torch_private import tensors
from auditor.capture.instruments.torch_private.dispatch import (
    DisableTorchFunctionSubclass,
    has_kernel,
    is_functorch_wrapped,
)
from auditor.capture.shadow.current import HERE, refuse, tell
from auditor.capture.shadow.moving import as_type, moved
from auditor.capture.shadow.paths import alike
from auditor.capture.shadow.tensor import Quietly, Rooms, ShadowTensor, wrap

Tensor = torch.Tensor
_C = tensors.functions
_GRAD: Any = Tensor.grad
_DATA: Any = Tensor.data
_GETTER: Final = type(Tensor.shape.__get__)  # type: ignore[attr-defined]


def _named(owner: Any, names: str) -> Iterator[Any]:
    return (getattr(owner, name) for name in names.split() if hasattr(owner, name))


MIXES: Final = frozenset(
    {
        *_named(
            Tensor,
            "copy_ __getitem__ __setitem__ index_put index_put_ type_as expand_as view_as "
            "reshape_as is_same_size",
        ),
        *_named(Tensor, "is_set_to set_ tensor_split to __eq__ __ne__"),
        *_named(
            _C,
            "index_put index_put_ is_same_size tensor_split result_type broadcast_tensors ctc_loss "
            "_foreach_copy_",
        ),
        *_named(_C, "lstm gru rnn_tanh rnn_relu _pack_padded_sequence _pad_packed_sequence"),
        *_named(
            _C,
            "_foreach_addcdiv _foreach_addcdiv_ _foreach_addcmul _foreach_addcmul_ _fused_adam_ "
            "_fused_adamw_ _fused_sgd_",
        ),
    }
) - {Tensor.__eq__, Tensor.__ne__}
"""Functions that take host tensors beside device tensors on CUDA as well."""

STRICT: Final = frozenset(_named(_C, "cat concat concatenate stack hstack vstack dstack"))
"""Functions where not even a 0-dim host tensor may stand beside device tensors."""

_HAS_FUSED_RMS_NORM: Final = hasattr(torch.ops.aten, "_fused_rms_norm_backward") and hasattr(
    _C, "rms_norm"
)
HOST_RESULTS: Final = {tensors.pack_padded: 1, tensors.pad_packed: 1}
"""Function -> the result that lies on the host on CUDA too (batch sizes and lengths)."""

_Rule = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


def call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a torch function that was given at least one shadow tensor."""
    rule = RULES.get(func)
    if rule is not None:
        return rule(func, args, kwargs)
    if type(func) is _GETTER:
        with DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    return through(func, args, kwargs)


def through(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Check devices, call, and bring to the device what torch allocated with the C++ device of a
    shadow.
    """
    if func not in MIXES:
        _check_devices(func, args)
    before, HERE.function = HERE.function, func
    try:
        with DisableTorchFunctionSubclass():
            result = func(*args, **kwargs)
    except NotImplementedError as error:
        if "'CUDA' backend" in str(error):
            refuse(
                getattr(func, "__name__", str(func)),
                "torch has no kernel for it that could play it on a CPU",
            )
        raise
    finally:
        HERE.function = before
    if func in MIXES and func not in HOST_RESULTS:  # what is plain here came from a host tensor
        return result
    if _is_plain(result):
        return (
            result
            if any(result is arg for arg in args) or result is kwargs.get("out")
            else _on_device(result)
        )
    if isinstance(result, (tuple, list)) and any(_is_plain(one) for one in result):
        return _results_on_device(func, result)
    return result


def _check_devices(func: Any, args: tuple[Any, ...]) -> None:
    lowest = 0 if func in STRICT else 1
    device = False
    host = False
    for arg in args:
        for one in arg if type(arg) in (list, tuple) else (arg,):
            if isinstance(one, ShadowTensor):
                device = True
            elif isinstance(one, Tensor) and one.dim() >= lowest and not is_functorch_wrapped(one):
                host = True
    if host and device:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, cuda:0 "
            f"and cpu! (when checking argument in method {getattr(func, '__name__', func)})"
        )


def _is_plain(result: Any) -> bool:
    """True for a host tensor; transforms of torch.func wrap any device in the plain class."""
    return type(result) is Tensor and not is_functorch_wrapped(result)


class _Rewrap(torch.autograd.Function):
    """The identity, from a tensor that torch allocated for a shadow to the shadow it should be."""

    @staticmethod
    def forward(ctx: Any, host: Tensor) -> ShadowTensor:
        return wrap(host.detach())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        return grad


def _on_device(host: Tensor) -> Tensor:
    with DisableTorchFunctionSubclass():
        return _Rewrap.apply(host) if host.requires_grad else wrap(host.detach())  # type: ignore[no-any-return,no-untyped-call]


def _results_on_device(func: Any, results: Any) -> Any:
    stays = HOST_RESULTS.get(func)
    moved_results = [
        _on_device(one) if _is_plain(one) and at != stays else one for at, one in enumerate(results)
    ]
    if type(results) in (tuple, list):
        return type(results)(moved_results)
    return (
        type(results)(moved_results)
        if hasattr(results, "n_fields")
        else type(results)(*moved_results)
    )


# ---- functions that differ


def _pin_memory(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise RuntimeError(f"cannot pin '{args[0].type()}' only dense CPU tensors can be pinned")


def _is_constant(index: Any) -> bool:
    parts = index if isinstance(index, tuple) else (index,)
    lists = [part for part in parts if isinstance(part, (list, range))]
    return bool(lists) and all(isinstance(one, (int, list)) for part in lists for one in part)


def _getitem(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor, index = args
    if not isinstance(tensor, ShadowTensor):
        parts = index if isinstance(index, (tuple, list)) else (index,)
        if any(
            isinstance(part, ShadowTensor) and (part.dim() or part.dtype == torch.bool)
            for part in parts
        ):
            raise RuntimeError(
                "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
            )
    return _constant(_is_constant(index), func, args, kwargs)


def _constant(constant: bool, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    HERE.constant = constant
    try:
        return through(func, args, kwargs)
    finally:
        HERE.constant = False


def _set_data(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """``p.data = t``: the tensor becomes what ``t`` is, device included."""
    target, source = args
    if isinstance(target, ShadowTensor) and isinstance(source, ShadowTensor):
        with DisableTorchFunctionSubclass():
            func(target, source)
        target._inner = source._inner
    elif isinstance(target, Tensor) and isinstance(source, Tensor):
        become(target, source)


def become(target: Tensor, source: Tensor) -> None:
    """Turn ``target`` into a tensor with the data and the device of ``source``, keeping its
    identity and attributes.

    torch sets the data of a parameter that moves between CPU and CUDA; here its class must change
    too, so that the C++ tensors change places (as ``torch.utils.swap_tensors`` does, which would
    forget attributes and refuse weak references). Its gradient moves along: torch moves it next, by
    the same means.
    """
    with DisableTorchFunctionSubclass():
        grad = target.grad
        fresh: Any = source.detach()
        is_parameter = isinstance(target, torch.nn.Parameter)
        fresh = (
            torch.nn.Parameter(fresh, target.requires_grad)
            if is_parameter
            else fresh.requires_grad_(target.requires_grad)
        )
        target.__dict__.pop("_inner", None)
        target.__class__, fresh.__class__ = type(fresh), type(target)
        target.__dict__.update(fresh.__dict__)
        tensors.swap(target, fresh)
        if grad is not None:
            with Quietly():  # torch moves it by a copy of its own, which is told
                _GRAD.__set__(target, moved(Tensor.to, grad, (source.device,), {}))


def _get_grad(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A gradient made of only ``options()`` is brought to the device when first asked for."""
    with DisableTorchFunctionSubclass():
        grad = func(*args)
        if type(grad) is Tensor and isinstance(args[0], ShadowTensor):
            grad = wrap(grad.detach())
            _GRAD.__set__(args[0], grad)
        return grad


def _set_grad(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    target, grad = args
    if isinstance(grad, Tensor) and isinstance(target, ShadowTensor) != isinstance(
        grad, ShadowTensor
    ):
        raise RuntimeError(
            f"assigned grad has data located on a different device: grad is on {grad.device}, "
            f"tensor is on {target.device}"
        )
    with DisableTorchFunctionSubclass():
        func(target, grad)


def _one_hot(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Onehot.cpp: only the CPU checks its classes; both read the maximum where none are given."""
    classes = args[1] if len(args) > 1 else kwargs.get("num_classes", -1)
    if isinstance(classes, ShadowTensor):
        classes = classes.item()
    if classes == -1:
        tell("item", "aten::one_hot", 8, "d2h")
    with DisableTorchFunctionSubclass():
        return wrap(func(args[0]._inner, classes))


def _unchecked(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Composites that check their arguments by reading them on the CPU only (Sorting.cpp)."""
    with Quietly():
        return through(func, args, kwargs)


def _where(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """TensorCompare.cpp, where_self_out: a 0-dim host tensor is moved, numbers are made there."""
    for one in args:
        if isinstance(one, Tensor) and not isinstance(one, ShadowTensor) and one.dim() == 0:
            tell("copy", "aten::where", one.nbytes, "h2d")
    return through(func, args, kwargs)


def _pack(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if isinstance(args[1], ShadowTensor):
        raise RuntimeError(  # noqa: TRY004 - as torch
            "'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor"
        )
    return through(func, args, kwargs)


def _rms_norm(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Torch 2.9 fuses it for CUDA only; its CPU path: layer_norm.cpp, rms_norm_composite."""
    if has_kernel("aten::_fused_rms_norm_backward", "CPU"):
        return through(func, args, kwargs)
    names = ("input", "normalized_shape", "weight", "eps")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    x, weight, eps = given["input"], given.get("weight"), given.get("eps")
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    dims = list(range(-len(given["normalized_shape"]), 0))
    smallest = torch.finfo(wide.dtype).eps if eps is None else eps
    normed = (wide * torch.rsqrt(wide.pow(2).mean(dims, keepdim=True).add(smallest))).type_as(x)
    return normed if weight is None else normed * weight


def _covariance(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Correlation.cpp: the number of observations is a 0-dim tensor, asked by equal()."""
    tell("equal", f"aten::{func.__name__}", 1, "d2h")
    return through(func, args, kwargs)


class _CtcBackward(torch.autograd.Function):
    """The identity; its backward says that the lengths go up again."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor, nbytes: int) -> Tensor:
        ctx.nbytes = nbytes
        return loss.view_as(loss)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        tell("copy", "aten::_ctc_loss_backward", ctx.nbytes, "h2d")
        return grad, None


def _ctc_loss(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """LossCTC.cpp: lengths are brought to the host; the graph is that of the lists they hold.
    cuda/LossCTC.cu: they and the places of the targets go up for the kernels, and again in the
    backward.
    """
    lengths = [
        moved(Tensor.to, given, ("cpu",), {}, operator="aten::ctc_loss")
        if isinstance(given, ShadowTensor)
        else given
        for given in args[2:4]
    ]
    sent = 3 * 8 * len(lengths[0])
    tell("copy", "aten::_ctc_loss", sent, "h2d")
    loss = through(func, (*args[:2], *lengths, *args[4:]), kwargs)
    return _CtcBackward.apply(loss, sent) if loss.requires_grad else loss  # type: ignore[no-untyped-call]


RULES: dict[Any, _Rule] = {
    Tensor.to: lambda func, args, kwargs: moved(func, args[0], args[1:], kwargs),
    Tensor.cuda: lambda func, args, kwargs: (
        args[0] if isinstance(args[0], ShadowTensor) else moved(Tensor.to, args[0], ("cuda",), {})
    ),
    Tensor.cpu: lambda func, args, kwargs: moved(
        func, args[0], ("cpu",), kwargs, operator="Tensor.cpu", kind="cpu"
    ),
    Tensor.type: lambda func, args, kwargs: as_type(func, *args, **kwargs),
    Tensor.type_as: lambda func, args, kwargs: moved(
        Tensor.to, args[0], (args[1].device, args[1].dtype), {}, operator="Tensor.type_as"
    ),
    Tensor.pin_memory: _pin_memory,
    Tensor.is_pinned: lambda func, args, kwargs: False,
    Tensor.__getitem__: _getitem,
    Tensor.__setitem__: lambda func, args, kwargs: _constant(
        isinstance(args[2], (int, float, complex)) or _is_constant(args[1]), func, args, kwargs
    ),
    tensors.compatible_shallow_copy: lambda func, args, kwargs: True,
    _DATA.__set__: _set_data,
    _GRAD.__get__: _get_grad,
    _GRAD.__set__: _set_grad,
    torch.nn.functional.one_hot: _one_hot,
    _C.where: _where,
    Tensor.where: _where,
    **dict.fromkeys(
        (_C.matmul, Tensor.matmul, Tensor.__matmul__, Tensor.__rmatmul__, torch.linalg.matmul),
        lambda func, args, kwargs: through(
            func, (*alike(*args[:2]), *args[2:]) if len(args) > 1 else args, kwargs
        ),
    ),
    _C.quantile: _unchecked,
    _C.nanquantile: _unchecked,
    Tensor.quantile: _unchecked,
    Tensor.nanquantile: _unchecked,
    tensors.pack_padded: _pack,
    _C.ctc_loss: _ctc_loss,
    **dict.fromkeys((_C.cov, Tensor.cov, _C.corrcoef, Tensor.corrcoef), _covariance),
    **({_C.rms_norm: _rms_norm} if _HAS_FUSED_RMS_NORM else {}),
}
"""Functions that need more than :func:`through`."""


Rooms.functions = call
