"""``torch.nn.DataParallel`` where there is one GPU: what the module is given moves to that GPU, and
the module itself runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.parallel import scatter_gather

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.shadow.current import refuse


def install(patches: Patches) -> None:
    """Refuse more than one GPU; hand one's input over without torch's C++ scatter."""
    patches.attribute(torch.nn.DataParallel, "__init__", _of_one(torch.nn.DataParallel.__init__))
    patches.code(scatter_gather.scatter, _scatter)  # type: ignore[arg-type]  # overloads; a function all the same


def _of_one(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(
        parallel: Any,
        module: Any,
        device_ids: Sequence[Any] | None = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if device_ids is not None and len(device_ids) > 1:
            refuse("torch.nn.DataParallel", "one GPU is played, on one thread")
        original(parallel, module, device_ids, *args, **kwargs)

    return init


def _scatter(
    original: Callable[..., Any], inputs: Any, target_gpus: Sequence[Any], dim: int = 0
) -> list[Any]:
    """comm.cpp: each chunk by ``to(device, non_blocking=true)``; on the device a view."""
    (device,) = target_gpus
    return [
        moved_inputs(
            inputs,
            torch.device("cuda", device) if isinstance(device, int) else device,
            non_blocking=True,
        )
    ]


def moved_inputs(value: Any, device: torch.device, *, non_blocking: bool) -> Any:
    """``value`` with the tensors in its lists, tuples and dicts on ``device``."""

    def moved(one: Any) -> Any:
        return moved_inputs(one, device, non_blocking=non_blocking)

    if isinstance(value, torch.Tensor):
        return value.to(device, non_blocking=non_blocking)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(moved(one) for one in value))
    if isinstance(value, (list, tuple)):
        return type(value)(moved(one) for one in value)
    if isinstance(value, dict):
        return type(value)((key, moved(one)) for key, one in value.items())
    return value
