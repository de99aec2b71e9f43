"""Modules, optimizers, autocast, gradient scaling and clipping: what they hold and call."""

import importlib
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch

from auditor.capture.instruments.torch_private.compiler import HELD
from auditor.capture.instruments.torch_private.look_up import (
    for_rehearsals,
    in_dict,
    on_instances,
    private,
)

# -- modules ---------------------------------------------------------------------------------------

any_global_hook: Callable[[], bool] | None = private("torch.nn.modules.module._has_any_global_hook")
"""Whether every module has hooks: compiled modules warn of them. Without it: None."""

ANY_GLOBAL_HOOK: Final = "_has_any_global_hook"
"""Its name in ``torch.nn.modules.module``."""

_parameters: Callable[[Any], dict[str, Any] | None] = in_dict("torch.nn.Module._parameters")
_buffers: Callable[[Any], dict[str, Any] | None] = in_dict("torch.nn.Module._buffers")
_forward_hooks: Callable[[Any], dict[int, Any] | None] = in_dict("torch.nn.Module._forward_hooks")
_modules: Callable[[Any], dict[str, Any] | None] = in_dict("torch.nn.Module._modules")


def _as_dict(named: Callable[..., Iterator[tuple[str, Any]]], **how: bool) -> dict[str, Any]:
    try:
        return dict(named(**how))
    except Exception:  # not whole yet, or a class of the user's that answers in its own way
        return {}


def own_parameters(module: torch.nn.Module) -> dict[str, Any]:
    """Own parameters, None included. Without ``_parameters``: by ``named_parameters``."""
    held = _parameters(module)
    return held if held is not None else _as_dict(module.named_parameters, recurse=False)


def own_buffers(module: torch.nn.Module) -> dict[str, Any]:
    """Buffers of the module itself. Without ``_buffers``: by ``named_buffers``."""
    held = _buffers(module)
    return held if held is not None else _as_dict(module.named_buffers, recurse=False)


def own_hooks(module: torch.nn.Module) -> list[Any]:
    """Hooks on the forward of the module itself. Without ``_forward_hooks``: none."""
    return list((_forward_hooks(module) or {}).values())


def own_children(module: torch.nn.Module) -> dict[str, Any]:
    """Modules right inside it. Without ``_modules``: by ``named_children``."""
    held = _modules(module)
    return held if held is not None else _as_dict(module.named_children)


def modules_of(module: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The module and all that are part of it, each of them once; without asking its class."""
    waiting, seen = [module], {id(module)}
    while waiting:
        each = waiting.pop()
        yield each
        for child in own_children(each).values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                waiting.append(child)


def is_compiled(module: torch.nn.Module) -> bool:
    """``module`` was compiled. Without ``_orig_mod`` and ``_compiled_call_impl``: False."""
    held = vars(module)
    return HELD in held.get("_modules", ()) or held.get("_compiled_call_impl") is not None


# -- optimizers ------------------------------------------------------------------------------------

foreach_types: list[Any] = for_rehearsals("torch.utils._foreach_utils._foreach_supported_types")
"""Classes of tensors that clipping takes many at once."""

FOREACH_DEFAULT: Final = "_default_to_fused_or_foreach"
"""The function of an optimizer's module that chooses how it steps."""


def foreach_default(optimizer: str) -> tuple[Any, Callable[..., Any]] | None:
    """The module ``torch.optim.<optimizer>`` and its choice; None without it."""
    chosen = private(f"torch.optim.{optimizer}.{FOREACH_DEFAULT}")
    return None if chosen is None else (importlib.import_module(f"torch.optim.{optimizer}"), chosen)


# -- mixed precision -------------------------------------------------------------------------------

autocast_enabled: Callable[[Any], bool] = on_instances("torch.autocast._enabled", True)
"""Whether an autocast block does anything. Without it: yes, so a disabled one counts."""

unscaled_states: Callable[[Any], dict[int, Any] | None] = on_instances(
    "torch.amp.GradScaler._per_optimizer_states"
)
"""What a scaler remembers of each optimizer. Without it: None; such clipping is not reported."""

scale_of: Callable[[Any], torch.Tensor | None] = on_instances("torch.amp.GradScaler._scale")
"""The scale; None of a disabled scaler. Without it: None; its updates are not reported."""

# -- clipping --------------------------------------------------------------------------------------

CLIP_BY_NORM: Final = "_clip_grads_with_norm_"
"""What ``clip_grad_norm_`` calls with the norm that it computed."""

clips_by_norm: Any = private(f"torch.nn.utils.clip_grad.{CLIP_BY_NORM}")
"""That function. Without it: None, and clipping by norm is not seen."""

set_static_graph: Callable[..., Any] = for_rehearsals(
    "torch.nn.parallel.DistributedDataParallel._set_static_graph"
)
"""A method of DistributedDataParallel that tells its reducer."""

BatchNorm: Any = private("torch.nn.modules.batchnorm._BatchNorm")
"""Base of all batch norms, with their ``forward``. Without it: None; buffers are not seen."""

# -- profilers -------------------------------------------------------------------------------------

ProfilerState: Any = for_rehearsals("torch._C._profiler.ProfilerState")
"""What a profiler records by."""

PREPARE: Final = (
    "_prepare_trace"
    if private("torch.autograd.profiler.profile._prepare_trace") is not None
    else "__enter__"
)
"""What every start of a profiler calls. Without it: ``__enter__``, the first cycle alone."""
