"""What the shadow cannot do: each is refused by name: nothing goes on as another program."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.utils.dlpack

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.compiler import HELD
from auditor.capture.shadow import memory
from auditor.capture.shadow.current import Current, note, refuse
from auditor.capture.shadow.moving import device_of, on_cuda
from auditor.capture.shadow.one_rank import innermost
from auditor.capture.shadow.tensor import ShadowTensor

# -- compiled module -------------------------------------------------------------------------------
# What ``torch.compile`` gives for a module in a rehearsal: one that runs it as it is, and has the
# names of a compiled one.


class EagerModule(torch.nn.Module):
    """Holds the module under torch's name for it, so that a program that takes it off again
    (``compiled._orig_mod``), or looks at the keys of ``state_dict()``, goes the way that it goes
    with the compiler. All other attributes are the module's.
    """

    _held: torch.nn.Module
    _made: bool

    def __init__(self, module: torch.nn.Module) -> None:
        self.__dict__["_held"] = module
        self.__dict__["_made"] = False
        super().__init__()
        super().__setattr__(HELD, module)
        self.__dict__["_made"] = True

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's, with its hooks."""
        return self._held(*args, **kwargs)

    @property
    def training(self) -> bool:  # type: ignore[override]
        """The module's."""
        return bool(self._held.training)

    @training.setter
    def training(self, value: bool) -> None:
        """The module's as well."""
        if self._made:  # not what ``Module.__init__`` sets it to
            self._held.training = value

    def __getattr__(self, name: str) -> Any:
        held = self.__dict__.get("_held")  # a copy has none until it is filled
        if held is None:
            raise AttributeError(name)
        return held if name == HELD else getattr(held, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__ or hasattr(type(self), name) or not self._made:
            super().__setattr__(name, value)
        else:
            setattr(self._held, name, value)

    def __len__(self) -> int:
        return len(self._held)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._held)  # type: ignore[call-overload,no-any-return]

    def __getitem__(self, place: Any) -> Any:
        return self._held[place]  # type: ignore[index]

    def __bool__(self) -> bool:
        return True


# -- limits ----------------------------------------------------------------------------------------

CUDA_ONLY = [
    "CUDAGraph",
    "graph",
    "make_graphed_callables",
    "graph_pool_handle",
    "MemPool",
    "use_mem_pool",
    "CUDAPluggableAllocator",
    "change_current_allocator",
    "caching_allocator_alloc",
    "caching_allocator_delete",
    "ExternalStream",
    "get_stream_from_external",
    "current_blas_handle",
    "cudart",
    "utilization",
    "temperature",
    "power_draw",
    "clock_rate",
    "memory_usage",
    "device_memory_used",
    "list_gpu_processes",
    "_sleep",
    "GreenContext",
    "_compile_kernel",
]
"""Names of torch.cuda that mean nothing without a device."""

RECORDING = ("_record_memory_history", "_snapshot", "_dump_snapshot")
"""Names of torch.cuda.memory that only the real allocator can answer."""


def install(patches: Patches, playing: Current, *, compiled: str) -> None:
    """Refuse each; ``compiled="eager"`` runs what ``torch.compile`` is given as it is."""
    compiler: Any = torch.compile
    refusal = _refusal("torch.compile", "compiled code asks for a CUDA device")
    patches.code(compiler, _compile_eagerly if compiled == "eager" else refusal)
    for name in CUDA_ONLY:
        known = getattr(torch.cuda, name, None)
        if known is not None:
            refused = _refusal(f"torch.cuda.{name}", "only a real device has it")
            patches.attribute(
                torch.cuda,
                name,
                # a class may stand in annotations and ``isinstance``: only making one is refused
                type(name, (), {"__module__": known.__module__, "__new__": refused})
                if isinstance(known, type)
                else refused,
            )
    answers = memory.history_functions(playing)
    for name in RECORDING:
        if hasattr(torch.cuda.memory, name):
            refused = _refusal(
                f"torch.cuda.memory.{name}", "there is no caching allocator to record"
            )
            patches.attribute(torch.cuda.memory, name, answers.get(name, refused))
    _install_sharding(patches)
    _install_sharing(patches)
    for name in ("nested_tensor", "as_nested_tensor"):
        patches.attribute(torch.nested, name, _nested(getattr(torch.nested, name)))
    _install_extensions(patches)


def _refusal(operator: str, reason: str) -> Callable[..., Any]:
    def refused(*args: Any, **kwargs: Any) -> Any:
        refuse(operator, reason)

    return refused


def _compile_eagerly(original: Any, model: Any = None, **kwargs: Any) -> Any:
    note(
        "torch.compile",
        "was not compiled in the rehearsal, and its graph breaks, recompilations and memory were "
        "not looked at: what it was given ran as it is",
    )
    if model is None:
        return lambda function: _compile_eagerly(original, function, **kwargs)
    plain = isinstance(model, torch.nn.Module) and not kwargs.get("disable")
    return EagerModule(model) if plain and not isinstance(model, EagerModule) else model


SHARDS = {
    "torch.distributed.fsdp": ("fully_shard",),
    "torch.distributed.tensor": ("distribute_tensor", "distribute_module"),
    "torch.distributed.tensor.parallel": ("parallelize_module",),
}
"""Module -> its functions that split tensors over GPUs."""


def _install_sharding(patches: Patches) -> None:
    """Only where torch has imported them: it does so with what it imports first."""
    reason = "tensors that are split over GPUs are not played"
    for name, functions in SHARDS.items():
        module = sys.modules.get(name)
        for each in functions:
            function = innermost(getattr(module, each, None))
            if function is not None:
                patches.code(function, _refusal(f"{name}.{each}", reason))
    kind = getattr(sys.modules.get("torch.distributed.fsdp"), "FullyShardedDataParallel", None)
    if kind is not None:
        patches.attribute(
            kind, "__init__", _refusal("torch.distributed.fsdp.FullyShardedDataParallel", reason)
        )


def _install_sharing(patches: Patches) -> None:
    """Memory handed to other libraries, where no method of the tensor is asked."""
    dlpack: Any = torch.utils.dlpack
    original = dlpack.to_dlpack

    def to_dlpack(tensor: Any) -> Any:
        return tensor.__dlpack__() if isinstance(tensor, ShadowTensor) else original(tensor)

    for module in (torch, dlpack):
        if hasattr(module, "to_dlpack"):
            patches.attribute(module, "to_dlpack", to_dlpack)


def _nested(original: Callable[..., Any]) -> Callable[..., Any]:
    def nested(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        parts = tensors if isinstance(tensors, (list, tuple)) else [tensors]
        if on_cuda(device_of(kwargs.get("device"))) or any(
            isinstance(one, ShadowTensor) for one in parts
        ):
            refuse("torch.nested", "nested tensors are not played")
        return original(tensors, *args, **kwargs)

    return nested


def _install_extensions(patches: Patches) -> None:
    """C++ extensions and Triton kernels: only where the program imported what makes them."""
    extension = sys.modules.get("torch.utils.cpp_extension")
    for name in ("load", "load_inline") if extension is not None else ():
        patches.attribute(
            extension,
            name,
            _refusal(f"torch.utils.cpp_extension.{name}", "a custom kernel needs a real device"),
        )
    if importlib.util.find_spec("triton") is not None:
        from triton.runtime.jit import JITFunction

        patches.attribute(
            JITFunction, "run", _refusal("triton", "a Triton kernel needs a real device")
        )
