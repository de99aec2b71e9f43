"""``torch.cuda`` and ``torch.accelerator`` as they look with one GPU of a named model."""

from __future__ import annotations

import pickle
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.autograd import profiler

from auditor.allocator.ledger import EVENTS
from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private import cuda, training
from auditor.capture.instruments.torch_private.training import ProfilerState
from auditor.capture.shadow import streams
from auditor.capture.shadow.current import CUDA, Current, GpuModel, must_be_the_process, tell
from auditor.capture.shadow.functions import legacy_new
from auditor.capture.shadow.tensor import LEGACY_TYPES, ShadowTensor, as_type, device_of, type_name


class LiveBytes:
    """Memory without an allocator: as much is reserved as lives."""

    def __init__(self, playing: Current) -> None:
        self._playing = playing

    @property
    def total_bytes(self) -> int:
        """Bytes of the card."""
        return self._playing.gpu.total_bytes

    def stats(self) -> dict[str, int]:
        """The keys of ``torch.cuda.memory_stats`` that programs read; what is not modelled is 0."""
        stats: dict[str, int] = dict.fromkeys(EVENTS, 0)
        for kind in ("allocated", "reserved", "active", "requested", "inactive_split"):
            name, modelled = f"{kind}_bytes", kind != "inactive_split"
            stats[f"{name}.all.current"] = self._playing.live_bytes if modelled else 0
            stats[f"{name}.all.peak"] = self._playing.peak_bytes if modelled else 0
            stats[f"{name}.all.allocated"] = stats[f"{name}.all.freed"] = 0
        return stats

    def reset_peak(self) -> None:
        """The peak is what lives now."""
        self._playing.peak_bytes = self._playing.live_bytes

    def empty_cache(self) -> None:
        """Nothing is cached."""

    def snapshot(self) -> dict[str, Any] | None:
        """There is no allocator to take one of."""
        return None


def _recorded(operator: str, does: _Hook, *, blocking: bool = False) -> _Hook:
    def hook(*args: Any, **kwargs: Any) -> Any:
        tell("allocator", operator, blocking=blocking)
        return does()

    return hook


class Facade:
    """The functions of one module, by name."""

    def __init__(self, playing: Current, module: str) -> None:
        self._module = module
        self._memory = playing.listener.memory or LiveBytes(playing)

    def housekeeping(self) -> dict[str, _Hook]:
        """Costly calls: each is a crossing. ``empty_cache`` waits, since cudaFree does."""
        name, memory = self._module, self._memory
        return {
            "empty_cache": _recorded(f"{name}.empty_cache", memory.empty_cache, blocking=True),
            "reset_peak_memory_stats": _recorded(
                f"{name}.reset_peak_memory_stats", memory.reset_peak
            ),
            "reset_accumulated_memory_stats": _recorded(
                f"{name}.reset_accumulated_memory_stats", lambda: None
            ),
            "memory_stats": _recorded(f"{name}.memory_stats", memory.stats),
            "memory_allocated": self._reads("allocated_bytes.all.current"),
            "max_memory_allocated": self._reads("allocated_bytes.all.peak"),
            "memory_reserved": self._reads("reserved_bytes.all.current"),
            "max_memory_reserved": self._reads("reserved_bytes.all.peak"),
        }

    def _reads(self, key: str) -> _Hook:
        return lambda *args, **kwargs: self._memory.stats()[key]

    def free_and_total(self) -> tuple[int, int]:
        """As ``torch.cuda.mem_get_info``."""
        total = self._memory.total_bytes
        return max(0, total - self._memory.stats()["reserved_bytes.all.current"]), total

    def summary(self) -> str:
        """In place of torch's table."""
        stats = self._memory.stats()
        allocated, reserved = (
            stats["allocated_bytes.all.current"],
            stats["reserved_bytes.all.current"],
        )
        return f"allocated {allocated}, reserved {reserved} of {self._memory.total_bytes} bytes"

    def segments(self) -> list[Any]:
        """As ``torch.cuda.memory_snapshot``."""
        snapshot = self._memory.snapshot()
        return [] if snapshot is None else list(snapshot["segments"])


def cuda_functions(playing: Current) -> dict[str, _Hook]:
    """For ``torch.cuda``."""
    facade = Facade(playing, "torch.cuda")
    known = facade.housekeeping()
    return {
        **known,
        "ipc_collect": _recorded("torch.cuda.ipc_collect", lambda: None, blocking=True),
        "reset_max_memory_allocated": known["reset_peak_memory_stats"],
        "reset_max_memory_cached": known["reset_peak_memory_stats"],
        "memory_cached": known["memory_reserved"],
        "max_memory_cached": known["max_memory_reserved"],
        "memory_summary": _recorded("torch.cuda.memory_summary", facade.summary),
        "memory_snapshot": _recorded("torch.cuda.memory_snapshot", facade.segments),
        "mem_get_info": _recorded("torch.cuda.mem_get_info", facade.free_and_total),
        "set_per_process_memory_fraction": lambda *args, **kwargs: None,
        "get_per_process_memory_fraction": lambda *args, **kwargs: 1.0,
    }


def accelerator_functions(playing: Current) -> dict[str, _Hook]:
    """For ``torch.accelerator``."""
    facade = Facade(playing, "torch.accelerator")
    return {
        **facade.housekeeping(),
        "get_memory_info": _recorded("torch.accelerator.get_memory_info", facade.free_and_total),
    }


def history_functions(playing: Current) -> dict[str, _Hook]:
    """For ``torch.cuda.memory``: the listener's allocator records anyway; empty without one."""
    memory = playing.listener.memory
    if memory is None:
        return {}

    def dump(filename: str = "dump_snapshot.pickle", *args: Any, **kwargs: Any) -> None:
        Path(filename).write_bytes(pickle.dumps(memory.snapshot()))

    return {
        "_record_memory_history": lambda *args, **kwargs: None,
        "_snapshot": lambda *args, **kwargs: memory.snapshot(),
        "_dump_snapshot": dump,
    }


_Hook = Callable[..., Any]
_TensorBase: Any = torch.Tensor.__base__


EXACT_FOREACH = ("adam", "sgd", "adagrad", "rmsprop", "adadelta", "adamax")
"""Optimizers whose foreach path gives the bits of the CPU's default; others keep the latter."""


CUDA_VERSION = "12.8"
"""What torch says where it is built for no CUDA: as most of its builds since 2.7."""


def _properties(gpu: GpuModel) -> types.SimpleNamespace:
    """What ``get_device_properties`` says of the card."""
    return types.SimpleNamespace(
        name=gpu.name,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        total_memory=gpu.total_bytes,
        multi_processor_count=gpu.processors,
        is_integrated=0,
        is_multi_gpu_board=0,
        max_threads_per_multi_processor=2048,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=49152,
        warp_size=32,
        L2_cache_size=50 << 20,
        gcnArchName="",
        uuid="00000000-0000-0000-0000-000000000000",
    )


def install(patches: Patches, playing: Current) -> None:
    """Put the whole surface in place."""
    _put(
        patches,
        torch.cuda,
        {**_device(playing.gpu), **_random(), **_streams(), **cuda_functions(playing)},
    )
    _put(
        patches, torch.accelerator, {**_accelerator(playing.gpu), **accelerator_functions(playing)}
    )
    for name in ("Stream", "Event", "StreamContext"):
        patches.attribute(torch.cuda, name, getattr(streams, name))
        if hasattr(torch.cuda.streams, name):
            patches.attribute(torch.cuda.streams, name, getattr(streams, name))
    for name in ("Stream", "Event"):
        patches.attribute(torch, name, getattr(streams, name))
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        patches.attribute(torch.cuda.nvtx, name, _says(0))
    if torch.version.cuda is None:  # libraries ask it for what the card can do
        patches.attribute(torch.version, "cuda", CUDA_VERSION)
    patches.attribute(torch, "Generator", streams.Generator)
    patches.attribute(torch.cuda, "default_generators", (torch.default_generator,))
    for dtype, name in LEGACY_TYPES.items():
        patches.attribute(torch.cuda, f"{name}Tensor", _legacy_type(name, dtype))
    _install_internals(patches)
    _install_profilers(patches)
    _put(
        patches,
        torch.backends.cudnn,
        {"is_available": _says(True), "is_acceptable": _says(False), "version": _says(90100)},
    )
    _put(patches, torch, {"set_default_tensor_type": _set_default_tensor_type})
    patches.on_undo(_plain_constructor)


def _install_internals(patches: Patches) -> None:
    """Functions of torch._C that ask for the C++ device."""

    def grouped(lists: Any, with_indices: bool = False) -> Any:
        """C++ groups by the C++ device: say the device of each group's first tensor instead."""
        named = {}
        for (device, dtype), value in cuda.group_by_device(lists, with_indices).items():
            first = next((one for one in value[0][0] if one is not None), None)
            named[CUDA if isinstance(first, ShadowTensor) else device, dtype] = value
        return named

    internals = {
        "_group_tensors_by_device_and_dtype": grouped,
        "_get_accelerator": _says(torch.device("cuda")),
        "_accelerator_getAccelerator": _says(torch.device("cuda")),
        "_accelerator_exchangeDevice": _says(0),
        "_accelerator_maybeExchangeDevice": _says(0),
    }
    for name, value in internals.items():
        if hasattr(cuda.C, name):
            patches.attribute(cuda.C, name, value)
    # clipping takes the foreach path, its default on CUDA
    training.foreach_types.append(ShadowTensor)
    patches.on_undo(lambda: training.foreach_types.remove(ShadowTensor))
    for name in EXACT_FOREACH:
        known = training.foreach_default(name)
        if known is not None:
            patches.attribute(known[0], training.FOREACH_DEFAULT, _foreach_default(known[1]))


def _foreach_default(original: _Hook) -> _Hook:
    """The optimizers' own choice, for shadows as for tensors of a device."""

    def chosen(params: Any, differentiable: bool, use_fused: bool = False) -> tuple[bool, bool]:
        if differentiable or not any(isinstance(p, ShadowTensor) for p in params):
            chosen_by_torch: tuple[bool, bool] = original(params, differentiable, use_fused)
            return chosen_by_torch
        return False, all(p is None or isinstance(p, ShadowTensor) for p in params)

    return chosen


def _put(patches: Patches, module: Any, hooks: dict[str, _Hook]) -> None:
    """Make ``module.name(...)`` call its hook, by every reference where torch has it in Python."""
    for name, hook in hooks.items():
        function = getattr(module, name, None)
        if function is None:
            continue
        if (
            isinstance(function, types.FunctionType)
            and not function.__code__.co_freevars
            and not hasattr(function, "__wrapped__")
        ):
            patches.code(function, _without_original(hook))
        else:
            patches.attribute(module, name, hook)


def _without_original(hook: _Hook) -> _Hook:
    return lambda original, *args, **kwargs: hook(*args, **kwargs)


def _says(value: Any) -> _Hook:
    return lambda *args, **kwargs: value


def _device(gpu: GpuModel) -> dict[str, _Hook]:
    def synchronize(device: Any = None) -> None:
        tell("synchronize", "torch.cuda.synchronize")

    def set_device(device: Any) -> None:
        if not (isinstance(device, int) and device < 0):
            device_of(device)

    def is_bf16_supported(including_emulation: bool = True) -> bool:
        return gpu.capability >= (8, 0) or including_emulation

    architecture = f"sm_{gpu.capability[0]}{gpu.capability[1]}"
    return {
        "is_available": _says(True),
        "is_initialized": _says(True),
        "init": _says(None),
        "_lazy_init": must_be_the_process,
        "device_count": _says(1),
        "current_device": _says(0),
        "set_device": set_device,
        "_exchange_device": _says(0),
        "_maybe_exchange_device": _says(0),
        "get_device_name": _says(gpu.name),
        "get_device_capability": _says(gpu.capability),
        "get_device_properties": _says(_properties(gpu)),
        "get_arch_list": _says([architecture]),
        "is_bf16_supported": is_bf16_supported,
        "is_tf32_supported": _says(gpu.capability >= (8, 0)),
        "can_device_access_peer": _says(False),
        "synchronize": synchronize,
        "set_sync_debug_mode": _says(None),
        "get_sync_debug_mode": _says(0),
    }


def _random() -> dict[str, _Hook]:
    """The device draws the host's numbers, so that a rehearsal repeats the CPU's run."""
    return {
        "manual_seed": _says(None),
        "manual_seed_all": _says(None),
        "seed": _says(None),
        "seed_all": _says(None),
        "initial_seed": torch.initial_seed,
        "get_rng_state": lambda device="cuda": torch.get_rng_state(),
        "get_rng_state_all": lambda: [torch.get_rng_state()],
        "set_rng_state": lambda state, device="cuda": torch.set_rng_state(state),
        "set_rng_state_all": lambda states: torch.set_rng_state(next(iter(states))),
    }


def _streams() -> dict[str, _Hook]:
    return {
        "current_stream": streams.current_stream,
        "default_stream": streams.default_stream,
        "set_stream": streams.set_stream,
        "stream": streams.StreamContext,
        "is_current_stream_capturing": _says(False),
    }


def _accelerator(gpu: GpuModel) -> dict[str, _Hook]:
    def synchronize(device: Any = None, /) -> None:
        tell("synchronize", "torch.accelerator.synchronize")

    return {
        "is_available": _says(True),
        "device_count": _says(1),
        "current_accelerator": _says(torch.device("cuda")),
        "current_device_index": _says(0),
        "current_device_idx": _says(0),
        "set_device_index": _says(None),
        "set_device_idx": _says(None),
        "current_stream": streams.current_stream,
        "set_stream": streams.set_stream,
        "synchronize": synchronize,
        "get_device_capability": _says({"supported_dtypes": set(LEGACY_TYPES)}),
    }


def _legacy_type(name: str, dtype: torch.dtype) -> type:
    """``torch.cuda.FloatTensor``: makes tensors, and knows its own by isinstance."""

    class Legacy(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            return legacy_new(args, dtype)

        def __instancecheck__(cls, instance: object) -> bool:
            return (
                isinstance(instance, ShadowTensor)
                and type_name(instance) == f"torch.cuda.{name}Tensor"
            )

    return Legacy(
        f"{name}Tensor", (), {"__module__": "torch.cuda", "dtype": dtype, "is_cuda": True}
    )


def _set_default_tensor_type(kind: Any) -> None:
    name = kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
    sample = as_type(torch.Tensor.type, torch.empty(0, device="cpu"), name)
    torch.set_default_dtype(sample.dtype)
    torch.set_default_device(sample.device if sample.is_cuda else None)
    if sample.is_cuda:
        torch.Tensor.__new__ = staticmethod(_device_constructor)  # type: ignore[assignment]
    else:
        _plain_constructor()


def _device_constructor(cls: type, *args: Any, **kwargs: Any) -> Any:
    """``torch.Tensor(...)`` under a default type of CUDA, which a default device does not reach."""
    tensor_on_host = (
        bool(args) and isinstance(args[0], torch.Tensor) and not isinstance(args[0], ShadowTensor)
    )
    if cls is torch.Tensor and not kwargs and not tensor_on_host:
        return legacy_new(args, torch.get_default_dtype())
    return _TensorBase.__new__(cls, *args, **kwargs)


def _plain_constructor() -> None:
    if "__new__" in vars(torch.Tensor):
        del torch.Tensor.__new__


# -- profiling -------------------------------------------------------------------------------------
# The user's own profilers on the shadow device: they see the host; what they would ask of a GPU is
# left out.


def _install_profilers(patches: Patches) -> None:
    """Without CUDA's tracer torch marks operators by device events: a CPU build warns at each."""
    make: Any = profiler.profile.__init__
    make_nvtx: Any = profiler.emit_nvtx.__init__

    def init(self: Any, enabled: bool = True, **given: Any) -> None:
        on_cuda = given.get("use_device") == "cuda" or given.get("use_cuda", False)
        make(self, enabled, **{**given, "use_cpu": True} if on_cuda else given)
        if enabled and self.profiler_kind == ProfilerState.KINETO_GPU_FALLBACK:
            self.profiler_kind = ProfilerState.KINETO

    def init_nvtx(self: Any, enabled: bool = True, *given: Any, **named: Any) -> None:
        make_nvtx(self, False, *given, **named)

    patches.attribute(profiler.profile, "__init__", init)
    patches.attribute(profiler.emit_nvtx, "__init__", init_nvtx)
