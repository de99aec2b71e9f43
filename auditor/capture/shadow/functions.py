"""What torch decides by device above its operators: functions and methods that are given shadow
tensors, functions that make tensors, and whether torch asks an argument.

A function that is given a shadow is seen once, whole, by :func:`call`: what it does inside reaches
:mod:`operators`. It is the place of the device check (inside, torch allocates with
``self.options()``, which says CPU here) and of results that were allocated that way.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, Final

import torch
from torch import overrides

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private import tensors
from auditor.capture.instruments.torch_private.dispatch import (
    DeviceContext,
    DisableTorchFunctionSubclass,
    count_function_modes,
    function_modes,
    has_kernel,
    is_functorch_wrapped,
    made_on_default_device,
)
from auditor.capture.shadow.current import CPU, HERE, must_be_the_process, refuse, tell
from auditor.capture.shadow.paths import alike
from auditor.capture.shadow.tensor import (
    Quietly,
    Rooms,
    ShadowTensor,
    as_type,
    device_of,
    is_pinned,
    mark_pinned,
    moved,
    on_cuda,
    pin,
    tell_upload,
    to_device,
    to_host,
    wrap,
)

Tensor = torch.Tensor
_TENSOR = torch.tensor

LIKE = tuple(
    "empty_like full_like ones_like zeros_like rand_like randn_like randint_like normal".split()
)
NEW = ("new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros")
DATA = ("tensor", "as_tensor", "asarray")


# -- making tensors --------------------------------------------------------------------------------
# ``device="cuda"`` and a default device send them to the shadow.


def default_device() -> torch.device | None:
    """What ``torch.set_default_device`` or ``with torch.device(...)`` says where we are."""
    if not count_function_modes():
        return None
    for mode in function_modes():
        if isinstance(mode, DeviceContext):
            return mode.device  # type: ignore[no-any-return]
    return None


def install_factories(patches: Patches) -> None:
    """Route every factory of torch, and the ``new_*`` methods of host tensors."""
    # filled now: it holds torch's own functions, and is kept
    constructors = made_on_default_device()
    names = {name for name in dir(torch) if _is_one_of(getattr(torch, name), constructors)}
    for name in sorted(names - {*DATA, *LIKE}):
        patches.attribute(torch, name, _factory(getattr(torch, name), by_default=True))
    for name in LIKE:
        patches.attribute(torch, name, _factory(getattr(torch, name), by_default=False))
    for name in ("fftfreq", "rfftfreq"):
        patches.attribute(torch.fft, name, _factory(getattr(torch.fft, name), by_default=True))
    for name in DATA:
        patches.attribute(torch, name, _from_data(getattr(torch, name), name))
    for name in NEW:
        patches.attribute(Tensor, name, _factory(getattr(Tensor, name), by_default=False))
    patches.attribute(Tensor, "new_tensor", _new_tensor(Tensor.new_tensor))
    patches.attribute(Tensor, "new", _new(Tensor.new))


def _is_one_of(value: Any, constructors: set[Any]) -> bool:
    try:
        return value in constructors
    except TypeError:  # unhashable
        return False


def _factory(original: Callable[..., Any], *, by_default: bool) -> Callable[..., Any]:
    """``by_default``: of numbers, on the default device; else like the tensor that is given."""

    @functools.wraps(original)
    def factory(*args: Any, **kwargs: Any) -> Any:
        said = kwargs.get("device")
        device = device_of(said) if said is not None else (default_device() if by_default else None)
        if device is None and not kwargs.get("pin_memory"):
            if by_default:
                _check_generator(kwargs.get("generator"), "cpu")
            given = [one for one in (*args, *kwargs.values()) if isinstance(one, ShadowTensor)]
            if not by_default or any(one.dim() for one in given):
                return original(*args, **kwargs)
            return original(*map(_number, args), **_numbers(kwargs))
        like = 0 if by_default or original.__name__ == "normal" else 1
        args, kwargs = (*args[:like], *map(_number, args[like:])), _numbers(kwargs)
        if on_cuda(device):
            return _on_device(original, args, kwargs)
        return _on_host(original, args, kwargs)

    return factory


def _on_device(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    must_be_the_process()
    _check_generator(kwargs.get("generator"), "cuda")
    kwargs = {**kwargs, "device": CPU}
    kwargs.pop("pin_memory", None)
    requires_grad = kwargs.pop("requires_grad", False)
    with DisableTorchFunctionSubclass():
        made = original(
            *_inner(args), **dict(zip(kwargs, _inner(tuple(kwargs.values())), strict=True))
        )
        shadow = wrap(made.detach())
    return shadow.requires_grad_() if requires_grad else shadow


def _on_host(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An explicit host: what is like a shadow becomes plain; ``pin_memory`` needs only a mark."""
    pinned = kwargs.get("pin_memory", False)
    kwargs = {name: value for name, value in kwargs.items() if name != "pin_memory"}
    _check_generator(kwargs.get("generator"), "cpu")
    with DisableTorchFunctionSubclass():
        made = original(*_inner(args), **kwargs)
    return mark_pinned(made) if pinned else made


def _inner(values: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value._inner if isinstance(value, ShadowTensor) else value for value in values)


def _number(value: Any) -> Any:
    """Where torch wants a number (the value of ``full``, the end of ``arange``, a size) it reads a
    0-dim tensor (python_arg_parser.cpp, RangeFactories.cpp: item()); one with a graph it refuses.
    """
    if isinstance(value, (tuple, list)) and any(isinstance(one, ShadowTensor) for one in value):
        return [_number(one) for one in value]
    if not isinstance(value, ShadowTensor) or value.dim():
        return value
    return value._inner.detach().requires_grad_() if value.requires_grad else value.item()


def _numbers(kwargs: dict[str, Any]) -> dict[str, Any]:
    tensors = ("input", "self", "out")
    return {name: one if name in tensors else _number(one) for name, one in kwargs.items()}


def _check_generator(generator: Any, wanted: str) -> None:
    if generator is not None and generator.device.type != wanted:
        raise RuntimeError(
            f"Expected a '{wanted}' device type for generator but found '{generator.device.type}'"
        )


def _from_data(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    copies = name == "tensor"

    @functools.wraps(original)
    def from_data(data: Any = None, *args: Any, **kwargs: Any) -> Any:
        data = kwargs.pop("data", data) if "data" in kwargs else kwargs.pop("obj", data)
        if name == "as_tensor":  # the only one that takes dtype and device by position
            kwargs.update(zip(("dtype", "device"), args, strict=False))
        said = kwargs.pop("device", None)
        device = device_of(said) if said is not None else default_device()
        if device is None and isinstance(data, Tensor):
            device = data.device
        return _tensor_of(original, data, device, {**kwargs, "copy": copies or kwargs.get("copy")})

    return from_data


def _new_tensor(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def new_tensor(self: Tensor, data: Any, **kwargs: Any) -> Any:
        said = kwargs.pop("device", None)
        kwargs.setdefault("dtype", self.dtype)
        return _tensor_of(_TENSOR, data, device_of(said) or self.device, {**kwargs, "copy": True})

    return new_tensor


def _tensor_of(
    original: Callable[..., Any], data: Any, device: torch.device | None, options: dict[str, Any]
) -> Any:
    """The tensor of ``data`` on ``device``; ``options`` are the factory's, with ``copy``."""
    copy = options.pop("copy")
    requires_grad = options.pop("requires_grad", False)
    pinned = options.pop("pin_memory", False)
    if isinstance(data, ShadowTensor) or (isinstance(data, Tensor) and on_cuda(device)):
        made = _from_tensor(data, device, options.get("dtype"), copy=bool(copy))
    else:
        data = _read_items(data) if isinstance(data, (list, tuple)) else data
        if getattr(original, "__name__", "") == "asarray" and copy is not None:
            options["copy"] = copy
        made = (
            original(data, **options)
            if device is None
            else original(data, device=CPU if on_cuda(device) else device, **options)
        )
        made = mark_pinned(made) if pinned else made
        if on_cuda(device):
            made = _sent(made, data)
    return made.requires_grad_() if requires_grad else made


def _read_items(data: Any) -> Any:
    """Lists with device tensors: the host reads each in turn (tensor_new.cpp: item())."""
    if isinstance(data, ShadowTensor):
        return data.item() if data.dim() == 0 else [_read_items(one) for one in data]
    if isinstance(data, (list, tuple)):
        return [_read_items(one) for one in data]
    return data


def _from_tensor(
    data: Tensor, device: torch.device | None, dtype: torch.dtype | None, *, copy: bool
) -> Tensor:
    source = data.detach() if copy else data
    target = dtype or data.dtype
    shadow = isinstance(data, ShadowTensor)
    if shadow == on_cuda(device):
        return source.to(target, copy=copy)
    return (
        to_device(source, target, operator="torch.tensor")
        if on_cuda(device)
        else to_host(source, target)
    )


def _sent(host: Tensor, data: Any) -> Tensor:
    """Made on the host, then copied (tensor_new.cpp: ``tensor.to(device, non_blocking=False)``)."""
    must_be_the_process()
    first = data
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    constant = isinstance(first, (int, float, complex))
    tell_upload(host, None, non_blocking=False, operator="torch.tensor", constant=constant)
    with DisableTorchFunctionSubclass():
        return wrap(host.detach().clone())


def legacy_new(args: tuple[Any, ...], dtype: torch.dtype) -> Any:
    """What ``torch.cuda.FloatTensor(*args)`` makes: of sizes, of data, or the same tensor again."""
    if not args or isinstance(args[0], (Integral, torch.Size)):
        return torch.empty(*(args or (0,)), dtype=dtype, device="cuda")
    if isinstance(args[0], ShadowTensor) and args[0].dtype == dtype:
        return args[0].detach()
    return torch.tensor(args[0], dtype=dtype, device="cuda")


def _new(original: Callable[..., Any]) -> Callable[..., Any]:
    """``tensor.new(...)``, the oldest of them: torch's own L-BFGS makes its zeros with it."""

    @functools.wraps(original)
    def new(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        dense = isinstance(self, ShadowTensor) and self.layout == torch.strided and not kwargs
        return legacy_new(args, self.dtype) if dense else original(self, *args, **kwargs)

    return new


# -- functions that are given shadow tensors -------------------------------------------------------

_C = tensors.functions
_GRAD: Any = Tensor.grad
_DATA: Any = Tensor.data
_GETTER: Final = type(Tensor.shape.__get__)  # type: ignore[attr-defined]


def _attributes(owner: Any, names: str) -> Iterator[Any]:
    return (getattr(owner, name) for name in names.split() if hasattr(owner, name))


MIXES: Final = frozenset(
    {
        *_attributes(
            Tensor,
            "copy_ __getitem__ __setitem__ index_put index_put_ type_as expand_as view_as "
            "reshape_as is_same_size",
        ),
        *_attributes(Tensor, "is_set_to set_ tensor_split to __eq__ __ne__"),
        *_attributes(
            _C,
            "index_put index_put_ is_same_size tensor_split result_type broadcast_tensors ctc_loss "
            "_foreach_copy_",
        ),
        *_attributes(_C, "lstm gru rnn_tanh rnn_relu _pack_padded_sequence _pad_packed_sequence"),
        *_attributes(
            _C,
            "_foreach_addcdiv _foreach_addcdiv_ _foreach_addcmul _foreach_addcmul_ _fused_adam_ "
            "_fused_adamw_ _fused_sgd_",
        ),
    }
) - {Tensor.__eq__, Tensor.__ne__}
"""Functions that take host tensors beside device tensors on CUDA as well."""

STRICT: Final = frozenset(_attributes(_C, "cat concat concatenate stack hstack vstack dstack"))
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
    """Check devices, call, and bring what torch allocated by the C++ device to the device."""
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
            else _to_shadow(result)
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


def _to_shadow(host: Tensor) -> Tensor:
    with DisableTorchFunctionSubclass():
        return _Rewrap.apply(host) if host.requires_grad else wrap(host.detach())  # type: ignore[no-any-return,no-untyped-call]


def _results_on_device(func: Any, results: Any) -> Any:
    stays = HOST_RESULTS.get(func)
    moved_results = [
        _to_shadow(one) if _is_plain(one) and at != stays else one for at, one in enumerate(results)
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
    if isinstance(target, ShadowTensor) != isinstance(source, ShadowTensor):
        become(target, source)
        return
    with DisableTorchFunctionSubclass():
        func(target, source)
    if isinstance(target, ShadowTensor):
        target._inner = source._inner


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


# -- methods of host tensors that reach the device, and whether torch asks an argument -------------


def install_methods(patches: Patches) -> None:
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

    def cuda_(
        self: Tensor, device: Any = None, non_blocking: bool = False, memory_format: Any = None
    ) -> Tensor:
        more = {} if memory_format is None else {"memory_format": memory_format}
        target = "cuda" if device is None else device
        return moved(
            to, self, (target,), {"non_blocking": non_blocking, **more}, operator="Tensor.cuda"
        )

    def pin_memory_(self: Tensor, device: Any = None) -> Tensor:
        if isinstance(self, ShadowTensor):
            raise RuntimeError(f"cannot pin '{self.type()}' only dense CPU tensors can be pinned")  # noqa: TRY004
        return pin(self)

    made: dict[str, Callable[..., Any]] = {
        "to": lambda self, *args, **kwargs: moved(to, self, args, kwargs),
        "cuda": cuda_,
        "type": lambda self, *args, **kwargs: as_type(kind, self, *args, **kwargs),
        "pin_memory": pin_memory_,
        "is_pinned": lambda self, device=None: is_pinned(self),
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
    asked = overrides.has_torch_function

    def any_of(values: Any) -> bool:
        others = tuple(value for value in values if not isinstance(value, ShadowTensor))
        return count_function_modes() > 0 or asked(others)

    checks = {
        id(overrides.has_torch_function): any_of,
        id(overrides.has_torch_function_unary): lambda value: any_of((value,)),
        id(overrides.has_torch_function_variadic): lambda *values: any_of(values),
    }
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "torch" or module is None:
            continue
        if checks.keys().isdisjoint(map(id, vars(module).values())):
            continue
        for attribute, value in list(vars(module).items()):
            if id(value) in checks:
                patches.attribute(module, attribute, checks[id(value)])
