"""Starting and stopping the shadow: one at a time, everything undone at the end."""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import numbers
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Self

import torch
import torch.jit.annotations
import torch.utils.dlpack

from auditor.capture.instruments.environment import default_device
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private import cuda
from auditor.capture.instruments.torch_private.compiler import HELD
from auditor.capture.instruments.torch_private.dispatch import (
    HAS_SCHEMAS,
    DisableTorchFunctionSubclass,
    EnableTorchFunction,
)
from auditor.capture.instruments.torch_private.look_up import REHEARSAL_NEEDS, Missing, require
from auditor.capture.instruments.torch_private.tensors import (
    key_of,
    locations,
    rebuild_parameter,
    rebuild_tensor,
    untyped,
)
from auditor.capture.shadow import facade, functions, one_rank, paths
from auditor.capture.shadow import operators as _operators  # noqa: F401 - wires itself to the class of tensors
from auditor.capture.shadow.current import (
    HERE,
    MODELS,
    PLAYING,
    Current,
    GpuModel,
    Listener,
    note,
    refuse,
    tell,
)
from auditor.capture.shadow.one_rank import innermost
from auditor.capture.shadow.tensor import Rooms, ShadowTensor, device_of, on_cuda, wrap
from auditor.errors import AuditProblem
from auditor.model.gpus import gpu_named

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

CUDA_ONLY = """
    CUDAGraph graph make_graphed_callables graph_pool_handle MemPool use_mem_pool
    CUDAPluggableAllocator change_current_allocator caching_allocator_alloc
    caching_allocator_delete ExternalStream get_stream_from_external current_blas_handle cudart
    utilization temperature power_draw clock_rate memory_usage device_memory_used
    list_gpu_processes _sleep GreenContext _compile_kernel
""".split()
"""Names of torch.cuda that mean nothing without a device."""

RECORDING = ("_record_memory_history", "_snapshot", "_dump_snapshot")
"""Names of torch.cuda.memory that only the real allocator can answer."""


def install_limits(patches: Patches, playing: Current) -> None:
    """Refuse each; what ``torch.compile`` is given runs as it is."""
    compiler: Any = torch.compile
    patches.code(compiler, _compile_eagerly)
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
    answers = facade.history_functions(playing)
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
        "was not compiled in the rehearsal: its functions ran as they are, and graph breaks, "
        "recompilations and memory are not known",
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
    reason = "tensors that are split over GPUs are not simulated"
    for name, names in SHARDS.items():
        module = sys.modules.get(name)
        for each in names:
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
            refuse("torch.nested", "nested tensors are not simulated")
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


_ON_DEVICE = "_auditor_on_device"
_PRIORITY = 1  # before torch's own, which begin at 10


def install_saving(patches: Patches) -> None:
    """Teach torch.save and torch.load where shadow storages lie."""
    entry = (
        _PRIORITY,
        lambda storage: "cuda:0" if getattr(storage, _ON_DEVICE, False) else None,
        _restore,
    )
    locations.insert(0, entry)
    patches.on_undo(lambda: locations.remove(entry))
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
        return rebuild_parameter, (tensor.detach(), tensor.requires_grad, OrderedDict())
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


def install_numbered(patches: Patches) -> None:
    """Take numbers where this build of torch does not."""
    if torch.version.cuda is not None:
        return
    device = _DeviceType("device", (), {"__module__": "torch", "__doc__": _Device.__doc__})
    patches.attribute(torch, "device", device)
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


IMPORTED_FIRST = (
    "torch._dynamo",  # optimizers import it late
    # the first forward derivative does, and it scripts what it imports
    "torch._decomp.decompositions_for_jvp",
)
"""What torch itself imports when it is first needed, and must see torch as it is."""


class ShadowDevice:
    """A CUDA device played on the CPU; ``start`` and ``stop``, or ``with``."""

    def __init__(
        self, listener: Listener | None = None, *, gpu: str | GpuModel = MODELS[0]
    ) -> None:
        self._current = Current(
            listener or Listener(), gpu if isinstance(gpu, GpuModel) else model_named(gpu)
        )
        self._patches = Patches()

    @property
    def gpu(self) -> GpuModel:
        """The card that is played."""
        return self._current.gpu

    @property
    def operators(self) -> int:
        """Operators that ran on the device so far."""
        return self._current.operators

    def start(self) -> Self:
        """Play; RuntimeError where a GPU is, another shadow plays, or torch lacks its parts."""
        if PLAYING[0] is not None:
            raise RuntimeError("a shadow CUDA device is already being played in this process")
        if torch.cuda.is_available():
            raise RuntimeError("this machine has a CUDA device: run the program on it instead")
        require(*sorted(REHEARSAL_NEEDS))
        if not HAS_SCHEMAS:
            raise Missing("torch._ops.OpOverload._schema")
        for name in IMPORTED_FIRST:
            # a torch without it imports nothing late
            with contextlib.suppress(ModuleNotFoundError):
                importlib.import_module(name)
        try:
            self._install()
        except BaseException:
            self.stop()
            raise
        return self

    def _install(self) -> None:
        PLAYING[0] = self._current
        self._patches.on_undo(lambda: PLAYING.__setitem__(0, None))
        paths.install_autocast(self._patches)
        paths.install(self._patches)
        install_numbered(self._patches)
        functions.install_factories(self._patches)
        functions.install_methods(self._patches)
        one_rank.install_parallel(self._patches)
        one_rank.install(self._patches)
        install_saving(self._patches)
        enter: Any = torch.autograd.graph.saved_tensors_hooks.__enter__
        self._patches.code(enter, _entered)  # hooks see the device as the program's other code does
        facade.install(self._patches, self._current)
        install_limits(self._patches, self._current)
        self._patches.on_undo(_forget_default_device)

    def stop(self) -> None:
        """Undo everything; may be called twice. Shadow tensors stay usable."""
        self._patches.undo()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


shadow_cuda = ShadowDevice


def model_named(name: str) -> GpuModel:
    """The card with ``name`` as a word of its name or as its key; ValueError lists them."""
    for model in MODELS:
        if name == model.name or name.lower() in model.name.lower().split():
            return model
    try:
        known = gpu_named(name).name
    except AuditProblem:
        raise ValueError(
            f"no GPU model {name!r}; there are: {', '.join(model.name for model in MODELS)}"
        ) from None
    return next(model for model in MODELS if model.name == known)


def _forget_default_device() -> None:
    """A default device that the program left behind would not exist any more."""
    if default_device().type == "cuda":
        torch.set_default_device(None)


# -- packing ---------------------------------------------------------------------------------------
# The program's own ``saved_tensors_hooks`` (``save_on_cpu`` among them), which torch calls from
# inside an operator.


def _entered(original: Callable[..., Any], hooks: Any) -> Any:
    """Inside an operator a hook's crossings would not be seen: each runs as if outside."""
    pack, unpack = hooks.pack_hook, hooks.unpack_hook
    if str(getattr(pack, "__module__", "")).startswith("auditor."):
        return original(hooks)
    hooks.pack_hook, hooks.unpack_hook = _outside(pack), _outside(unpack)
    try:
        return original(hooks)
    finally:
        hooks.pack_hook, hooks.unpack_hook = pack, unpack


def _outside(hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(given: Any) -> Any:
        function, HERE.function = HERE.function, None
        try:
            with EnableTorchFunction():
                return hook(given)
        finally:
            HERE.function = function

    return run
