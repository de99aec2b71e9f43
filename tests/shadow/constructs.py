"""What makes the host wait for a GPU and what does not, each with its reason in torch's CUDA sources.

A line marked `#: KIND` (or `#: KIND xN`, `#: KIND before 2.13`) blocks the host; every other line does not. h2d stands for a blocking copy to the
device. Files are below aten/src/ATen unless they begin with torch/.
"""
# ruff: noqa
import copy
import io

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class Lab:
    """Things on the device and beside it."""

    def __init__(self, device="cuda"):
        g = torch.Generator().manual_seed(0)
        self.d = device
        self.x = torch.randn(6, 4, generator=g).to(device)
        self.v = torch.arange(6, device=device)
        self.s = torch.tensor(2.0, device=device)
        self.host = torch.randn(6, 4, generator=g)
        self.pinned = torch.randn(6, 4, generator=g).pin_memory()
        self.net = nn.Linear(4, 3).to(device)
        self.loss = self.net(self.x).pow(2).mean()
        self.out = torch.zeros(8, device=device)


# ---- copies: native/cuda/Copy.cu, copy_kernel_cuda
def pageable_to_device(lab):
    lab.host.to("cuda")  #: h2d
def pageable_cuda_method(lab):
    lab.host.cuda()  #: h2d
def pinned_to_device_blocking(lab):  # pinned or not: without non_blocking the copy ends in memcpy_and_sync
    lab.pinned.cuda()  #: h2d
def pinned_to_device(lab):
    lab.pinned.to("cuda", non_blocking=True)
def pageable_non_blocking(lab):  # staged by the driver; the host goes on
    lab.host.to("cuda", non_blocking=True)
def view_of_pinned(lab):
    lab.pinned[:2].cuda(non_blocking=True)
def empty_to_device(lab):  # copy_impl returns at once for no elements
    torch.empty(0).cuda()
def to_where_it_is(lab):
    lab.x.to("cuda").cuda().to(lab.x.device)
def to_dtype(lab):
    lab.x.to(torch.float64).half().type(torch.float32)
def to_host(lab):
    lab.x.to("cpu")  #: to_cpu
def cpu(lab):
    lab.x.cpu()  #: cpu
def to_host_non_blocking(lab):  # native/TensorConversions.cpp: the target is pinned (pin_out)
    lab.x.to("cpu", non_blocking=True)
def into_pageable_non_blocking(lab):  # CUDA: device to pageable memory returns only when the copy is complete
    lab.host.copy_(lab.x, non_blocking=True)  #: to_cpu
def into_pinned_non_blocking(lab):
    lab.pinned.copy_(lab.x, non_blocking=True)
def into_pinned_blocking(lab):
    lab.pinned.copy_(lab.x)  #: to_cpu
def copy_up(lab):
    lab.x.copy_(lab.host)  #: h2d
def copy_up_pinned(lab):
    lab.x.copy_(lab.pinned, non_blocking=True)
def copy_on_device(lab):
    lab.x.copy_(lab.x * 2)
def clone(lab):
    lab.x.clone(); copy.deepcopy(lab.net)
def type_of_another_device(lab):
    lab.x.type("torch.FloatTensor")  #: to_cpu
def legacy_type_up(lab):
    lab.host.type("torch.cuda.FloatTensor")  #: h2d
def type_as_up(lab):
    lab.host.type_as(lab.x)  #: h2d
def like_another_tensor(lab):
    lab.host.to(lab.x)  #: h2d
def module_up(lab):
    nn.Linear(2, 2).cuda()  #: h2d x2
def module_down(lab):
    lab.net.cpu()  #: cpu x2
def save(lab):  # torch/storage.py: each storage is copied to the host
    torch.save(lab.net.state_dict(), io.BytesIO())  #: to_cpu x2

# ---- numbers and arrays: torch/csrc/utils/tensor_new.cpp, internal_new_from_data: made on the host, then .to(device)
def tensor_of_number(lab):
    torch.tensor(1.0, device="cuda")  #: h2d
def tensor_of_list(lab):
    torch.tensor([1, 2], device="cuda")  #: h2d
def as_tensor_of_array(lab):
    torch.as_tensor(np.ones(3), device="cuda")  #: h2d
def new_tensor(lab):
    lab.x.new_tensor([1.0])  #: h2d
def legacy_constructor(lab):
    torch.cuda.FloatTensor([1.0, 2.0])  #: h2d
def tensor_on_default_device(lab):
    with torch.device("cuda"):
        torch.tensor([1.0])  #: h2d
def scalar_tensor(lab):  # native/TensorFactories.cpp: empty, then fill_ (a kernel)
    torch.scalar_tensor(1.0, device="cuda")
def full_and_friends(lab):
    torch.full((3,), 2.0, device="cuda"); torch.zeros(3, device="cuda"); torch.arange(9, device="cuda"); torch.eye(3, device="cuda")
def random_on_device(lab):
    torch.randn(3, device="cuda"); torch.randperm(9, device="cuda"); torch.randint(3, (2,), device="cuda"); F.dropout(lab.x)
def list_of_device_scalars(lab):  # each by item()
    torch.tensor([lab.s, lab.s])  #: item x2
def tensor_of_device_tensor(lab):
    with torch.no_grad():
        torch.as_tensor(lab.x, device="cuda")

# ---- indexing: native/TensorAdvancedIndexing.cpp, IndexingUtils.h (expandTensors: masks by nonzero; .to(self.device()))
def boolean_mask(lab):
    lab.x[lab.x > 0]  #: mask_index
def byte_mask(lab):
    lab.x[(lab.x > 0).to(torch.uint8)]  #: mask_index
def mask_of_rows(lab):
    lab.x[lab.x[:, 0] > 0, 1:]  #: mask_index
def mask_fill(lab):  # canDispatchToMaskedFill: a host number of one element
    lab.x[lab.x > 0] = 0.0
def mask_fill_host_tensor(lab):
    lab.x[lab.x > 0] = torch.tensor(0.0)
def mask_fill_device_scalar(lab):  # not a host number: by nonzero
    lab.x[lab.x > 0] = lab.s  #: mask_put
def masked_fill_method(lab):
    lab.x.masked_fill_(lab.x > 0, 0.0); lab.x.masked_fill(lab.x > 0, torch.tensor(1.0))
def masked_fill_device_scalar(lab):  # native/cuda/IndexKernel.cpp: value.item()
    lab.x.masked_fill_(lab.x > 0, lab.s)  #: item
    lab.x.masked_fill(lab.x > 0, lab.s)  #: item
def masked_fill_learned(lab):  # torch/csrc/autograd/FunctionsManual.cpp, masked_fill_backward: masked_select
    filled = lab.x.masked_fill(lab.x > 0, value := lab.s.clone().requires_grad_())  #: item
    filled.sum().backward()  #: masked_select
def fill_index_backward(lab):  # index_put's backward fills with a zero of the engine's own, on the device
    y = lab.x.clone().requires_grad_() * 2
    y[lab.v[:3]] = lab.x[3:].clone().requires_grad_() * 3
    y.sum().backward()
def host_index_backward(lab):  # what was indexed with is kept as it was given
    y = lab.x.clone().requires_grad_()[torch.tensor([0, 2])]  #: h2d
    y.sum().backward()  #: h2d
def mask_backward(lab):
    y = lab.x.clone().requires_grad_()[lab.x > 0]  #: mask_index
    y.sum().backward()  #: mask_put
def python_list_index(lab):  # the list becomes a tensor on self's device: a copy
    lab.x[[0, 2]]  #: h2d
def host_index(lab):
    lab.x[torch.tensor([0, 2])]  #: h2d
def device_index(lab):
    lab.x[lab.v]; lab.x.index_select(0, lab.v); lab.x[lab.v, lab.v % 4]
def device_scalar_index(lab):  # TensorIndexing.h: a 0-dim integer tensor is read by item()
    lab.x[lab.v[2]]  #: item
def slices(lab):
    lab.x[1:3], lab.x[:, 0], lab.x[..., None], lab.x[-1]
def set_number(lab):
    lab.x[:, 0] = 1.0; lab.x[1:3] = 2
def set_element(lab):  # torch/csrc/autograd/python_variable_indexing.cpp: on CUDA the number is a host tensor; same sizes: copy_
    lab.x[0, 0] = 1.0  #: h2d
def set_rows_to_number(lab):  # _index_put_impl_: value.to(self.device())
    lab.x[lab.v] = 0.0  #: h2d
def set_from_host(lab):
    lab.x[0] = torch.ones(4)  #: h2d
def set_from_device(lab):
    lab.x[0] = lab.x[1]; lab.x[lab.v] = lab.x.clone()
def host_set_from_device(lab):
    lab.host[0] = lab.x[0]  #: to_cpu
def one_argument_where(lab):
    torch.where(lab.x > 0)  #: nonzero
def three_argument_where(lab):
    torch.where(lab.x > 0, lab.x, 0.0)
def where_with_host_scalar(lab):  # native/TensorCompare.cpp, where_self_out: other.to(device)
    torch.where(lab.x > 0, lab.x, torch.tensor(0.0))  #: h2d
def masked_select(lab):
    lab.x.masked_select(lab.x > 0)  #: masked_select
def gather_scatter(lab):
    lab.x.gather(0, lab.v[None, :4]); lab.out.scatter_add_(0, lab.v, torch.ones(6, device="cuda")); lab.x.index_add_(0, lab.v, lab.x.clone())

# ---- results whose size depends on the data
def nonzero(lab):  # native/cuda/Nonzero.cu
    lab.x.nonzero()  #: nonzero
def count_nonzero(lab):
    lab.x.count_nonzero()
def unique(lab):  # native/cuda/UniqueCub.cu
    lab.v.unique()  #: unique
def unique_consecutive(lab):
    torch.unique_consecutive(lab.v)  #: unique
def repeats(lab):  # native/Repeat.cpp: the sum of repeats
    torch.repeat_interleave(lab.v, lab.v)  #: repeat_interleave
def repeats_known(lab):
    torch.repeat_interleave(lab.v, lab.v, output_size=15); torch.repeat_interleave(lab.v, 2)
def bincount(lab):  # native/cuda/SummaryOps.cu
    torch.bincount(lab.v)  #: bincount
def one_hot(lab):  # native/Onehot.cpp: the maximum, only where classes are not said
    F.one_hot(lab.v)  #: item
def one_hot_known(lab):
    F.one_hot(lab.v, 6)
def histogram(lab):  # native/cuda/SummaryOps.cu: bounds from the data
    torch.histc(lab.x, 4)  #: item
def histogram_of_known_range(lab):
    torch.histc(lab.x, 4, -3, 3)

# ---- scalars
def item(lab):  # native/cuda/CUDAScalar.cu: memcpy_and_sync
    lab.s.item()  #: item
def truth(lab):
    if lab.s > 1:  #: item
        pass
def conversions(lab):
    float(lab.s), int(lab.s)  #: item x2
def scalar_argument(lab):  # the argument parser reads a tensor given for a number
    lab.x.add_(lab.x, alpha=lab.s)  #: item
def fill_from_device(lab):
    lab.x.fill_(lab.s)
def size_of_a_factory(lab):
    torch.zeros(int(lab.v.max()))  #: item
def step_by_tensor(lab):
    lab.x.clamp_(max=lab.s); lab.x * lab.s; lab.x / lab.s
def host_scalar_operand(lab):  # wrapped numbers are kernel arguments
    lab.x * torch.tensor(2.0)
def equal(lab):  # native/cuda/Equal.cpp
    torch.equal(lab.x, lab.x + 0)  #: equal
def equal_for_sure(lab):  # the same memory, other sizes
    torch.equal(lab.x, lab.x); torch.equal(lab.x, lab.x[1:])
def covariance(lab):  # native/Correlation.cpp: is_scalar_tensor_true
    torch.cov(lab.x)  #: equal
    torch.corrcoef(lab.x)  #: equal
def allclose(lab):
    torch.allclose(lab.x, lab.x)  #: item
def isfinite(lab):
    torch.isfinite(lab.x).all()
def tolist(lab):
    lab.v.tolist()  #: tolist
def shown(lab):
    repr(lab.x)  #: print
def formatted(lab):
    f"{lab.s:.3f}"  #: item

# ---- checks that read
def multinomial(lab):  # native/Distributions.cpp: _assert_async, a check on the device
    torch.multinomial(torch.ones(4, device="cuda"), 1); torch.multinomial(torch.ones(4, device="cuda"), 2, replacement=True)
def normal_of_tensors(lab):  # native/DistributionTemplates.h: std.min().ge(0).item(), since pull request 186508 _assert_async
    torch.normal(lab.x, lab.x.abs())  #: item before 2.13
def inverse(lab):  # native/BatchLinearAlgebra.cpp, _linalg_check_errors: infos.any().item()
    torch.linalg.inv(torch.eye(3, device="cuda"))  #: check
def inverse_unchecked(lab):
    torch.linalg.inv_ex(torch.eye(3, device="cuda"))
def cholesky(lab):
    torch.linalg.cholesky(torch.eye(3, device="cuda"))  #: check
def eigenvalues(lab):  # native/BatchLinearAlgebra.cpp: each checks in its kernel
    torch.linalg.eigh(torch.eye(3, device="cuda"))  #: check
    torch.linalg.eigvalsh(torch.eye(3, device="cuda"))  #: check
def singular_values(lab):  # the same; and how the iteration converged is brought to the host
    torch.linalg.svd(lab.x)  #: check
    torch.linalg.svdvals(lab.x)  #: check
    torch.linalg.matrix_norm(lab.x, 2)  #: check
    torch.linalg.pinv(lab.x)  #: check
def least_squares(lab):
    torch.linalg.lstsq(torch.eye(3, device="cuda"), torch.eye(3, device="cuda"))  #: check
def factors(lab):
    torch.linalg.qr(lab.x); torch.linalg.det(lab.x[:4]); torch.linalg.slogdet(lab.x[:4]); torch.linalg.matrix_power(lab.x[:4], 3)
def matrix_exponential(lab):  # native/LinearAlgebra.cpp: norms decide the degrees, on the host
    torch.linalg.matrix_exp(lab.x[:4])  #: to_cpu
def quantile(lab):  # native/Sorting.cpp: q is checked on the CPU only
    torch.quantile(lab.x, 0.5)
def cross_entropy(lab):  # targets are checked inside the kernel
    F.cross_entropy(lab.x, lab.v % 4); F.embedding(lab.v, lab.x)
def validated_distribution(lab):
    torch.distributions.Normal(lab.x, lab.x.exp(), validate_args=True)  #: item x2
def ctc_lengths_on_device(lab):  # native/LossCTC.cpp: lengths are brought to the host
    logits = torch.zeros(6, 1, 4, device="cuda").log_softmax(2)
    F.ctc_loss(logits, torch.ones(1, 2, dtype=torch.long, device="cuda"), lab.v[5:] + 1, lab.v[2:3])  #: to_cpu x2, h2d
def ctc_lengths_on_host(lab):  # native/cuda/LossCTC.cu: lengths and places go up, and again in the backward
    logits = torch.zeros(6, 1, 4, device="cuda", requires_grad=True)
    loss = F.ctc_loss(logits.log_softmax(2), torch.ones(1, 2, dtype=torch.long, device="cuda"), torch.tensor([6]), torch.tensor([2]))  #: h2d
    loss.backward()  #: h2d
def smoothed_loss(lab):
    F.cross_entropy(lab.x, lab.v % 4, label_smoothing=0.1); F.cross_entropy(lab.x, lab.v % 4, weight=torch.ones(4, device="cuda"))
def smoothed_and_weighted_loss(lab):  # native/LossNLL.cpp: the weights that count are selected
    F.cross_entropy(lab.x, lab.v % 4, weight=torch.ones(4, device="cuda"), label_smoothing=0.1)  #: masked_select
def combinations(lab):  # native/TensorFactories.cpp: pairs by masked_select, in 2.14 by triu_indices
    torch.combinations(lab.v)  #: masked_select x2 before 2.14
    torch.cartesian_prod(lab.v, lab.v); torch.block_diag(lab.x, lab.x)
def sparse_product(lab):  # native/sparse/cuda/SparseCUDABlas.cpp: coalesced first
    index = torch.stack([lab.v[:4], lab.v[:4]])
    matrix = torch.sparse_coo_tensor(index, lab.x[0], (4, 4))
    torch.sparse.mm(matrix, lab.x[:4])  #: unique

# ---- the step
def step(lab):
    lab.loss.backward()
    nn.utils.clip_grad_norm_(lab.net.parameters(), 1.0)
    opt = torch.optim.AdamW(lab.net.parameters())
    opt.step()
    opt.zero_grad()
def fused_step(lab):
    lab.loss.backward()
    torch.optim.AdamW(lab.net.parameters(), fused=True).step()
def clip_that_raises(lab):
    lab.loss.backward()
    nn.utils.clip_grad_norm_(lab.net.parameters(), 1.0, error_if_nonfinite=True)  #: item
def scaler(lab):  # torch/amp/grad_scaler.py: found_inf is read in step(), one for each device
    amp = torch.amp.GradScaler("cuda")
    amp.scale(lab.loss).backward()
    amp.unscale_(opt := torch.optim.SGD(lab.net.parameters(), lr=0.1))
    amp.step(opt)  #: item
    amp.update()
def scale_read(lab):  # get_scale() reads
    amp = torch.amp.GradScaler("cuda")
    amp.scale(lab.loss)
    amp.get_scale()  #: item
def autocast_step(lab):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        lab.net(lab.x).float().mean().backward()
def product_backward(lab):  # torch/csrc/autograd/FunctionsManual.cpp: where are zeros?
    x = lab.x.clone().requires_grad_()
    x.prod().backward()  #: nonzero
    x.prod(1).sum().backward()  #: item
    x.cumprod(1).sum().backward()  #: item
def saved_on_host(lab):  # torch/autograd/graph.py
    x = lab.x.clone().requires_grad_()
    with torch.autograd.graph.save_on_cpu():
        y = x * x  #: cpu x2
    y.sum().backward()  #: h2d x2
def saved_in_pinned_memory(lab):
    x = lab.x.clone().requires_grad_()
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        y = x.exp()
    y.sum().backward()
def checkpointed(lab):
    from torch.utils.checkpoint import checkpoint
    checkpoint(lab.net, lab.x, use_reentrant=False).sum().backward()
def module_with_gradients_up(lab):
    net = nn.Linear(4, 3)
    net(lab.host).sum().backward()
    net.cuda()  #: h2d x4
def save_of_one_storage(lab):  # each storage is written once
    torch.save([lab.x, lab.x[1:], lab.x.view(-1)], io.BytesIO())  #: to_cpu
def closure(lab):  # LBFGS reads the loss and its line search
    opt = torch.optim.SGD(lab.net.parameters(), lr=0.1)
    opt.step(lambda: lab.net(lab.x).sum())
def batch_norm(lab):  # its counter is torch.tensor(0, device=...)
    nn.BatchNorm1d(4, device="cuda")(lab.x)  #: h2d
def lstm(lab):
    nn.LSTM(4, 3, device="cuda")(lab.x[:, None])
def attention(lab):
    q = lab.x[None, None]
    F.scaled_dot_product_attention(q, q, q, is_causal=True)
def padded_encoder(lab):  # native/nested/NestedTensorMath.cpp: the mask is checked, its sizes go to the host
    net = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, device="cuda"), 1).eval()
    with torch.no_grad():
        net(lab.x.view(2, 3, 4), src_key_padding_mask=lab.v.view(2, 3) % 3 > 1)  #: equal, to_cpu

# ---- waits that are asked for
def synchronize(lab):
    torch.cuda.synchronize()  #: synchronize
def accelerator_synchronize(lab):
    torch.accelerator.synchronize()  #: synchronize
def stream_synchronize(lab):
    torch.cuda.current_stream().synchronize()  #: synchronize
def event_synchronize(lab):
    event = torch.cuda.Event()
    event.record()
    event.synchronize()  #: synchronize
def streams_and_events(lab):  # the device waits, the host does not
    side, event = torch.cuda.Stream(), torch.cuda.Event(enable_timing=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = lab.x * 2
    y.record_stream(side)
    event.record(); event.query(); side.wait_event(event)
def empty_cache(lab):  # c10/cuda/CUDACachingAllocator.cpp: cudaFree waits
    torch.empty(1 << 22, device="cuda")  # is free at once, and kept
    torch.cuda.empty_cache()  #: allocator
def memory_numbers(lab):
    torch.cuda.memory_allocated(); torch.cuda.max_memory_allocated(); torch.cuda.reset_peak_memory_stats()
def shapes(lab):
    len(lab.x), lab.x.shape, lab.x.numel(), lab.x.size(0), lab.x.device, lab.x.dtype, lab.x.is_cuda, lab.x.stride()
def on_the_host(lab):
    lab.host.sum().item(); lab.host.tolist(); lab.host.numpy(); lab.host[lab.host > 0]; lab.host.nonzero(); repr(lab.host)

# ---- numbers that are device tensors: torch/csrc/utils/python_arg_parser.cpp reads them by item()
def full_of_a_device_number(lab):
    torch.full((3,), lab.s, device="cuda")  #: item
    torch.full((3,), fill_value=lab.s, device="cuda")  #: item
    torch.full_like(lab.host, lab.s, device="cuda")  #: item
    torch.full_like(lab.x, lab.s)  #: item
    lab.x.new_full((2,), lab.s, device="cuda")  #: item
def sizes_from_a_device_number(lab):
    n = lab.v[3]
    torch.zeros(n, 3, device="cuda")  #: item
    torch.ones((n, 3), device="cuda")  #: item
    torch.zeros(size=(n, n), device="cuda")  #: item x2
    torch.rand(n, device="cuda"); torch.empty(2)  #: item
    torch.randint(-1, n, (3,), device="cuda")  #: item
    torch.eye(n, device="cuda")  #: item
    torch.randperm(n, device="cuda")  #: item
    lab.x.new_zeros((n, 2), device="cuda")  #: item
def ranges_to_a_device_number(lab):
    torch.arange(lab.v[3], device="cuda")  #: item
    torch.linspace(0, lab.s, 4, device="cuda")  #: item
    torch.logspace(lab.s, lab.s, 4, device="cuda")  #: item x2
    torch.hann_window(lab.v[3], device="cuda")  #: item
def host_tensors_of_a_device_number(lab):
    assert torch.arange(lab.v[3]).device.type == "cpu"  #: item
    assert torch.full((2,), lab.s, device="cpu").device.type == "cpu"  #: item
    assert torch.zeros(lab.v[3], pin_memory=True).device.type == "cpu"  #: item
def on_the_default_device_of_a_number(lab):
    n = lab.v[3]
    with torch.device("cuda"):
        torch.zeros(n, 2)  #: item
        torch.full((2,), lab.s)  #: item
def one_hot_of_a_device_number(lab):
    torch.nn.functional.one_hot(lab.v, lab.v[5] + 1)  #: item
def like_a_device_number(lab):  # data, not a number
    torch.zeros_like(lab.s, device="cuda"); torch.full_like(lab.s, 2.0); lab.s.new_ones((2,)); torch.zeros_like(input=lab.s, device="cuda")
    torch.normal(lab.s, 1.0)
    torch.tensor(lab.s, device="cuda"); torch.clamp(lab.x, min=lab.s)
def one_that_has_a_graph_is_refused(lab):
    try:
        torch.full((2,), lab.loss, device="cuda")
    except TypeError:
        pass
    else:
        raise AssertionError("torch refuses it")

SNIPPETS = [value for value in list(globals().values()) if callable(value) and getattr(value, "__module__", "") == __name__ and not isinstance(value, type)]
