"""Devices by number alone: ``torch.device(0)`` and ``Module.to(0)`` are the GPU's, as in a build
with CUDA.

A build without CUDA refuses the number inside C. ``torch.device`` is a class there that takes no
subclass, so that another one takes its place: it makes torch's own devices, and is torch's own
for ``isinstance`` and ``==``.
"""

from __future__ import annotations

import functools
import numbers
from collections.abc import Callable
from typing import Any

import torch
import torch.jit.annotations

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private import cuda

_Device = torch.device


class _DeviceType(type):
    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if len(args) + len(kwargs) == 1:
            return _numbered(next(iter((*args, *kwargs.values()))), _Device)
        return _Device(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _Device)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return subclass is cls or issubclass(subclass, _Device)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is _Device

    def __hash__(cls) -> int:
        return hash(_Device)


def install(patches: Patches) -> None:
    """Take numbers where this build of torch does not."""
    if torch.version.cuda is not None:
        return
    device = _DeviceType("device", (), {"__module__": "torch", "__doc__": _Device.__doc__})
    patches.attribute(torch, "device", device)
    if cuda.parse_to is not None:
        patches.attribute(cuda.nn, "_parse_to", _parse_to(cuda.parse_to))
    read: Any = torch.jit.annotations.try_ann_to_type
    patches.code(read, functools.partial(_annotated, device))


def _numbered(said: Any, otherwise: Callable[[Any], Any]) -> Any:
    if isinstance(said, numbers.Integral) and not isinstance(said, bool):
        return _Device("cuda", int(said))
    return otherwise(said)


def _parse_to(original: Callable[..., Any]) -> Callable[..., Any]:
    """What ``Module.to`` was given."""

    def parse(*args: Any, **kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs["device"] = _numbered(kwargs["device"], lambda said: said)
        return original(
            *(_numbered(one, lambda said: said) for one in args[:1]), *args[1:], **kwargs
        )

    return parse


def _annotated(
    device: type, original: Callable[..., Any], annotation: Any, *args: Any, **kwargs: Any
) -> Any:
    """TorchScript asks ``is torch.device`` of annotations, most of them read before we came."""
    return original(device if annotation is _Device else annotation, *args, **kwargs)
