"""Every accessor of a private name, on the installed torch and on one that lacks the name."""

import contextlib
import functools
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest import mock

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import auditor.capture.probes.registry
import auditor.capture.shadow.device  # noqa: F401 - with the registry: everything that looks a name up
from auditor.capture.instruments.torch_private import look_up
from auditor.capture.instruments.torch_private.autograd import REDUCTION
from auditor.capture.instruments.torch_private.look_up import FOUND, Missing
from auditor.capture.instruments.torch_private.training import is_compiled
from auditor.capture.shadow.facade import EXACT_FOREACH
from tests.capture.instruments.hidden_names import accessors, hidden

Check = Callable[[SimpleNamespace], None]


class Promise(NamedTuple):
    check: Check
    """Holds where torch has the names."""
    without: Check
    """Holds where it lacks any of them; the same check, where there is another way."""


PROMISES: dict[str, Promise] = {}
ADD = torch.ops.aten.add.Tensor


def promise(*paths: str, without: Check | None = None) -> Callable[[Check], Check]:
    """Registers what accessors give, and without ``without`` give where torch lacks the names."""

    def register(check: Check) -> Check:
        PROMISES.update({path: Promise(check, without or check) for path in paths})
        return check

    return register


def holds(ask: Callable[[SimpleNamespace], Any]) -> Check:
    def check(t: SimpleNamespace) -> None:
        assert ask(t)

    return check


def gives(name: str, *args: Any, value: Any) -> Check:
    """What a call of the accessor gives."""
    return holds(lambda t: getattr(t, name)(*args) == value)


def equals(**constants: Any) -> Check:
    return holds(lambda t: {name: getattr(t, name) for name in constants} == constants)


def refuses(name: str, *args: Any) -> Check:
    def check(t: SimpleNamespace) -> None:
        with pytest.raises(Missing, match=r"torch [\d.]+.* has no torch\."):
            getattr(t, name)(*args)

    return check


# -- distributed -----------------------------------------------------------------------------------

C10D = "torch.distributed.distributed_c10d"
FAKE = "torch._C._distributed_c10d.FakeProcessGroup._create_internal"

promise(FAKE, without=refuses("fake_group", 3, 8))(holds(lambda t: t.fake_group(3, 8).size() == 8))


@promise(f"{C10D}._resolve_process_group", without=gives("group_of_name", "0", value=None))
def a_group_by_its_name(t):
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        whole = torch.distributed.group.WORLD
        assert t.group_of_name(whole.group_name) is whole
    finally:
        torch.distributed.destroy_process_group()


# -- dispatch --------------------------------------------------------------------------------------

MODES = "torch.utils._python_dispatch"


@promise(f"{MODES}.TorchDispatchMode", without=refuses("DispatchMode"))
def a_mode_sees_operators(t):
    class Seen(t.DispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            names.append(t.schema_of(func).name)
            return func(*args, **(kwargs or {}))

    names: list[str] = []
    with Seen():
        torch.ones(2).exp()
    assert names[-1] == "aten::exp"


@promise(f"{MODES}._get_current_dispatch_mode", without=equals(dispatch_mode_now=None))
@promise(f"{MODES}._pop_mode", without=equals(pop_dispatch_mode=None))
@promise(f"{MODES}._push_mode", without=equals(push_dispatch_mode=None))
@promise(f"{MODES}._get_current_dispatch_mode_stack", without=equals(dispatch_modes=None))
def the_stack_of_dispatch_modes(t):
    with t.DispatchMode() as mode:
        assert (t.dispatch_mode_now() is mode, t.dispatch_modes()) == (True, [mode])
        t.push_dispatch_mode(t.pop_dispatch_mode())
        assert t.dispatch_mode_now() is mode
    assert t.dispatch_modes() == []


@promise("torch.overrides._get_current_function_mode", without=equals(function_mode_now=None))
@promise("torch.overrides._pop_mode", without=equals(pop_function_mode=None))
@promise("torch.overrides._push_mode", without=equals(push_function_mode=None))
@promise(
    "torch.overrides._get_current_function_mode_stack", without=gives("function_modes", value=[])
)
@promise("torch._C._len_torch_function_stack")
def the_stack_of_function_modes(t):
    with torch.overrides.TorchFunctionMode() as mode:
        assert (t.function_mode_now() is mode, t.function_modes()) == (True, [mode])
        t.push_function_mode(t.pop_function_mode())
        assert (t.function_mode_now() is mode, t.count_function_modes()) == (True, 1)
    assert (t.function_modes(), t.count_function_modes()) == ([], 0)


@promise("torch._ops.OpOverload._schema", without=equals(HAS_SCHEMAS=False))
def schemas(t):
    assert t.HAS_SCHEMAS
    assert t.schema_of(ADD).name == "aten::add"
    assert t.schema_of(torch.cond) is None


promise("torch._ops.OpOverload._overloadname", without=gives("overload_of", ADD, value=""))(
    gives("overload_of", ADD, value="Tensor")
)


@promise("torch.library.Library._destroy", without=lambda t: t.destroy(object()))
def kernels_are_taken_back(t):
    library = torch.library.Library("auditor_test", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    assert torch.ops.auditor_test.twice(torch.ones(1)).item() == 2
    t.destroy(library)
    with pytest.raises((RuntimeError, AttributeError)):
        torch.ops.auditor_test.twice.default(torch.ones(1))


class Own(torch.Tensor):
    pass


@promise("torch._C.DisableTorchFunctionSubclass")
def subclasses_are_taken_for_plain(t):
    with t.DisableTorchFunctionSubclass():
        assert type(torch.ones(1).as_subclass(Own) + 1) is torch.Tensor


@promise("torch._C._EnableTorchFunction")
def torch_functions_on_again(t):
    with torch._C.DisableTorchFunctionSubclass(), t.EnableTorchFunction():
        assert torch._C._is_torch_function_enabled()


@promise("torch._C._ExcludeDispatchKeyGuard")
def keys_are_passed_by(t):
    with t.ExcludeDispatchKeys(t.DispatchKeySet(t.DispatchKey.ADInplaceOrView)):
        assert torch.ones(2)[0].item() == 1


@promise("torch.Tensor._make_subclass")
def a_tensor_of_a_subclass_shares_its_storage(t):
    inner = torch.ones(2)
    made = t.make_subclass(Own, inner, False, device_for_backend_keys=torch.device("cpu"))
    assert (type(made), made.data_ptr()) == (Own, inner.data_ptr())


@promise("torch._C._functorch.is_functorch_wrapped_tensor")
@promise("torch._C._functorch.maybe_current_level")
def transforms(t):
    seen = []

    def look(x):
        seen.append((t.is_functorch_wrapped(x), t.functorch_level()))
        return x.sum()

    torch.func.grad(look)(torch.ones(2))
    assert seen == [(True, 1)]
    assert (t.is_functorch_wrapped(torch.ones(1)), t.functorch_level()) == (False, None)


@promise("torch.utils._pytree.tree_map_only")
def the_same_tree(t):
    extremes = torch.max(torch.ones(2, 2), 0)
    given, wanted = ({"a": 1, "b": [2, (3,)]}, "4"), ({"a": "1", "b": ["2", ("3",)]}, "4")
    assert t.tree_map_only(int, str, given) == wanted
    assert type(t.tree_map_only(torch.Tensor, torch.clone, extremes)) is type(extremes)


@promise("torch.utils._device._device_constructors")
def functions_that_make_tensors(t):
    made = set(t.made_on_default_device())
    assert {torch.zeros, torch.tensor, torch.randn, torch.arange, torch.sparse_coo_tensor} <= made
    assert torch.add not in made


@promise("torch.utils._device.DeviceContext")
def the_mode_of_a_default_device(t):
    with torch.device("meta"):
        (mode,) = [mode for mode in t.function_modes() if isinstance(mode, t.DeviceContext)]
    assert mode.device.type == "meta"


# -- autograd --------------------------------------------------------------------------------------


def loss() -> torch.Tensor:
    return (torch.ones(2, requires_grad=True) * 2).exp().sum()


def in_backward(ask: Callable[[], Any]) -> Any:
    said: list[Any] = []
    made = loss()
    made.grad_fn.register_hook(lambda *_: said.append(ask()))
    made.backward()
    return said[0]


@promise("torch.autograd.graph._engine_run_backward", without=equals(engine=None))
def the_engine(t):
    assert t.engine.__name__ == t.ENGINE
    assert t.engine is inspect.unwrap(t.engine) and not t.engine.__code__.co_freevars


@promise("torch._C._current_autograd_node", without=gives("current_node", value=None))
def the_node_that_runs(t):
    assert t.current_node() is None
    assert type(in_backward(t.current_node)).__name__ == "SumBackward0"


@promise("torch._C._current_graph_task_id", without=gives("running_backward", value=-1))
def the_backward_that_runs(t):
    assert t.running_backward() == -1 < in_backward(t.running_backward)


@promise("torch._C._autograd._get_sequence_nr", without=gives("next_number", value=0))
def nodes_are_counted(t):
    before = t.next_number()
    loss()
    assert t.next_number() - before == 3


@promise(
    "torch.autograd.graph.Node._sequence_nr", without=holds(lambda t: t.number_of(loss()) == -1)
)
def a_node_knows_its_number(t):
    before = t.next_number()
    assert t.number_of(loss().grad_fn) == before + 2


def test_a_loss_says_how_it_reduces():
    given, wanted = torch.ones(2, requires_grad=True), torch.zeros(2)
    for reduction, number in (("mean", 1), ("sum", 2)):
        loss = torch.nn.functional.mse_loss(given, wanted, reduction=reduction)
        assert getattr(loss.grad_fn, REDUCTION) == number


@promise("torch._C._autograd.SavedTensor.data", without=equals(CAN_WEIGH=False))
def saved_tensors(t):
    node = torch.ones(2, requires_grad=True).exp().grad_fn
    assert t.CAN_WEIGH
    assert torch.is_tensor(getattr(node, f"{t.SAVED}result").data)


@promise("torch.autograd.forward_ad._current_level", without=gives("forward_level", value=0))
def the_level_of_forward_derivatives(t):
    assert t.forward_level() == -1
    with torch.autograd.forward_ad.dual_level():
        assert t.forward_level() == 0


@promise("torch._C._autograd._profiler_enabled", without=gives("profiler_is_on", value=False))
def a_profiler(t):
    assert not t.profiler_is_on()
    with torch.autograd.profiler.profile():
        assert t.profiler_is_on()


@promise("torch._guards.TracingContext", without=gives("compiler_traces", value=False))
def the_compiler(t):
    from torch import _guards

    assert not t.compiler_traces()
    with _guards.tracing(_guards.TracingContext(None)):
        assert t.compiler_traces()


# -- tensors ---------------------------------------------------------------------------------------

SPARSE = torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (3,)).coalesce()


@promise("torch.UntypedStorage._cdata")
def one_key_for_all_views(t):
    tensor = torch.ones(4)
    key, view, other = (
        t.key_of(each.untyped_storage()) for each in (tensor, tensor[1:], torch.ones(4))
    )
    assert key == view != other


@promise("torch.Tensor._base", without=gives("base_of", torch.ones(2)[1:], value=None))
def what_a_view_was_made_of(t):
    tensor = torch.ones(2)
    assert t.base_of(tensor[1:]) is tensor and t.base_of(tensor) is None


def no_versions(t):
    refuses("version_of", torch.ones(1))(t)
    assert t.version_hint(torch.ones(1).add_(1)) == 0


@promise("torch.Tensor._version", without=no_versions)
def versions(t):
    tensor = torch.ones(2)
    before = t.version_of(tensor), t.version_hint(tensor)
    tensor.add_(1)
    assert (t.version_of(tensor), t.version_hint(tensor)) == (before[0] + 1, before[1] + 1)


@promise("torch.Tensor._backward_hooks", without=gives("has_hooks", torch.ones(1), value=True))
def hooks_of_a_leaf(t):
    leaf = torch.ones(2, requires_grad=True)
    assert not t.has_hooks(leaf)
    handle = leaf.register_hook(lambda grad: None)
    assert t.has_hooks(leaf)
    handle.remove()
    assert not t.has_hooks(leaf)


@promise("torch.Tensor._fix_weakref", "torch.UntypedStorage._fix_weakref")
def weak_references(t):
    tensor = torch.ones(2)
    t.fix_weakref(tensor)
    t.fix_weakref(tensor.untyped_storage())


@promise("torch.TypedStorage._untyped_storage", without=gives("untyped", "any", value="any"))
def bytes_of_a_typed_storage(t):
    plain = torch.ones(1).untyped_storage()
    assert t.untyped(torch.FloatStorage(2)).nbytes() == 8 and t.untyped(plain) is plain


@promise("torch._tensor_str", without=equals(tensor_printing=None, print_tensor=None))
@promise("torch._tensor_str._str", without=equals(print_tensor=None))
def printing(t):
    assert t.print_tensor(torch.ones(1)) == "tensor([1.])"
    assert getattr(t.tensor_printing, t.print_tensor.__name__) is t.print_tensor


def calls(*names: str, of: Callable[[], Any]) -> Check:
    """A mode over functions is told of these while it runs."""

    def check(t: SimpleNamespace) -> None:
        class Seen(torch.overrides.TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                seen.add(func)
                return func(*args, **(kwargs or {}))

        seen: set[Any] = set()
        with Seen():
            of()
        assert {getattr(t, name) for name in names} <= seen

    return check


def packs() -> None:
    packed = nn.utils.rnn.pack_padded_sequence(
        torch.ones(2, 3, 1), torch.tensor([2, 1]), batch_first=True
    )
    nn.utils.rnn.pad_packed_sequence(packed)


VARIABLES = "torch._C._VariableFunctions"
MOVED = nn.Linear(1, 1)
promise("torch._foreach_copy_")(
    calls("foreach_copy", of=lambda: torch._foreach_copy_([torch.ones(1)], [torch.zeros(1)]))
)
promise(f"{VARIABLES}._pack_padded_sequence", f"{VARIABLES}._pad_packed_sequence")(
    calls("pack_padded", "pad_packed", of=packs)
)
promise("torch._has_compatible_shallow_copy_type")(
    calls("compatible_shallow_copy", of=lambda: MOVED.double().float())
)


@promise(VARIABLES)
def functions_of_c(t):
    assert t.functions.where(torch.tensor([True]), torch.ones(1), torch.zeros(1)).tolist() == [1]
    assert t.functions.cat is torch.cat


@promise("torch._C._swap_tensor_impl")
def tensors_change_places(t):
    one, zero = torch.ones(1), torch.zeros(1)
    t.swap(one, zero)
    assert (one.item(), zero.item()) == (0, 1)


@promise("torch._utils._rebuild_parameter", "torch._utils._rebuild_tensor_v2")
def what_checkpoints_call(t):
    function, args = nn.Parameter(torch.ones(1)).__reduce_ex__(2)[:2]
    assert function is t.rebuild_parameter and len(args) == 3
    assert torch.ones(1).__reduce_ex__(2)[0] is t.rebuild_tensor
    assert not t.rebuild_tensor.__code__.co_freevars


@promise("torch.serialization._package_registry")
def locations(t):
    assert t.locations is torch.serialization._package_registry
    priority, tagger, restorer = t.locations[0]
    assert tagger(torch.ones(1).untyped_storage()) in (None, "cpu")


# -- training --------------------------------------------------------------------------------------


@promise("torch.nn.modules.module._has_any_global_hook", without=equals(any_global_hook=None))
def hooks_on_every_module(t):
    assert not t.any_global_hook()
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    assert t.any_global_hook() and getattr(nn.modules.module, t.ANY_GLOBAL_HOOK)()
    handle.remove()


@promise("torch.nn.Module._forward_hooks", without=gives("own_hooks", nn.ReLU(), value=[]))
def hooks_of_a_module(t):
    layer = nn.ReLU()
    layer.register_forward_hook(print)
    assert t.own_hooks(layer) == [print]


@promise("torch.nn.Module._parameters", "torch.nn.Module._buffers", "torch.nn.Module._modules")
def what_a_module_holds(t):
    norm = nn.BatchNorm1d(2)
    both = nn.Sequential(norm, nn.ReLU())
    assert set(t.own_parameters(norm)) == {"weight", "bias"}
    assert set(t.own_children(both)) == {"0", "1"}
    assert set(t.own_buffers(norm)) == {"running_mean", "running_var", "num_batches_tracked"}
    assert not t.own_parameters(both) and not t.own_parameters(object.__new__(nn.Linear))
    nested = nn.Sequential(both, both, nn.Identity())
    parts = list(t.modules_of(nested))
    assert set(parts) == {nested, both, norm, both[1], nested[2]} and len(parts) == 5


@promise("torch.cuda._lazy_call", without=equals(when_initialized=None))
def what_waits_for_cuda(t):
    with mock.patch("torch.cuda.is_initialized", return_value=True):
        called = mock.Mock()
        t.when_initialized(called)
    called.assert_called_once_with()


for _name in EXACT_FOREACH:
    PROMISES[f"torch.optim.{_name}._default_to_fused_or_foreach"] = Promise(
        lambda t, name=_name: gives_foreach(t, name), lambda t, name=_name: lacks_foreach(t, name)
    )


def lacks_foreach(t, name):
    with hidden(f"torch.optim.{name}.{t.FOREACH_DEFAULT}"):
        assert t.foreach_default(name) is None


def gives_foreach(t, name):
    module, chosen = t.foreach_default(name)
    assert chosen([torch.ones(1)], False, False) == (False, False)
    assert getattr(module, t.FOREACH_DEFAULT) is chosen


OFF = torch.autocast("cpu", enabled=False)


@promise("torch.autocast._enabled", without=gives("autocast_enabled", OFF, value=True))
def autocast(t):
    assert (t.autocast_enabled(torch.autocast("cpu")), t.autocast_enabled(OFF)) == (True, False)


UNSCALED = torch.amp.GradScaler("cpu", enabled=False)
SCALED = torch.amp.GradScaler("cpu", init_scale=2)
SCALED.scale(torch.ones(1))


@promise(
    "torch.amp.GradScaler._per_optimizer_states",
    without=gives("unscaled_states", SCALED, value=None),
)
@promise("torch.amp.GradScaler._scale", without=gives("scale_of", SCALED, value=None))
def scalers(t):
    assert t.scale_of(SCALED).item() == 2 and t.scale_of(UNSCALED) is None
    assert t.unscaled_states(SCALED)[0]["stage"] is torch.amp.grad_scaler.OptState.READY


@promise("torch.nn.utils.clip_grad._clip_grads_with_norm_", without=equals(clips_by_norm=None))
def clipping(t):
    assert getattr(nn.utils.clip_grad, t.CLIP_BY_NORM) is t.clips_by_norm
    names = list(inspect.signature(t.clips_by_norm).parameters)
    assert names[:3] == ["parameters", "max_norm", "total_norm"]


@promise("torch.nn.modules.batchnorm._BatchNorm", without=equals(BatchNorm=None))
def batch_norms(t):
    for each in (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d):
        assert each.forward is t.BatchNorm.forward


@promise("torch._C._profiler.ProfilerState")
@promise("torch.autograd.profiler.profile._prepare_trace", without=equals(PREPARE="__enter__"))
def profilers(t):
    assert hasattr(torch.autograd.profiler.profile, t.PREPARE)
    assert t.ProfilerState.KINETO != t.ProfilerState.KINETO_GPU_FALLBACK


# -- data ------------------------------------------------------------------------------------------

FETCH = "torch.utils.data._utils.fetch"
ITERATOR = "torch.utils.data.dataloader._BaseDataLoaderIter"
SAMPLES = list(range(4))


@promise(ITERATOR, without=equals(LoaderIterator=None))
@promise(
    f"{FETCH}._MapDatasetFetcher",
    f"{FETCH}._IterableDatasetFetcher",
    without=holds(lambda t: len(t.FETCHERS) == 1),
)
def iterators(t):
    assert isinstance(iter(DataLoader(SAMPLES)), t.LoaderIterator)
    assert [callable(each.fetch) for each in t.FETCHERS] == [True, True]


WORKER = "torch.utils.data._utils.worker"
WITH_WORKERS = "torch.utils.data.dataloader._MultiProcessingDataLoaderIter"


@promise(WORKER, without=equals(WORKER_MODULE=None))
@promise(f"{WORKER}._worker_loop", without=refuses("worker_loop"))
def loops_of_workers(t):
    assert t.worker_loop is getattr(t.WORKER_MODULE, t.WORKER_LOOP)


@promise(WITH_WORKERS, f"{WITH_WORKERS}._shutdown_workers", without=equals(has_shutdown=False))
def ends_of_workers(t):
    assert t.has_shutdown and t.SHUTDOWN in vars(t.WORKER_ITERATOR)
    assert isinstance(iterator(), t.WORKER_ITERATOR)


@promise(f"{WITH_WORKERS}._workers", without=lambda t: of_iterator(t, "worker_processes", ()))
def processes_of_workers(t):
    (worker,) = t.worker_processes(iterator())
    assert worker.pid > 0
    assert list(t.worker_processes(object())) == []


OF_ITERATORS = {
    "workers_of": ("_num_workers", 1, 0),
    "pins": ("_pin_memory", False, False),
    "yielded": ("_num_yielded", 0, 0),
    "persistent": ("_persistent_workers", True, None),
    "index_sampler": ("_index_sampler", 2, None),
    "dataset_of": ("_dataset", SAMPLES, None),
    "collate_of": ("_collate_fn", sum, None),
}


@functools.cache
def iterator() -> Any:
    how = {"num_workers": 1, "persistent_workers": True, "collate_fn": sum}
    return iter(DataLoader(SAMPLES, batch_size=2, **how))


def of_iterator(t, name, expected):
    value = getattr(t, name)(iterator())
    assert (getattr(value, "batch_size", value) if name == "index_sampler" else value) == expected


for _accessor, (_attribute, _known, _unknown) in OF_ITERATORS.items():
    PROMISES[f"{ITERATOR}.{_attribute}"] = Promise(
        lambda t, name=_accessor, value=_known: of_iterator(t, name, value),
        lambda t, name=_accessor, value=_unknown: of_iterator(t, name, value),
    )


# -- cuda ------------------------------------------------------------------------------------------

ONLY_WITH_CUDA = {"torch._C._cuda_isHistoryEnabled", "torch._C._cuda_attach_out_of_memory_observer"}


@promise("torch._C._cuda_isHistoryEnabled", without=gives("history_is_on", value=False))
def whether_history_is_on(t):
    with contextlib.suppress(RuntimeError):  # of a build with CUDA on a machine without a driver
        assert not t.history_is_on()


promise("torch._C._cuda_attach_out_of_memory_observer", without=equals(attach_oom_observer=None))(
    holds(lambda t: callable(t.attach_oom_observer))
)


@promise("torch.cuda.memory._record_memory_history", without=refuses("record_history"))
def history(t):
    with contextlib.suppress(
        RuntimeError, AssertionError, AttributeError
    ):  # of a build without CUDA, or a machine without one
        t.record_history(enabled=None)
    assert {"max_entries", "stacks"} <= set(
        inspect.signature(torch.cuda.memory._record_memory_history).parameters
    ) or callable(t.record_history)


promise("torch.cuda.memory._snapshot", without=refuses("take_snapshot"))(
    holds(lambda t: t.take_snapshot is torch.cuda.memory._snapshot)
)


@promise("torch._C._group_tensors_by_device_and_dtype")
def groups(t):
    (device, dtype), (lists, _) = next(iter(t.group_by_device([[torch.ones(1)]], False).items()))
    assert (device.type, dtype, len(lists[0])) == ("cpu", torch.float32, 1)


@promise("torch._C._nn", "torch._C._nn._parse_to")
def arguments_of_to(t):
    assert t.parse_to("cpu", torch.float64)[:2] == (torch.device("cpu"), torch.float64)
    assert t.nn._parse_to is t.parse_to


LATER = {
    "torch._C._autograd.SavedTensor.data",
    "torch._C._distributed_c10d.FakeProcessGroup._create_internal",
}
"""What torch 2.8 lacks."""

# -- one expression of an accessor that a rehearsal needs, or that has another way --------------------

HOLD: dict[str, Callable[[SimpleNamespace], Any]] = {
    "_C": lambda t: t.C is torch._C,
    "_C.DispatchKey": lambda t: t.DispatchKeySet(t.DispatchKey.CPU).has(t.DispatchKey.CPU),
    "_C.DispatchKeySet": lambda t: t.DispatchKeySet(t.DispatchKey.CPU).has(t.DispatchKey.CPU),
    "_C.DispatchKeySet.from_raw_repr": lambda t: t.keys_from_bits(
        t.DispatchKeySet(t.DispatchKey.CPU).raw_repr()
    ).has(t.DispatchKey.CPU),
    "_C._dispatch_get_all_op_names": lambda t: "aten::silu_backward" in t.operator_names(),
    "_C._dispatch_has_kernel_for_dispatch_key": lambda t: (
        t.has_kernel("aten::silu_backward", "CPU")
        and not t.has_kernel("aten::silu", "CompositeImplicitAutograd")
    ),
    "_C._nn.flatten_dense_tensors": lambda t: (
        t.flatten([torch.ones(2, 1), torch.zeros(1)]).tolist() == [1, 1, 0]
    ),
    "_foreach_norm": lambda t: (
        [float(norm) for norm in t.norms([torch.tensor([3.0, 4.0]), torch.zeros(2)])] == [5, 0]
    ),
    "Tensor._values": lambda t: t.stored_values(SPARSE).tolist() == [1.0, 2.0],
    "Tensor._indices": lambda t: t.stored_indices(SPARSE).tolist() == [[0, 2]],
    "utils._pytree.tree_leaves": lambda t: (
        t.tree_leaves(({"a": 1, "b": [2, (3,)]}, 4)) == [1, 2, 3, 4]
    ),
    "utils._foreach_utils._foreach_supported_types": lambda t: torch.Tensor in t.foreach_types,
    "nn.parallel.DistributedDataParallel._set_static_graph": lambda t: (
        nn.parallel.DistributedDataParallel._set_static_graph is t.set_static_graph
    ),
}
for _path, _ask in HOLD.items():
    promise(f"torch.{_path}")(holds(_ask))

# -- the compiler ----------------------------------------------------------------------------------


def rules_of_the_compiler() -> Any:
    import torch._dynamo.trace_rules

    return torch._dynamo.trace_rules


def leaves_nothing_out(t):
    before = list(rules_of_the_compiler().SKIP_DIRS)
    back = t.leave_out(["/ours/"])
    assert before == rules_of_the_compiler().SKIP_DIRS
    back()


@promise("torch._dynamo.trace_rules.SKIP_DIRS", without=leaves_nothing_out)
@promise("torch._dynamo.trace_rules._recompile_re", without=leaves_nothing_out)
def files_are_left_out(t):
    rules = rules_of_the_compiler()
    back = t.leave_out(["/ours/"])
    assert rules.check_file("/ours/probe.py").skipped
    back()
    back()
    assert not rules.check_file("/ours/probe.py").skipped


@promise("torch._logging.trace_structured", without=gives("when_told", setattr, print, value=False))
@promise("torch._logging", without=gives("when_told", setattr, print, value=False))
def the_compiler_is_heard(t):
    heard = []
    with mock.patch.object(torch._logging, "trace_structured"):
        assert t.when_told(setattr, lambda name, data, text: heard.append((name, data(), text)))
        torch._logging.trace_structured("artifact", lambda: {"name": "x"}, payload_fn=str)
        torch._logging.trace_structured("dynamo_start", suppress_context=True)
    assert heard == [("artifact", {"name": "x"}, str), ("dynamo_start", {}, None)]
    assert t.is_compilation("compilation_metrics", {"co_name": "forward"})
    assert not t.is_compilation("artifact", {"co_name": "forward"})
    assert t.is_compilation("bwd_compilation_metrics", {"co_name": None})
    given_up = {"co_name": None, "fail_type": "RecompileLimitExceeded"}
    assert not t.is_compilation("bwd_compilation_metrics", given_up)


@promise(
    "torch._dynamo.eval_frame._maybe_set_eval_frame",
    without=gives("when_left", setattr, print, value=False),
)
def compiled_code_is_left(t):
    import torch._dynamo.eval_frame

    left, entered = [], []
    with mock.patch.object(torch._dynamo.eval_frame, t.TURN):
        assert t.when_left(setattr, lambda: left.append(1), entered=entered.append)
        torch._dynamo.eval_frame._maybe_set_eval_frame(print)
        assert (left, entered) == ([], [print])
        torch._dynamo.eval_frame._maybe_set_eval_frame(False)
        torch._dynamo.eval_frame._maybe_set_eval_frame(None)
        assert (left, entered) == ([1], [print])


def has_no_callback(t):
    assert t.callback_of(torch.compile(torch.nn.Linear(2, 2), backend="eager")) is None


@promise("torch._dynamo.eval_frame.OptimizedModule.dynamo_ctx", without=has_no_callback)
@promise("torch._dynamo.eval_frame._TorchDynamoContext.callback", without=has_no_callback)
def compiled_code_has_its_callback(t):
    import torch._dynamo.eval_frame

    seen = []
    function = torch.compile(lambda x: x + 1, backend="eager")
    module = torch.compile(torch.nn.Linear(2, 2), backend="eager")
    turn = torch._dynamo.eval_frame._maybe_set_eval_frame
    with mock.patch.object(torch._dynamo.eval_frame, t.TURN, turn):
        t.when_left(setattr, lambda: None, entered=seen.append)
        for each in (function, module):
            each(torch.ones(2))
            assert t.callback_of(each) in seen
    assert t.callback_of(function) is not t.callback_of(module)
    assert t.callback_of(torch.nn.Linear(2, 2)) is None
    assert t.callback_of(print) is None


@promise("torch._dynamo.eval_frame._stance", without=gives("forced_to", value="default"))
def stances_are_known(t):
    import torch._dynamo.eval_frame  # noqa: F401

    assert t.forced_to() == "default"
    with torch.compiler.set_stance("force_eager"):
        assert t.forced_to() == "force_eager"
    assert t.forced_to() == "default"


@promise("torch._dynamo.config.disable", without=gives("forced_to", value="default"))
def a_compiler_that_is_switched_off_is_known(t):
    import torch._dynamo.config

    with torch._dynamo.config.patch(disable=True):
        assert t.forced_to() == "disabled"
    assert t.forced_to() == "default"


def a_script_refuses_it(t):
    known = dict(torch.jit._builtins._get_builtin_table())
    t.scripted_as(nothing_of_torch, torch.arange)()
    assert torch.jit._builtins._get_builtin_table() == known


@promise("torch.jit._builtins", "torch.jit._builtins._builtin_table", without=a_script_refuses_it)
def a_script_takes_it_for_the_operator(t):
    known = dict(torch.jit._builtins._get_builtin_table())
    undo = t.scripted_as(nothing_of_torch, torch.arange)
    assert torch.jit._builtins._find_builtin(nothing_of_torch) == "aten::arange"
    undo()
    assert torch.jit._builtins._get_builtin_table() == known


def nothing_of_torch():
    raise AssertionError


def test_every_name_that_is_looked_up_has_its_promise():
    for name in EXACT_FOREACH:
        accessors().foreach_default(name)
    assert set(FOUND) | {path for path in PROMISES if path.startswith("torch.optim.")} == set(
        PROMISES
    )


def test_the_installed_torch_has_all_of_them():
    lacking = {path for path, found in FOUND.items() if not found}
    later = LATER if torch.__version__ < "2.9" else set()
    assert lacking <= later | (ONLY_WITH_CUDA if torch.version.cuda is None else set())


@pytest.mark.parametrize("path", sorted(PROMISES))
def test_an_accessor_gives_what_it_promises(path):
    if not FOUND.get(path, True):
        pytest.skip(f"torch {torch.__version__} does not have it")
    PROMISES[path].check(accessors())


@pytest.mark.parametrize("path", sorted(set(PROMISES) - look_up.REHEARSAL_NEEDS))
def test_without_the_name_it_does_what_its_docstring_says(path):
    PROMISES[path].without(accessors(path))


def test_a_rehearsal_does_not_start_without_what_it_is_made_of(monkeypatch):
    for path in look_up.REHEARSAL_NEEDS:
        monkeypatch.setitem(look_up.FOUND, path, False)
        with pytest.raises(Missing, match=path.replace(".", r"\.")):
            auditor.capture.shadow.device.ShadowDevice().start()
        monkeypatch.undo()


# -- a run and a rehearsal without a name ----------------------------------------------------------

ROOT = Path(__file__).resolve().parents[3]
WATCHES = {
    *("averages", "differences", "doubles", "generators", "modules"),
    *("numerics", "piecewise", "reproduce", "thrown"),
}
MAY_FAIL: dict[str, set[str]] = {
    **dict.fromkeys(look_up.REHEARSAL_NEEDS, {"rehearsal"}),
    "torch._ops.OpOverload._schema": WATCHES | {"rehearsal"},
    f"{MODES}.TorchDispatchMode": WATCHES,
    "torch.Tensor._version": {"strays", "uncleared", "loss_repairs", "layers"},
    ITERATOR: {"loader", "batch_digests"},
}
"""Name -> the probes that cannot do without it; no probe needs any other name."""

ASKED_BY_TORCH = {"torch._has_compatible_shallow_copy_type"}
"""What torch goes on calling when only we do not find it."""


def failed_without(tmp_path: Path, *names: str) -> dict[str, Any]:
    """What :mod:`without_a_name` says of each."""
    command = [sys.executable, "-m", "tests.capture.instruments.without_a_name", str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *names], capture_output=True, text=True, check=True, cwd=ROOT, env=environment
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def check_failures(said: Any, allowed: set[str]) -> None:
    assert isinstance(said, dict), said
    assert set(said) == {"cpu", "rehearse"}
    assert {probe for failed in said.values() for probe in failed} <= allowed


def test_a_run_and_a_rehearsal_end_without_any_of_the_names(tmp_path):
    said = failed_without(tmp_path, "all", *sorted(PROMISES))["all"]
    check_failures(said, set().union(*MAY_FAIL.values()))
    assert "rehearsal" in said["rehearse"] and "loader" in said["cpu"]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_each_name_in_turn_costs_only_the_probes_that_need_it(tmp_path, part):
    names = sorted(set(PROMISES) - ASKED_BY_TORCH)[part::8]
    for name, said in failed_without(tmp_path, *names).items():
        check_failures(said, MAY_FAIL.get(name, set()))


def test_a_compiled_module_is_told_from_a_plain_one():
    plain, inside = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    assert not is_compiled(plain)
    assert is_compiled(torch.compile(plain))
    inside.compile()
    assert is_compiled(inside)
