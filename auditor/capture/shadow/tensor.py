"""The shadow tensor: dispatch keys of CUDA, storage and C++ device of the CPU, so that real kernels
and autograd run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from auditor.capture.instruments.torch_private.dispatch import (
    DisableTorchFunctionSubclass,
    make_subclass,
)
from auditor.capture.shadow.current import CUDA, HERE, PLAYING, refuse, tell

Tensor = torch.Tensor

LEGACY_TYPES = {
    torch.float32: "Float",
    torch.float64: "Double",
    torch.float16: "Half",
    torch.bfloat16: "BFloat16",
    torch.int64: "Long",
    torch.int32: "Int",
    torch.int16: "Short",
    torch.int8: "Char",
    torch.uint8: "Byte",
    torch.bool: "Bool",
}
"""dtype -> the name in ``torch.cuda.FloatTensor``."""


class Rooms:
    """What the class hands on; set by the modules that do it, since they need the class."""

    functions: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
    operators: Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]
    pickled: Callable[[Any, Any], Any]


def wrap(inner: Tensor) -> ShadowTensor:
    """The shadow of a CPU tensor without a graph; both share one storage."""
    shadow: ShadowTensor = make_subclass(ShadowTensor, inner, False, device_for_backend_keys=CUDA)
    shadow._inner = inner
    playing = PLAYING[0]
    if playing is not None and playing.listener.tracks_memory:
        playing.track(inner)
    return shadow


class ShadowTensor(Tensor):
    """A tensor on the shadow device. ``_inner`` is the plain CPU tensor that holds its values."""

    _inner: Tensor

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if not all(issubclass(each, Tensor) for each in types):
            return NotImplemented  # theirs is asked, which calls again with tensors
        return Rooms.functions(func, args, kwargs or {})

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        return Rooms.operators(func, args, kwargs or {})

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """``cuda:0``."""
        return CUDA

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        """True."""
        return True

    @property
    def is_cpu(self) -> bool:  # type: ignore[override]
        """False."""
        return False

    def get_device(self) -> int:
        """0, the only device there is."""
        return 0

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        tell("print", "Tensor.__repr__", self.nbytes, "d2h")
        with DisableTorchFunctionSubclass(), torch.no_grad():
            text = repr(self._inner.detach())
        ending = f", device='{CUDA}'"
        if self.grad_fn is not None:
            ending += f", grad_fn=<{type(self.grad_fn).__name__}>"
        elif self.requires_grad:
            ending += ", requires_grad=True"
        text = f"{text[:-1]}{ending})"
        return f"Parameter containing:\n{text}" if isinstance(self, torch.nn.Parameter) else text

    def __format__(self, spec: str) -> str:
        if self.dim() == 0 and not isinstance(self, torch.nn.Parameter):
            return self.item().__format__(spec)
        return object.__format__(self, spec)

    def tolist(self) -> Any:
        """As on CUDA: one copy to the host, then Python numbers."""
        tell("tolist", "Tensor.tolist", self.nbytes, "d2h")
        return self._inner.tolist()

    def numpy(self, *, force: bool = False) -> Any:
        """TypeError, as on CUDA, unless ``force``."""
        if force:
            return self.detach().cpu().resolve_conj().resolve_neg().numpy()
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
            "to host memory first."
        )

    def __array__(self, dtype: Any = None) -> Any:
        return self.numpy()

    def share_memory_(self) -> ShadowTensor:
        """Nothing to do: device memory is shared by its handle."""
        return self

    def is_shared(self) -> bool:
        """True, as for every CUDA tensor."""
        return True

    def record_stream(self, stream: Any) -> None:
        """Nothing to do: there is one stream."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment."
            )
        with torch.no_grad():
            copy: Any = wrap(self._inner.clone())
        copy = (
            torch.nn.Parameter(copy, self.requires_grad)
            if isinstance(self, torch.nn.Parameter)
            else copy.requires_grad_(self.requires_grad)
        )
        memo[id(self)] = copy
        if self.grad is not None:
            copy.grad = self.grad.__deepcopy__(memo)
        return copy

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Rooms.pickled(self, protocol)

    def __dlpack__(self, *args: Any, **kwargs: Any) -> Any:
        refuse(
            "Tensor.__dlpack__",
            "device memory cannot be handed to another library without a device",
        )

    @property
    def __cuda_array_interface__(self) -> Any:
        refuse(
            "Tensor.__cuda_array_interface__",
            "device memory cannot be handed to another library without a device",
        )


class Quietly:
    """Inside, reads are part of what was told, or checks that CUDA does not make."""

    def __enter__(self) -> None:
        self._before = HERE.quiet
        HERE.quiet = True

    def __exit__(self, *_: object) -> None:
        HERE.quiet = self._before
