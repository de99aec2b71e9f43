"""Saving and loading: a checkpoint holds plain tensors with the location ``cuda:0``, as the GPU's
would.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.dispatch import DisableTorchFunctionSubclass
from auditor.capture.instruments.torch_private.tensors import (
    key_of,
    rebuild_parameter,
    rebuild_tensor,
    register_location,
    untyped,
)
from auditor.capture.shadow.current import HERE, tell
from auditor.capture.shadow.moving import device_of, on_cuda
from auditor.capture.shadow.tensor import Rooms, ShadowTensor, wrap

_ON_DEVICE = "_auditor_on_device"
_PRIORITY = 1  # before torch's own, which begin at 10


def install(patches: Patches) -> None:
    """Teach torch.save and torch.load where shadow storages lie."""
    entry = (
        _PRIORITY,
        lambda storage: "cuda:0" if getattr(storage, _ON_DEVICE, False) else None,
        _restore,
    )
    patches.on_undo(register_location(entry))
    if rebuild_tensor is not None:
        patches.code(rebuild_tensor, _rebuilt)
    patches.attribute(torch.UntypedStorage, "cuda", _storage_to_cuda)
    save: Any = torch.save
    patches.code(save, _saving)


def _saving(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Torch.save writes each storage once, however many tensors share it."""
    before, HERE.saved = HERE.saved, set()
    try:
        return original(*args, **kwargs)
    finally:
        HERE.saved = before


def reduced(tensor: ShadowTensor, protocol: Any) -> Any:
    """What pickle writes for a shadow: a plain tensor, its storage marked."""
    if isinstance(tensor, torch.nn.Parameter):
        learned = tensor.detach(), tensor.requires_grad
        return (
            (torch.nn.Parameter, learned)
            if rebuild_parameter is None
            else (rebuild_parameter, (*learned, OrderedDict()))
        )
    with DisableTorchFunctionSubclass():
        plain = tensor._inner.detach().requires_grad_(tensor.requires_grad)
        _tell_save(plain)
        if plain.layout == torch.strided:
            setattr(plain.untyped_storage(), _ON_DEVICE, True)
        return plain.__reduce_ex__(protocol)


def _tell_save(plain: torch.Tensor) -> None:
    """Its storage is copied to the host, whole."""
    size = plain.nbytes
    if plain.layout == torch.strided:
        storage = plain.untyped_storage()
        size = storage.nbytes()
        if HERE.saved is not None:
            if key_of(storage) in HERE.saved:
                return
            HERE.saved.add(key_of(storage))
    tell("to_cpu", "torch.save", size, "d2h")


def _restore(storage: Any, location: str) -> Any:
    """The storage itself, marked, if ``location`` is the device; None leaves it to the next one."""
    if not str(location).startswith("cuda"):
        return None
    device_of(location)
    tell("copy", "torch.load", storage.nbytes(), "h2d")
    setattr(storage, _ON_DEVICE, True)
    return storage


def _rebuilt(original: Any, storage: Any, *args: Any, **kwargs: Any) -> Any:
    tensor = original(storage, *args, **kwargs)
    if not getattr(untyped(storage), _ON_DEVICE, False):
        return tensor
    with DisableTorchFunctionSubclass():
        return wrap(tensor.detach()).requires_grad_(tensor.requires_grad)


def _storage_to_cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
    assert on_cuda(device_of(device if device is not None else "cuda"))
    tell("copy", "UntypedStorage.cuda", self.nbytes(), "h2d", blocking=not non_blocking)
    copy = self.clone()
    setattr(copy, _ON_DEVICE, True)
    return copy


Rooms.pickled = reduced
