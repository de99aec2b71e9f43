"""What CUDA's libraries are asked: cuBLAS, cuDNN, cuSOLVER, cuSPARSE, cuFFT, Triton, with shapes
and types as on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from torch_null_device import watching

pytestmark = pytest.mark.usefixtures("inside")

CASES: dict[str, Callable[[Callable[..., torch.Tensor]], Any]] = {}
"""Name -> a function that is given a maker of tensors (``make(2, 3)``) on one device and returns
tensors.
"""


def case(function):
    CASES[function.__name__] = function
    return function


def trained(module: nn.Module, *given: torch.Tensor) -> list[torch.Tensor]:
    """Outputs, and gradients of inputs and parameters."""
    module = module.to(given[0].device)
    out = module(*given)
    first = out[0] if isinstance(out, tuple) else out
    first = first.data if isinstance(first, nn.utils.rnn.PackedSequence) else first
    first.float().sum().backward()
    return [first, *(parameter.grad for parameter in module.parameters())]


@case
def convolution(make):
    return trained(nn.Conv2d(3, 8, 3, stride=2, padding=1), make(2, 3, 17, 17).requires_grad_())


@case
def convolution_channels_last(make):
    return trained(
        nn.Conv2d(4, 8, 3).to(memory_format=torch.channels_last),
        make(2, 4, 9, 9).to(memory_format=torch.channels_last),
    )


@case
def convolutions_of_one_and_three_dimensions(make):
    return [
        *trained(nn.Conv1d(3, 6, 3, groups=3), make(2, 3, 16)),
        *trained(nn.ConvTranspose3d(3, 4, 3), make(2, 3, 5, 5, 5)),
    ]


@case
def batch_norm(make):
    return [
        *trained(nn.BatchNorm2d(8), make(2, 8, 5, 5)),
        nn.BatchNorm2d(8).to(make(1).device).eval()(make(2, 8, 5, 5)),
    ]


@case
def lstm(make):
    return trained(nn.LSTM(10, 20, 2, dropout=0.1, bidirectional=True), make(7, 3, 10))


@case
def lstm_with_projection(make):
    return trained(nn.LSTM(10, 20, proj_size=5), make(7, 3, 10))


@case
def gru_batch_first_without_bias(make):
    return trained(nn.GRU(10, 20, bias=False, batch_first=True), make(3, 7, 10))


@case
def rnn_of_packed_sequences(make):
    packed = nn.utils.rnn.pack_padded_sequence(make(7, 3, 10), torch.tensor([7, 5, 2]))
    module = nn.RNN(10, 20).to(make(1).device)
    return [module(packed)[0].data]


@case
def attention(make):
    q, k, v = (make(2, 4, 64, 16).requires_grad_() for _ in range(3))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    out.sum().backward()
    return [out, q.grad, k.grad, v.grad]


@case
def transformer_layer(make):
    return trained(nn.TransformerEncoderLayer(32, 4, batch_first=True), make(2, 10, 32))


@case
def products(make):
    a, b = make(3, 8, 16), make(3, 16, 4)
    return [
        a @ b,
        torch.baddbmm(make(3, 8, 4), a, b),
        a[0] @ b[0],
        a[0] @ b[0, :, 0],
        torch.einsum("bij,bjk->ik", a, b),
    ]


@case
def linear_with_bias_and_gelu(make):
    return trained(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 3)), make(8, 64))


@case
def factorizations(make):
    a = make(4, 16, 16)
    spd = a @ a.mT + 20 * torch.eye(16, device=a.device)
    found = [
        torch.linalg.cholesky(spd),
        *torch.linalg.qr(a),
        *torch.linalg.svd(a),
        *torch.linalg.eigh(spd),
    ]
    return [
        *found,
        torch.linalg.solve(spd, a),
        torch.linalg.inv(spd),
        torch.linalg.det(a),
        torch.linalg.eigvalsh(spd),
        *torch.linalg.lu(a),
    ]


@case
def gradients_of_factorizations(make):
    a = (make(12, 12) + 12 * torch.eye(12, device=make(1).device)).requires_grad_()
    torch.linalg.svdvals(a).sum().backward()
    torch.linalg.solve(a, make(12, 3)).sum().backward()
    return [a.grad]


@case
def fourier(make):
    x = make(4, 64).requires_grad_()
    torch.fft.irfft(torch.fft.rfft(x)).sum().backward()
    spectrum = torch.stft(
        make(1, 1000), 64, window=torch.ones(64, device=x.device), return_complex=True
    )
    return [x.grad, torch.fft.fft2(make(2, 8, 8)), spectrum]


@case
def sparse_products(make):
    device = make(1).device
    indices = torch.tensor([[0, 1, 2], [1, 0, 2]], device=device)
    sparse = torch.sparse_coo_tensor(indices, make(3), (3, 3), check_invariants=False)
    rows = torch.sparse_csr_tensor(
        torch.tensor([0, 1, 2]),
        torch.tensor([0, 1]),
        torch.ones(2),
        size=(2, 2),
        device=device,
        check_invariants=False,
    )
    return [torch.sparse.mm(sparse, make(3, 4)), rows @ make(2, 4), rows @ make(2)]


@case
def embeddings(make):
    device = make(1).device
    bag, sparse = nn.EmbeddingBag(10, 4).to(device), nn.Embedding(10, 4, sparse=True).to(device)
    bag(
        torch.tensor([1, 2, 3, 4], device=device), torch.tensor([0, 2], device=device)
    ).sum().backward()
    sparse(torch.tensor([1, 2, 3], device=device)).sum().backward()
    torch.optim.SparseAdam(sparse.parameters()).step()
    return [bag.weight.grad, sparse.weight]


@case
def sorting_and_searching(make):
    x = make(10, 10)
    return [
        *x.sort(),
        *x.topk(3),
        x.cumsum(0),
        *x.median(0),
        *x.kthvalue(2),
        torch.searchsorted(x, x),
        torch.multinomial(x.abs() + 1, 3),
    ]


@case
def losses(make):
    x, labels = (
        make(6, 10).requires_grad_(),
        torch.tensor([0, 1, 2, 3, 4, 5], device=make(1).device),
    )
    F.cross_entropy(x, labels).backward()
    return [
        x.grad,
        F.kl_div(x, x.softmax(1), reduction="batchmean"),
        F.mse_loss(x, x),
        F.nll_loss(x.log_softmax(1), labels),
    ]


@case
def pooling_and_resampling(make):
    x = make(2, 3, 8, 8)
    pooled = [
        F.max_pool2d(x, 2),
        F.adaptive_avg_pool2d(x, 1),
        F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    ]
    return [
        *pooled,
        F.grid_sample(x, make(2, 4, 4, 2), align_corners=False),
        F.group_norm(x, 3),
        F.layer_norm(x, (8,)),
    ]


def shapes(found: Any) -> list[tuple[Any, ...]]:
    return [
        (
            tuple(one.shape),
            one.dtype,
            tuple(one.stride()) if one.layout == torch.strided else one.layout,
        )
        for one in found
    ]


LAYOUTS_OF_THEIR_OWN = {
    "factorizations",
    "lstm",
    "lstm_with_projection",
    "gru_batch_first_without_bias",
    "attention",
}
"""Cases where torch's CUDA code lays its results out in another order than its CPU code."""


@pytest.mark.parametrize("name", CASES)
def test_shapes_and_types_are_those_of_the_cpu(name):
    torch.manual_seed(0)
    here = shapes(CASES[name](lambda *sizes: torch.randn(*sizes)))
    silent = watching.unanswered()
    there = shapes(CASES[name](lambda *sizes: torch.randn(*sizes, device="cuda")))
    torch.cuda.synchronize()
    keep = slice(0, 2) if name in LAYOUTS_OF_THEIR_OWN else slice(0, 3)
    assert [one[keep] for one in there] == [one[keep] for one in here]
    assert watching.unanswered() == silent, "everything is answered"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.complex64])
def test_other_types(dtype):
    a = torch.randn(4, 16, 16, device="cuda").to(dtype)
    assert (a @ a).dtype == dtype
    if dtype in (torch.float64, torch.complex64):
        assert torch.linalg.svd(a)[0].dtype == dtype
        assert torch.fft.fft(a).is_complex()
    else:
        assert trained(nn.Conv2d(4, 4, 3).to(dtype), a)[0].dtype == dtype


@pytest.mark.parametrize(
    "backend", ["CUDNN_ATTENTION", "FLASH_ATTENTION", "EFFICIENT_ATTENTION", "MATH"]
)
def test_each_backend_of_attention(backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = torch.randn(2, 4, 128, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    with sdpa_kernel(getattr(SDPBackend, backend)):
        F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
    assert q.grad.shape == q.shape


def test_cudnn_is_on_and_chooses():
    assert torch.backends.cudnn.is_available()
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        trained(nn.Conv2d(3, 8, 3), torch.randn(2, 3, 17, 17, device="cuda"))
    with torch.backends.cudnn.flags(enabled=True, deterministic=True):
        trained(nn.Conv2d(3, 8, 3), torch.randn(2, 3, 17, 17, device="cuda"))


def test_cublas_has_a_workspace_for_each_handle_and_stream():
    torch._C._cuda_clearCublasWorkspaces()
    before = torch.cuda.memory_allocated()
    a = torch.randn(64, 64, device="cuda", requires_grad=True)
    a @ a
    one = torch.cuda.memory_allocated() - before
    with torch.cuda.stream(torch.cuda.Stream()):
        a @ a
    two = torch.cuda.memory_allocated() - before
    assert one >= 32 << 20, "32 MiB on Hopper"
    assert two - one == one - 64 * 64 * 4


def test_kernels_that_torch_compiles_at_run_time():
    assert torch.special.bessel_j0(torch.randn(3, device="cuda")).shape == (3,)
    doubled = torch.cuda.jiterator._create_jit_fn(
        "template <typename T> T doubled(T x) { return x * 2; }"
    )
    assert doubled(torch.randn(3, device="cuda")).shape == (3,)


def test_triton_s_kernels_compile_and_launch():
    model = torch.compile(nn.Sequential(nn.Linear(16, 16), nn.ReLU()).cuda())
    launches = watching.counters()["launches"]
    model(torch.randn(4, 16, device="cuda")).sum().backward()
    assert watching.counters()["launches"] > launches


def test_a_kernel_that_torch_compiles_at_run_time_is_answered(child, tmp_path):
    """NVRTC is the real one; what torch has compiled before lies in a cache, so here that is
    empty.
    """
    (tmp_path / "kernels").mkdir()
    done = child(
        """
import torch
from torch_null_device import watching
x = torch.rand(8, device="cuda")
torch.special.bessel_j0(x), torch.gcd(x.int(), x.int())
print(watching.unanswered())
""",
        PYTORCH_KERNEL_CACHE_PATH=str(tmp_path / "kernels"),
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
    assert list((tmp_path / "kernels").iterdir()), "it was compiled"
