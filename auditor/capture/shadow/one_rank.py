"""``torch.distributed`` with one process: NCCL's groups of one rank, and
``DistributedDataParallel`` over them, change no value.

A group is Gloo's, which needs no device, with a store of this process and no port. A collective of
one rank leaves a tensor as it is, or copies it. ``DistributedDataParallel`` runs its module, and
holds on the device what its reducer would. More ranks than one are refused.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

import torch
from torch.nn.parallel import scatter_gather

from auditor.capture.instruments.monkeypatch import Patches
from auditor.capture.instruments.torch_private.dispatch import tree_leaves
from auditor.capture.instruments.torch_private.training import set_static_graph
from auditor.capture.shadow.current import refuse, tell
from auditor.capture.shadow.tensor import ShadowTensor


def install_parallel(patches: Patches) -> None:
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
            refuse("torch.nn.DataParallel", "one GPU is simulated, on one thread")
        original(parallel, module, device_ids, *args, **kwargs)

    return init


def _scatter(
    original: Callable[..., Any], inputs: Any, target_gpus: Sequence[Any], dim: int = 0
) -> list[Any]:
    """comm.cpp: each chunk by ``to(device, non_blocking=true)``; on the device a view."""
    (device,) = target_gpus
    where = torch.device("cuda", device) if isinstance(device, int) else device
    return [moved_inputs(inputs, where, non_blocking=True)]


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


Tensor = torch.Tensor
_Arguments = dict[str, Any]
ENV: Final = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What ``env://`` reads; torch says itself which of them is missing."""


def install(patches: Patches) -> None:
    """Let one rank work as on a machine with one GPU."""
    if not torch.distributed.is_available():
        return
    asked: dict[Any, str] = {}
    module: Any = torch.distributed.distributed_c10d
    hooks: dict[str, Callable[..., Any]] = {
        "init_process_group": functools.partial(_init_process_group, asked),
        "new_group": functools.partial(_new_group, asked),
        "get_backend": functools.partial(_get_backend, asked),
        "is_nccl_available": lambda original: True,
        "barrier": _barrier,
        **{name: functools.partial(_collective, does) for name, does in COLLECTIVES.items()},
    }
    for name, hook in hooks.items():
        function = innermost(getattr(module, name, None))
        if function is not None:
            patches.code(function, hook)
    patches.on_undo(lambda: _destroy(asked))
    _install_parallel(patches)


def innermost(function: Any) -> Any:
    """The function below torch's decorators; None if there is no code to swap."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return (
        function
        if isinstance(function, types.FunctionType) and not function.__code__.co_freevars
        else None
    )


# -- groups


def _init_process_group(
    asked: dict[Any, str], original: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    given = inspect.signature(original).bind(*args, **kwargs)
    given.apply_defaults()
    backend = given.arguments["backend"]
    if backend is not None and "nccl" not in str(backend).lower():
        return original(*args, **kwargs)
    size = _world_size(given.arguments)
    if size is None:  # torch's own error
        return original(*args, **{**kwargs, "backend": "gloo"} if not args else kwargs)
    if size != 1:
        refuse(
            "torch.distributed.init_process_group", f"one rank on one GPU is simulated, not {size}"
        )
    done = original("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)  # type: ignore[attr-defined]
    asked[torch.distributed.group.WORLD] = "nccl" if backend is None else str(backend)
    return done


def _world_size(given: _Arguments) -> int | None:
    """Ranks that init_process_group asks for; None if torch would refuse the call."""
    if given["world_size"] >= 0:
        return int(given["world_size"])
    if given["store"] is not None:
        return None
    url = urlsplit(given["init_method"] or "env://")
    query = parse_qs(url.query)
    if url.scheme == "env" and all(name in os.environ or name.lower() in query for name in ENV):
        return int(query.get("world_size", [os.environ.get("WORLD_SIZE", "")])[0])
    return int(query["world_size"][0]) if "world_size" in query else None


def _new_group(
    asked: dict[Any, str], original: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    given = inspect.signature(original).bind(*args, **kwargs)
    backend = str(given.arguments.get("backend") or asked.get(torch.distributed.group.WORLD, ""))
    if "nccl" not in backend.lower():
        return original(*args, **kwargs)
    given.arguments["backend"] = "gloo"
    given.arguments.pop("device_id", None)
    group = original(*given.args, **given.kwargs)
    asked[group] = backend
    return group


def _get_backend(asked: dict[Any, str], original: Callable[..., Any], group: Any = None) -> Any:
    return asked.get(torch.distributed.group.WORLD if group is None else group) or original(group)


def _destroy(asked: dict[Any, str]) -> None:
    """A group that the program left behind would not exist any more."""
    if torch.distributed.is_initialized() and torch.distributed.group.WORLD in asked:
        torch.distributed.destroy_process_group()


def _alone(group: Any) -> bool:
    return torch.distributed.get_world_size(group) == 1


# -- collectives


class Done:
    """The work of a collective that has nothing to wait for."""

    def __init__(self, result: Any) -> None:
        self._result = result

    def wait(self, timeout: Any = None) -> bool:
        """True, at once."""
        return True

    def is_completed(self) -> bool:
        """True."""
        return True

    is_success = is_completed

    def result(self) -> list[Tensor]:
        """The tensors."""
        return [one for one in tree_leaves(self._result) if isinstance(one, Tensor)]

    def get_future(self) -> torch.futures.Future[Any]:
        """A future that has its value."""
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self.result())
        return future


def _collective(
    does: Callable[[_Arguments], Any], original: Callable[..., Any], *args: Any, **kwargs: Any
) -> Any:
    given = inspect.signature(original).bind(*args, **kwargs)
    given.apply_defaults()
    on_device = any(isinstance(one, ShadowTensor) for one in tree_leaves((args, kwargs)))
    if not on_device or not _alone(given.arguments.get("group")):
        return original(*args, **kwargs)
    with torch.no_grad():
        result = does(given.arguments)
    return Done(result) if given.arguments.get("async_op") else None


def _barrier(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """ProcessGroupNCCL.cpp: the host waits for what was launched, whatever the number of ranks."""
    tell("synchronize", "torch.distributed.barrier")
    return original(*args, **kwargs)


def _stays(name: str) -> Callable[[_Arguments], Any]:
    return lambda given: given[name]


def _copied(target: str, source: str) -> Callable[[_Arguments], Any]:
    """What one rank receives is what it sent; a list has one part for each rank."""

    def does(given: _Arguments) -> Any:
        to, what = given[target], given[source]
        if to is None or what is None:
            return given.get("tensor")
        to, what = (one[0] if isinstance(one, (list, tuple)) else one for one in (to, what))
        return to.copy_(what.reshape(to.shape))

    return does


COLLECTIVES: Final[dict[str, Callable[[_Arguments], Any]]] = {
    "all_reduce": _stays("tensor"),
    "all_reduce_coalesced": _stays("tensors"),
    "broadcast": _stays("tensor"),
    "reduce": _stays("tensor"),
    "all_gather": _copied("tensor_list", "tensor"),
    "all_gather_into_tensor": _copied("output_tensor", "input_tensor"),
    "_all_gather_base": _copied("output_tensor", "input_tensor"),
    "reduce_scatter": _copied("output", "input_list"),
    "reduce_scatter_tensor": _copied("output", "input"),
    "_reduce_scatter_base": _copied("output", "input"),
    "all_to_all": _copied("output_tensor_list", "input_tensor_list"),
    "all_to_all_single": _copied("output", "input"),
    "gather": _copied("gather_list", "tensor"),
    "scatter": _copied("tensor", "scatter_list"),
}
"""Function -> what it does to its arguments in a group of one rank."""


# -- DistributedDataParallel

_BUCKETS: weakref.WeakKeyDictionary[Any, list[Tensor]] = weakref.WeakKeyDictionary()
"""What each reducer holds on the device: a copy of all gradients, unless they are views."""


def _install_parallel(patches: Patches) -> None:
    kind: Any = torch.nn.parallel.DistributedDataParallel
    patches.attribute(kind, "__init__", _init(kind.__init__))
    patches.attribute(kind, "forward", _unless_reduced(kind.forward, _forward))
    patches.attribute(kind, "__getstate__", _unless_reduced(kind.__getstate__, _state))
    patches.attribute(kind, "__setstate__", _with_state(kind.__setstate__))
    patches.attribute(kind, "join", _unless_reduced(kind.join, _join))
    patches.attribute(kind, "_set_static_graph", _unless_reduced(set_static_graph, _nothing))
    patches.attribute(
        kind, "register_comm_hook", _unless_reduced(kind.register_comm_hook, _comm_hook)
    )


def _init(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def init(parallel: Any, *args: Any, **kwargs: Any) -> None:
        given = inspect.signature(original).bind(parallel, *args, **kwargs)
        given.apply_defaults()
        module = given.arguments["module"]
        learned = [one for one in module.parameters() if one.requires_grad]
        if not any(isinstance(one, ShadowTensor) for one in module.parameters()):
            original(parallel, *args, **kwargs)
        elif not learned:
            raise RuntimeError(
                "DistributedDataParallel is not needed when a module doesn't have any parameters "
                "that require a gradient."
            )
        else:
            _set_up(parallel, given.arguments, learned)

    return init


def _set_up(parallel: Any, given: _Arguments, learned: list[Tensor]) -> None:
    devices, mesh = given["device_ids"], given.get("device_mesh")
    group = mesh.get_group(0) if mesh is not None else given["process_group"]
    group = torch.distributed.group.WORLD if group is None else group
    if not _alone(group):
        refuse("torch.nn.parallel.DistributedDataParallel", "one rank on one GPU is simulated")
    if given.get("mixed_precision") is not None:
        refuse(
            "torch.nn.parallel.DistributedDataParallel", "its own mixed precision is not simulated"
        )
    if devices is not None and len(devices) > 1:
        raise ValueError("device_ids can only be None or contain a single element.")
    torch.nn.Module.__init__(parallel)
    kept = "broadcast_buffers find_unused_parameters gradient_as_bucket_view dim static_graph"
    parallel.__dict__.update({name: given[name] for name in kept.split() if name in given})
    parallel.module, parallel.process_group = given["module"], group
    parallel.device, parallel.device_type, parallel.is_multi_device_module = (
        learned[0].device,
        "cuda",
        False,
    )
    parallel.device_ids = None if not devices else [0]
    parallel.output_device = None if not devices else 0
    parallel.require_backward_grad_sync = parallel.require_forward_param_sync = True
    _hold_buckets(parallel)


def _hold_buckets(parallel: Any) -> None:
    sizes: dict[torch.dtype, int] = {}
    for one in parallel.module.parameters():
        if one.requires_grad and not parallel.gradient_as_bucket_view:
            sizes[one.dtype] = sizes.get(one.dtype, 0) + one.numel()
    _BUCKETS[parallel] = [
        torch.empty(size, dtype=dtype, device="cuda") for dtype, size in sizes.items()
    ]


def _unless_reduced(original: Callable[..., Any], played: Callable[..., Any]) -> Callable[..., Any]:
    """One whose module lies on the host is torch's own, with a reducer."""

    @functools.wraps(original)
    def method(parallel: Any, *args: Any, **kwargs: Any) -> Any:
        return (original if "reducer" in parallel.__dict__ else played)(parallel, *args, **kwargs)

    return method


def _forward(parallel: Any, *inputs: Any, **kwargs: Any) -> Any:
    if parallel.device_ids:
        inputs, kwargs = (
            moved_inputs(one, parallel.device, non_blocking=False) for one in (inputs, kwargs)
        )
    return parallel.module(*inputs, **kwargs)


def _state(parallel: Any) -> _Arguments:
    """As torch's: a copy, or what is loaded, belongs to the default group."""
    return {name: value for name, value in parallel.__dict__.items() if name != "process_group"}


def _with_state(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def set_state(parallel: Any, state: _Arguments) -> None:
        if state.get("device_type") != "cuda":
            original(parallel, state)
            return
        torch.nn.Module.__setstate__(parallel, state)
        parallel.process_group = torch.distributed.group.WORLD
        _hold_buckets(parallel)

    return set_state


@contextlib.contextmanager
def _join(parallel: Any, *args: Any, **kwargs: Any) -> Iterator[None]:
    yield


def _nothing(parallel: Any) -> None:
    """There is no reducer to tell."""


def _comm_hook(parallel: Any, *args: Any, **kwargs: Any) -> None:
    refuse(
        "DistributedDataParallel.register_comm_hook",
        "what a hook does to gradients on their way is not played",
    )
