"""The device as a program sees it; what it refuses; and that nothing stays behind."""

import copy
import gc
import io
import pickle
import sys
import threading
import types

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import auditor
from auditor.capture.instruments.environment import default_device
from auditor.capture.shadow import MODELS, GpuModel, Listener, ShadowLimit, shadow_cuda
from auditor.capture.shadow.tensor import ShadowTensor
from auditor.model.gpus import GPUS, gpu_named
from tests.shadow.listening import Heard


def surface():
    """Everything in torch that could have been patched, and the code of functions."""
    found = {}
    owners = [m for name, m in list(sys.modules.items()) if name.partition(".")[0] == "torch"]
    owners += [torch.Tensor, nn.DataParallel, nn.parallel.DistributedDataParallel]
    owners += [torch.autograd.profiler.profile, torch.autograd.profiler.emit_nvtx]
    for owner in [*owners, torch.UntypedStorage]:
        for name, value in list(vars(owner).items()):
            found[id(owner), name] = id(value)
            if isinstance(value, types.FunctionType):
                given = repr(value.__defaults__), repr(value.__kwdefaults__)
                found[id(owner), name, "code"] = (id(value.__code__), *given)
    found["registry"] = [id(entry) for entry in torch.serialization._package_registry]
    found["foreach"] = list(torch.utils._foreach_utils._foreach_supported_types)
    return found


def busy():
    """Uses enough of torch that its lazy modules are there."""
    net = nn.Linear(3, 3).cuda()
    optimizer = torch.optim.AdamW(net.parameters())
    with torch.autocast("cuda", dtype=torch.float16):
        net(torch.ones(2, 3, device="cuda")).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save(net.state_dict(), file)


def test_everything_is_undone():
    with shadow_cuda():
        busy()
    before = surface()
    with shadow_cuda():
        assert surface() != before
        busy()
        torch.set_default_device("cuda")
    with pytest.raises(KeyError), shadow_cuda():
        raise KeyError
    after = surface()
    assert {key: value for key, value in after.items() if key in before} == before
    assert default_device().type == "cpu"
    assert not torch.cuda.is_available()


def test_autocast_kernels_of_torch_are_back():
    with shadow_cuda():
        pass
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    assert "auditor" not in torch._C._dispatch_dump("aten::linear")


def test_two_at_once_are_refused():
    with shadow_cuda():
        with pytest.raises(RuntimeError, match="already"):
            shadow_cuda().start()
        assert torch.cuda.is_available()


def test_tensors_outlive_their_rehearsal_and_report_to_nobody():
    heard = Heard()
    with shadow_cuda(heard):
        x = torch.ones(3, device="cuda")
        heard.forget()
    assert (x * 2).sum().item() == 6
    assert x.cpu().tolist() == [1, 1, 1]
    assert heard.crossings == []


def test_the_card():
    with auditor.shadow_cuda(gpu="A10"):
        properties = torch.cuda.get_device_properties(0)
        assert properties.name == torch.cuda.get_device_name() == "NVIDIA A10"
        assert torch.cuda.get_device_capability() == (8, 6)
        assert properties.total_memory == gpu_named("A10").memory_bytes
        assert properties.total_memory == torch.cuda.mem_get_info()[1]
        assert torch.cuda.device_count() == torch.accelerator.device_count() == 1
        assert torch.cuda.current_device() == 0
        assert int(torch.version.cuda.partition(".")[0]) >= 11  # libraries read it
        assert str(torch.accelerator.current_accelerator()) == "cuda"
        assert torch.cuda.is_bf16_supported(including_emulation=False)
    with shadow_cuda(gpu=GpuModel("small", 1 << 20, (7, 0), 1)):
        assert not torch.cuda.is_bf16_supported(including_emulation=False)
        assert torch.cuda.get_device_properties("cuda").total_memory == 1 << 20
    with pytest.raises(ValueError, match="Tesla T4"):
        shadow_cuda(gpu="Voodoo")
    assert len({model.name for model in MODELS}) == len(MODELS)


@pytest.mark.parametrize("known", GPUS, ids=lambda known: known.key)
def test_the_null_devices_models_are_played(known):
    wanted = (known.name, known.memory_bytes, known.capability, known.processors)
    for name in (known.key, known.name):
        gpu = shadow_cuda(gpu=name).gpu
        assert (gpu.name, gpu.total_bytes, gpu.capability, gpu.processors) == wanted


class ReadLater:
    """No tensor; torch asks it for one, as it does lazily loaded checkpoints."""

    def __init__(self, tensor):
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func(*(one.tensor if isinstance(one, cls) else one for one in args), **kwargs or {})


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_objects_that_stand_for_tensors_are_asked(device):
    with shadow_cuda(Listener()):
        weight = torch.nn.Parameter(torch.zeros(3, device="cuda"))
        with torch.no_grad():
            weight.copy_(ReadLater(torch.ones(3, device=device)))
        assert weight.device.type == "cuda" and weight.tolist() == [1.0] * 3
        assert (weight + ReadLater(torch.ones(3, device="cuda"))).device.type == "cuda"


def test_identity_of_a_tensor():
    with shadow_cuda():
        x = torch.ones(2, device="cuda")
        assert x.is_cuda and not x.is_cpu and x.get_device() == 0 and str(x.device) == "cuda:0"
        assert x.type() == "torch.cuda.FloatTensor" and isinstance(x, torch.cuda.FloatTensor)
        assert not isinstance(x.long(), torch.cuda.FloatTensor)
        assert repr(x) == "tensor([1., 1.], device='cuda:0')"
        parameter = nn.Parameter(x)
        assert isinstance(parameter, nn.Parameter) and parameter.is_leaf and parameter.requires_grad
        shown = "tensor([1., 1.], device='cuda:0', requires_grad=True)"
        assert repr(parameter).startswith(f"Parameter containing:\n{shown}")


@pytest.mark.parametrize(
    "spelling",
    [
        lambda: torch.ones(2).cuda(),
        lambda: torch.ones(2).cuda(0),
        lambda: torch.ones(2).cuda("cuda:0"),
        lambda: torch.ones(2).cuda(torch.device("cuda")),
        lambda: torch.ones(2).cuda(device=0, non_blocking=True),
        lambda: torch.ones(2).to("cuda"),
        lambda: torch.ones(2).to(0),
        lambda: torch.ones(2).to(torch.device("cuda", 0), torch.float32),
        lambda: torch.ones(2).to(device="cuda", dtype=torch.float32, non_blocking=True, copy=True),
        lambda: torch.ones(2, dtype=torch.int32).to("cuda", torch.float32, True, True),
        lambda: torch.ones(2).to(torch.zeros(1, device="cuda")),
        lambda: torch.ones(2).to(other=torch.zeros(1, device="cuda")),
        lambda: torch.ones(2).type("torch.cuda.FloatTensor"),
        lambda: torch.ones(2).type(torch.cuda.FloatTensor),
        lambda: torch.ones(2, device="cuda"),
        lambda: torch.ones(2, device="cuda:0"),
        lambda: torch.ones(2, device=0),
        lambda: torch.ones(2, device=torch.device("cuda")),
        lambda: torch.tensor([1.0, 1.0]).cuda(),
        lambda: torch.cuda.FloatTensor([1, 1]),
        lambda: torch.cuda.FloatTensor(2).fill_(1),
        lambda: torch.ones(2).new_ones(2, device="cuda"),
        lambda: torch.ones_like(torch.zeros(2), device="cuda"),
        lambda: torch.ones(2).to("cuda").to("cpu").to("cuda"),
        lambda: nn.Parameter(torch.ones(2)).cuda().detach(),
    ],
)
def test_ways_to_the_device(spelling):
    with shadow_cuda():
        x = spelling()
        assert x.is_cuda and x.dtype == torch.float32
        assert x.tolist() == [1, 1]


@pytest.mark.parametrize(
    "spelling",
    [
        lambda: torch.device(0),
        lambda: torch.device(device=0),
        lambda: torch.device("cuda", 0),
        lambda: torch.device(type="cuda", index=0),
        lambda: nn.Linear(2, 2).to(0).weight.device,
        lambda: nn.Linear(2, 2).to(device=0, dtype=torch.float16).weight.device,
        lambda: nn.Linear(2, 2).to(torch.device(0), non_blocking=True).weight.device,
        lambda: nn.Linear(2, 2).cuda(0).weight.device,
        lambda: nn.Linear(2, 2, device=0).weight.device,
        lambda: nn.Linear(2, 2, device="meta").to_empty(device=0).weight.device,
        lambda: torch.ones(1).to(torch.device(0)).device,
        lambda: torch.zeros(1, device=torch.device(0)).device,
        lambda: torch.zeros(1, device=torch.cuda.current_device()).device,
        lambda: torch.zeros(1, device=torch.accelerator.current_accelerator()).device,
        lambda: torch.randn(1, device=0, generator=torch.Generator(0)).device,
        lambda: {"": torch.device(0)}[""],
    ],
)
def test_a_device_by_its_number(spelling):
    with shadow_cuda():
        device = spelling()
        assert (type(device).__name__, device.type, device.index or 0) == ("device", "cuda", 0)
        assert isinstance(device, torch.device)


def test_calls_that_take_a_number():
    with shadow_cuda():
        for said in (0, "cuda:0", torch.device(0)):
            torch.cuda.set_device(said)
            torch.cuda.synchronize(said)
            assert torch.cuda.get_device_properties(said).name == "NVIDIA H200"
            assert torch.cuda.memory_allocated(said) == torch.cuda.mem_get_info(said)[0] * 0
            with torch.cuda.device(said):
                assert torch.cuda.current_device() == 0
            torch.set_default_device(said)
            assert torch.get_default_device() == torch.device("cuda", 0) == torch.zeros(1).device
            torch.set_default_device(None)
        for name in (
            "set_device_index",
            "set_device_idx",
            "synchronize",
            "memory_allocated",
            "max_memory_allocated",
        ):
            if hasattr(torch.accelerator, name):  # the last two came with torch 2.9
                getattr(torch.accelerator, name)(0)


def test_what_stands_for_the_type_is_the_type():
    real = torch.device
    moved_to.__annotations__["where"] = real  # as one of torch's functions, read before
    with shadow_cuda():
        assert (torch.device, hash(torch.device)) == (real, hash(real))
        assert issubclass(real, torch.device)
        assert isinstance(real("cpu"), torch.device | None) and not isinstance("cpu", torch.device)
        assert pickle.loads(pickle.dumps(torch.device(0))) == torch.device("cuda:0")
        file = io.BytesIO()
        torch.save({"where": torch.device(0)}, file)
        file.seek(0)
        assert torch.load(file, weights_only=True)["where"] == torch.device("cuda:0")
        assert torch.jit.script(moved_to)(torch.ones(2), torch.device("cpu")).tolist() == [1, 1]
        with torch.device(0):
            assert torch.ones(1).is_cuda
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            torch.ones(1).to(torch.device(1))
    assert torch.device is real


def test_factories_and_the_legacy_constructor_follow_the_default_tensor_type():
    with shadow_cuda():
        torch.set_default_tensor_type(torch.cuda.FloatTensor)
        assert torch.zeros(1).is_cuda
        data = torch.Tensor([1e10])
        assert data.is_cuda and data.dtype == torch.float32 and data.tolist() == [1e10]
        given = [(2, 3), (np.int64(2), 3), (torch.Size([2, 3]),), (np.ones((2, 3)),)]
        sizes = [torch.Tensor(*each) for each in given]
        assert all(made.is_cuda and made.shape == (2, 3) for made in sizes)
        assert torch.Tensor().is_cuda and torch.Tensor().shape == (0,)
        again = torch.Tensor(data)
        again.zero_()
        assert again.is_cuda and data.tolist() == [0.0]
        assert not torch.FloatTensor([1.0]).is_cuda
        assert torch.cat([torch.rand(1), torch.Tensor([1.0]).expand(1)]).is_cuda
        torch.set_default_tensor_type("torch.FloatTensor")
        assert not torch.Tensor([1.0]).is_cuda and not torch.zeros(1).is_cuda
        torch.set_default_tensor_type("torch.cuda.HalfTensor")
        assert torch.Tensor([1.0]).dtype == torch.float16
    assert not torch.Tensor([1.0]).is_cuda and "__new__" not in vars(torch.Tensor)
    torch.set_default_dtype(torch.float32)


def test_tensor_new_makes_tensors_of_its_own_kind():
    with shadow_cuda():
        x = torch.ones(3, dtype=torch.float64, device="cuda")
        rows = [[1, 2, 3], [4, 5, 6]]
        made = [x.new(2, 3), x.new(torch.Size([2, 3])), x.new(rows), x.new(x.expand(2, 3))]
        assert all((m.is_cuda, m.dtype, m.shape) == (True, torch.float64, (2, 3)) for m in made)
        assert x.new().shape == (0,) and x.new(3).zero_().tolist() == [0, 0, 0]
        assert not torch.ones(3).new(2).is_cuda


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (RuntimeError, lambda x, h: x + h),
        (RuntimeError, lambda x, h: torch.cat([x, h])),
        (RuntimeError, lambda x, h: torch.stack([x[0], h[0]])),
        (RuntimeError, lambda x, h: nn.Linear(3, 3)(x)),
        (RuntimeError, lambda x, h: nn.Linear(3, 3).cuda()(h)),
        (RuntimeError, lambda x, h: nn.functional.mse_loss(x, h)),
        (RuntimeError, lambda x, h: x.add_(h)),
        (RuntimeError, lambda x, h: nn.Embedding(4, 2).cuda()(torch.tensor([1]))),
        (RuntimeError, lambda x, h: h[x > 0]),
        (RuntimeError, lambda x, h: setattr(x, "grad", h)),
        (RuntimeError, lambda x, h: x.pin_memory()),
        (RuntimeError, lambda x, h: x.cuda(1)),
        (RuntimeError, lambda x, h: torch.ones(1, device="cuda:1")),
        (RuntimeError, lambda x, h: torch.randn(3, device="cuda", generator=torch.Generator())),
        (RuntimeError, lambda x, h: torch.randperm(3, generator=torch.Generator("cuda"))),
        (RuntimeError, lambda x, h: nn.utils.rnn.pack_padded_sequence(x.view(3, 1, 1), x[:1])),
        (TypeError, lambda x, h: x.numpy()),
        (TypeError, lambda x, h: np.asarray(x)),
    ],
)
def test_errors_are_cudas(error, action):
    with shadow_cuda(), pytest.raises(error):
        action(torch.ones(3, device="cuda"), torch.ones(3))


def test_a_worker_must_not_touch_the_device():
    data = TensorDataset(torch.ones(4, 2))
    with (
        shadow_cuda(),
        pytest.raises(RuntimeError, match="Cannot re-initialize CUDA in forked subprocess"),
    ):
        next(iter(DataLoader(data, num_workers=1, collate_fn=lambda rows: rows[0][0].cuda())))


def test_threads_of_the_program():
    found = []
    heard = Heard()

    def work():
        x = torch.ones(3, device="cuda", requires_grad=True)
        (x * torch.arange(3).cuda()).sum().backward()
        found.append(x.grad.tolist())

    with shadow_cuda(heard):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert found == [[0, 1, 2]]
    assert heard.kinds() == ["copy", "tolist"]


def test_a_model_that_stays_the_same_object():
    with shadow_cuda():
        net = nn.Linear(2, 2)
        weight = net.weight
        weight.mine = "kept"
        assert net.cuda().weight is weight and weight.is_cuda and type(weight) is ShadowTensor
        assert net.cpu().weight is weight and not weight.is_cuda and type(weight) is nn.Parameter
        assert weight.mine == "kept"


def test_a_copied_parameter_keeps_its_gradient():
    with shadow_cuda():
        net = nn.Linear(2, 2).cuda()
        net(torch.ones(1, 2, device="cuda")).sum().backward()
        assert copy.deepcopy(net).weight.grad.tolist() == net.weight.grad.tolist()


def test_data_parallel_on_the_one_gpu_is_the_module_itself():
    heard = Heard()
    with shadow_cuda(heard):
        net = nn.DataParallel(nn.Linear(2, 2)).cuda()
        heard.crossings.clear()
        on_device, on_host = torch.ones(1, 2, device="cuda"), torch.ones(1, 2)
        assert net(on_device).tolist() == net(on_host).tolist() == net.module(on_device).tolist()
        net(on_host).sum().backward()
        assert net.module.weight.grad.is_cuda
    uploads = [crossing for crossing in heard.crossings if crossing.kind == "copy"]
    assert [(upload.nbytes, upload.blocking) for upload in uploads] == [(8, False)] * 2


REFUSALS = {
    "torch.nn.DataParallel": lambda: nn.DataParallel(nn.Linear(2, 2).cuda(), device_ids=[0, 1]),
    "torch.distributed.init_process_group": lambda: torch.distributed.init_process_group(
        "nccl", rank=0, world_size=2
    ),
    "torch.cuda.CUDAGraph": lambda: torch.cuda.CUDAGraph(),
    "torch.cuda.graph": lambda: torch.cuda.graph(None),
    "torch.cuda.make_graphed_callables": lambda: torch.cuda.make_graphed_callables(
        nn.Linear(2, 2), ()
    ),
    "torch.cuda.utilization": lambda: torch.cuda.utilization(),
    "torch.cuda.memory._record_memory_history": lambda: torch.cuda.memory._record_memory_history(),
    "torch.nested": lambda: torch.nested.nested_tensor(
        [torch.ones(1), torch.ones(2)], device="cuda"
    ),
    "Tensor.cuda": lambda: nn.LazyLinear(2).cuda(),
    "Tensor.__dlpack__": lambda: torch.utils.dlpack.to_dlpack(torch.ones(1, device="cuda")),
    "Tensor.__cuda_array_interface__": lambda: (
        torch.ones(1, device="cuda").__cuda_array_interface__
    ),
}


@pytest.mark.parametrize("operator", REFUSALS)
def test_what_is_refused(operator):
    heard = Heard()
    with shadow_cuda(heard), pytest.raises(ShadowLimit) as caught:
        REFUSALS[operator]()
    assert heard.limits == [(caught.value.operator, caught.value.reason)]
    assert operator == caught.value.operator


GAPS = {
    "an operator called by torch.ops": lambda: torch.ops.aten.zeros([2], device="cuda"),
    "a factory in scripted code": lambda: torch.jit.script(makes_zeros)(
        torch.ones(1, device="cuda")
    ),
}


def moved_to(x: torch.Tensor, where: torch.device) -> torch.Tensor:
    return x.to(where)


def makes_zeros(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros(2, device="cuda")


@pytest.mark.parametrize("gap", GAPS)
def test_known_gaps_are_loud(gap):
    """As docs/rehearsal.md lists them: torch's own error, never a wrong result."""
    with shadow_cuda(), pytest.raises(Exception, match="CUDA|cuda"):
        GAPS[gap]()


def test_a_module_that_is_not_compiled_has_the_names_of_one_that_is():
    """As torch's own, which the compiler's eager backend makes beside it."""
    plain = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.5))
    plain.extra = "x"
    theirs = torch.compile(plain, backend="eager")
    with shadow_cuda():
        ours = torch.compile(plain, backend="eager")
        assert list(ours.state_dict()) == list(theirs.state_dict())
        assert [name for name, _ in ours.named_modules()] == [
            name for name, _ in theirs.named_modules()
        ]
        assert list(map(id, ours.parameters())) == list(map(id, theirs.parameters()))
        assert ours._orig_mod is plain and ours.extra == "x" and ours[0] is plain[0]
        assert len(ours) == 2
        assert not hasattr(type(theirs), "__len__") or len(theirs) == 2  # not before torch 2.9
        ours.eval()
        assert not plain.training and not ours.training and not theirs.training
        ours.train()
        assert plain.training and plain[1].training
        ours.extra = "y"
        assert plain.extra == "y"
        assert ours(torch.ones(1, 2)).shape == (1, 3)
        calls = []
        plain.register_forward_hook(lambda *_: calls.append(1))
        ours(torch.ones(1, 2))
        assert calls == [1]
        assert torch.compile(plain, disable=True) is plain
        assert torch.compile(ours) is ours
        with pytest.raises(AttributeError, match="nowhere"):
            ours.nowhere  # noqa: B018
        assert bool(torch.compile(nn.Linear(2, 2)))
        copied = copy.deepcopy(ours)
        assert copied._orig_mod is not plain
        assert list(copied.state_dict()) == list(ours.state_dict())
        net = torch.compile(nn.Linear(2, 2).cuda(), mode="max-autotune")
        assert net(torch.ones(1, 2, device="cuda")).is_cuda

        @torch.compile
        def double(x):
            return x * 2

        assert double(torch.ones(1, device="cuda")).item() == 2


class Memory(Heard):
    tracks_memory = True

    def __init__(self):
        super().__init__()
        self.live, self.peak = {}, 0

    def allocated(self, storage_id, nbytes):
        assert storage_id not in self.live
        self.live[storage_id] = nbytes
        self.peak = max(self.peak, sum(self.live.values()))

    def freed(self, storage_id):
        del self.live[storage_id]


def test_storages_are_followed():
    memory = Memory()
    with shadow_cuda(memory):
        x = torch.zeros(256, device="cuda")
        assert sum(memory.live.values()) == 1024 == torch.cuda.memory_allocated()
        view = x[:4]
        y = x * 2
        assert sum(memory.live.values()) == 2048
        del x
        assert sum(memory.live.values()) == 2048
        del view, y
        gc.collect()
        assert memory.live == {}
        assert torch.cuda.max_memory_allocated() == memory.peak == 2048
        torch.cuda.reset_peak_memory_stats()
        assert torch.cuda.max_memory_allocated() == 0


@pytest.mark.parametrize("activities", [["CPU", "CUDA"], ["CUDA"], ["CPU"]], ids="-".join)
def test_a_profiler_that_asks_for_the_device_sees_the_host(activities, capfd):
    with shadow_cuda():
        asked = [getattr(torch.profiler.ProfilerActivity, name) for name in activities]
        net, x = nn.Linear(3, 3).cuda(), torch.ones(2, 3, device="cuda")
        with torch.profiler.profile(activities=asked) as profiler:
            net(x)
        assert any(event.key == "aten::addmm" for event in profiler.key_averages())
        with (
            torch.autograd.profiler.profile(use_device="cuda") as old,
            torch.autograd.profiler.emit_nvtx(),
        ):
            net(x)
        assert old.key_averages()
    assert (
        "Exception raised" not in capfd.readouterr().err
    )  # a build for the CPU warns of each operator that asks for a device event
