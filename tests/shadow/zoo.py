"""Snippets of code as trainers write it for a GPU, each a function of the device; results must be the CPU's, bit for bit."""
# ruff: noqa
import copy
import io
import math
import pickle

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset


def seeded(*size):
    return torch.randn(*size, generator=torch.Generator().manual_seed(0))


def grads(module, x):
    out = module(x)
    out = out[0] if isinstance(out, tuple) else out
    out.pow(2).mean().backward()
    return [out, *(p.grad for p in module.parameters())]

def walked(out, *leaves):
    out.sum().backward()
    return [out, *(leaf.grad for leaf in leaves)]

# ---- layers

def linear(d): return grads(nn.Linear(4, 3).to(d), seeded(5, 4).to(d))
def conv1d(d): return grads(nn.Conv1d(3, 4, 3).to(d), seeded(2, 3, 9).to(d))
def conv2d(d): return grads(nn.Conv2d(3, 4, 3, padding=1, groups=1).to(d), seeded(2, 3, 8, 8).to(d))
def conv3d(d): return grads(nn.Conv3d(1, 2, 3).to(d), seeded(1, 1, 5, 5, 5).to(d))
def conv_transpose(d): return grads(nn.ConvTranspose2d(3, 2, 3, stride=2).to(d), seeded(2, 3, 4, 4).to(d))
def depthwise(d): return grads(nn.Conv2d(4, 4, 3, groups=4).to(d), seeded(2, 4, 6, 6).to(d))
def channels_last(d):
    m = nn.Conv2d(3, 4, 3).to(d, memory_format=torch.channels_last)
    return grads(m, seeded(2, 3, 8, 8).to(d).to(memory_format=torch.channels_last))
def batch_norm(d):
    m = nn.BatchNorm2d(3).to(d)
    return grads(m, seeded(4, 3, 5, 5).to(d)) + [m.running_mean, m.running_var, m.num_batches_tracked]
def batch_norm_eval(d): return grads(nn.BatchNorm1d(3).to(d).eval(), seeded(4, 3).to(d))
def layer_norm(d): return grads(nn.LayerNorm(6).to(d), seeded(4, 6).to(d))
def group_norm(d): return grads(nn.GroupNorm(2, 4).to(d), seeded(2, 4, 5).to(d))
def instance_norm(d): return grads(nn.InstanceNorm2d(3, affine=True).to(d), seeded(2, 3, 4, 4).to(d))
def rms_norm(d): return grads(nn.RMSNorm(6).to(d), seeded(4, 6).to(d))
def local_response(d): return F.local_response_norm(seeded(2, 3, 4).to(d), 2)
def dropout2d(d): return F.dropout2d(seeded(2, 3, 4, 4).to(d), 0.5)
def alpha_dropout(d): return F.alpha_dropout(seeded(40).to(d), 0.3, training=True)
def feature_dropout_grad(d):
    x = seeded(2, 3, 4, 4).to(d).requires_grad_()
    return walked(F.dropout2d(x, 0.5), x)[1:]
def embedding(d): return grads(nn.Embedding(10, 3).to(d), torch.tensor([[1, 2], [3, 1]]).to(d))
def embedding_padding(d): return grads(nn.Embedding(10, 3, padding_idx=0).to(d), torch.tensor([0, 2, 3]).to(d))
def embedding_bag(d): return grads(nn.EmbeddingBag(10, 3, mode="mean").to(d), torch.tensor([[1, 2], [3, 1]]).to(d))
def embedding_bag_offsets(d):
    m = nn.EmbeddingBag(10, 3, mode="sum").to(d)
    out = m(torch.tensor([1, 2, 4, 5]).to(d), torch.tensor([0, 2]).to(d))
    return walked(out, m.weight)
def lstm(d): return grads(nn.LSTM(4, 5, 2, batch_first=True).to(d), seeded(2, 3, 4).to(d))
def lstm_bidirectional(d): return grads(nn.LSTM(4, 5, bidirectional=True, proj_size=2).to(d), seeded(3, 2, 4).to(d))
def gru(d): return grads(nn.GRU(4, 5, dropout=0.0).to(d), seeded(3, 2, 4).to(d))
def rnn(d): return grads(nn.RNN(4, 5, nonlinearity="relu").to(d), seeded(3, 2, 4).to(d))
def lstm_dropout(d): return grads(nn.LSTM(4, 5, 2, dropout=0.5).to(d), seeded(3, 2, 4).to(d))
def lstm_cell(d):
    m = nn.LSTMCell(4, 5).to(d)
    h, c = m(seeded(2, 4).to(d))
    h.sum().backward()
    return h, c, m.weight_ih.grad
def gru_cell(d): return grads(nn.GRUCell(4, 5).to(d), seeded(2, 4).to(d))
def lstm_state(d):
    m = nn.LSTM(4, 5).to(d)
    state = (torch.zeros(1, 2, 5, device=d), torch.zeros(1, 2, 5, device=d))
    out, state = m(seeded(3, 2, 4).to(d), state)
    out, state = m(out[..., :4], tuple(s.detach() for s in state))
    return out, *state
def packed_sequence(d):
    m = nn.GRU(4, 5, batch_first=True).to(d)
    packed = nn.utils.rnn.pack_padded_sequence(seeded(2, 3, 4).to(d), torch.tensor([3, 2]), batch_first=True)
    out, lengths = nn.utils.rnn.pad_packed_sequence(m(packed)[0], batch_first=True)
    out.sum().backward()
    assert not lengths.is_cuda and not packed.batch_sizes.is_cuda
    return out, m.weight_hh_l0.grad
def pad_sequence(d):
    parts = [seeded(3, 2).to(d).requires_grad_(), seeded(2, 2).to(d)]
    out = nn.utils.rnn.pad_sequence(parts, batch_first=True)
    return walked(out, parts[0])
def attention(d):
    m = nn.MultiheadAttention(8, 2, batch_first=True).to(d)
    out, weights = m(*[seeded(2, 4, 8).to(d)] * 3)
    out.sum().backward()
    return out, weights, m.in_proj_weight.grad
def attention_mask(d):
    m = nn.MultiheadAttention(8, 2).to(d)
    x = seeded(4, 2, 8).to(d)
    mask = nn.Transformer.generate_square_subsequent_mask(4, device=d)
    return m(x, x, x, attn_mask=mask, need_weights=False)[0]
def sdpa(d):
    q = seeded(1, 2, 4, 8).to(d).requires_grad_()
    out = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    return walked(out, q)
def sdpa_mask(d):
    q = seeded(1, 2, 4, 8).to(d)
    return F.scaled_dot_product_attention(q, q, q, attn_mask=torch.ones(4, 4, dtype=torch.bool, device=d).tril())
def transformer_layer(d): return grads(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.1).to(d), seeded(2, 4, 8).to(d))
def transformer_padded(d):
    m = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2).to(d).eval()
    mask = torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1]], dtype=torch.bool).to(d)
    with torch.no_grad():
        return m(seeded(2, 4, 8).to(d), src_key_padding_mask=mask)
def function_mode(d):
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))
    with Mode():
        return F.relu(torch.ones(2, device=d) * 2).sum(), torch.zeros(2).to(d)
def dispatch_mode(d):
    from torch.utils.flop_counter import FlopCounterMode
    m = nn.Linear(4, 4).to(d)
    with FlopCounterMode(display=False) as flops:
        m(torch.ones(2, 4, device=d)).sum().backward()
    return flops.get_total_flops(), m.weight.grad
def custom_fwd(d):
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type=d, cast_inputs=torch.float32)
        def forward(ctx, x):
            return x * 2
        @staticmethod
        @torch.amp.custom_bwd(device_type=d)
        def backward(ctx, g):
            return g * 2
    x = torch.ones(2, device=d, requires_grad=True)
    with torch.autocast(d, dtype=torch.bfloat16):
        y = Double.apply(x.bfloat16())
    return walked(y, x)
def fx_traced(d): return torch.fx.symbolic_trace(nn.Sequential(nn.Linear(2, 2), nn.ReLU()).to(d))(torch.ones(1, 2, device=d))
def transformer_full(d): 
    m = nn.Transformer(8, 2, 1, 1, 16, batch_first=True, dropout=0.0).to(d)
    return m(seeded(2, 4, 8).to(d), seeded(2, 3, 8).to(d))
def pooling(d):
    x = seeded(2, 3, 8, 8).to(d)
    return F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 1), F.adaptive_max_pool2d(x, 2), F.lp_pool2d(x, 2, 2)
def max_unpool(d):
    y, i = F.max_pool2d(seeded(1, 1, 4, 4).to(d), 2, return_indices=True)
    return F.max_unpool2d(y, i, 2)
def interpolation(d):
    x = seeded(1, 2, 4, 4).to(d)
    return [F.interpolate(x, scale_factor=2, mode=m) for m in ("nearest", "bilinear", "bicubic", "area")]
def grid_sample(d):
    grid = F.affine_grid(torch.eye(2, 3).to(d)[None], [1, 1, 4, 4], align_corners=False)
    return F.grid_sample(seeded(1, 1, 4, 4).to(d), grid, align_corners=False)
def padding(d): return F.pad(seeded(2, 3).to(d), (1, 1)), F.pad(seeded(1, 1, 3, 3).to(d), (1, 1, 1, 1), mode="reflect")
def unfold(d): return F.fold(F.unfold(seeded(1, 2, 4, 4).to(d), 2), (4, 4), 2)
def pixel_shuffle(d): return F.pixel_shuffle(seeded(1, 4, 2, 2).to(d), 2)
def activations(d):
    x = seeded(20).to(d)
    return [f(x) for f in (F.relu, F.gelu, F.silu, F.elu, F.selu, F.mish, F.softplus, F.hardswish, F.leaky_relu, torch.tanh, torch.sigmoid, F.softsign)]
def gumbel(d): return F.gumbel_softmax(seeded(3, 4).to(d), tau=0.5, hard=True)
def glu(d): return F.glu(seeded(3, 4).to(d)), F.softmax(seeded(3, 4).to(d), -1), F.normalize(seeded(3, 4).to(d))

# ---- losses

def cross_entropy(d): return F.cross_entropy(seeded(4, 5).to(d), torch.tensor([1, 0, 4, 2]).to(d), label_smoothing=0.1)
def cross_entropy_ignored(d): return F.cross_entropy(seeded(4, 5).to(d), torch.tensor([1, -100, 4, 2]).to(d), weight=torch.ones(5, device=d))
def bce(d): return F.binary_cross_entropy_with_logits(seeded(4).to(d), torch.ones(4, device=d)), F.binary_cross_entropy(seeded(4).to(d).sigmoid(), torch.zeros(4, device=d))
def regressions(d):
    x, y = seeded(4, 3).to(d), torch.ones(4, 3, device=d)
    return F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.huber_loss(x, y), F.gaussian_nll_loss(x, y, y)
def kl(d): return F.kl_div(seeded(4, 3).to(d).log_softmax(1), seeded(4, 3).to(d).softmax(1), reduction="batchmean")
def nll(d): return F.nll_loss(seeded(4, 3).to(d).log_softmax(1), torch.tensor([0, 1, 2, 0]).to(d))
def triplet(d): return F.triplet_margin_loss(seeded(4, 3).to(d), seeded(4, 3).to(d) + 1, seeded(4, 3).to(d) - 1)
def cosine(d): return F.cosine_embedding_loss(seeded(4, 3).to(d), seeded(4, 3).to(d) + 1, torch.ones(4, device=d)), F.cosine_similarity(seeded(4, 3).to(d), seeded(4, 3).to(d))
def ctc(d):
    logits = seeded(6, 2, 4).to(d).log_softmax(2).requires_grad_()
    loss = F.ctc_loss(logits, torch.tensor([[1, 2], [1, 3]]).to(d), torch.tensor([6, 5]), torch.tensor([2, 2]))
    loss.backward()
    return loss, logits.grad

# ---- factories and random numbers

def factories(d):
    return [torch.zeros(2, device=d), torch.ones(2, device=d), torch.full((2,), 3.0, device=d), torch.arange(4, device=d), torch.linspace(0, 1, 4, device=d),
            torch.eye(3, device=d), torch.empty(2, device=d).fill_(1), torch.tensor([1, 2], device=d), torch.as_tensor([1.0], device=d), torch.scalar_tensor(2.0, device=d),
            torch.hann_window(4, device=d), torch.tril_indices(3, 3, device=d), torch.logspace(0, 1, 3, device=d)]
def random_numbers(d):
    return [torch.rand(3, device=d), torch.randn(3, device=d), torch.randint(9, (3,), device=d), torch.randperm(5, device=d), torch.normal(0.0, 1.0, (3,), device=d)]
def random_in_place(d):
    x = torch.empty(5, device=d)
    return x.normal_().clone(), x.uniform_().clone(), x.bernoulli_(0.5).clone(), x.exponential_().clone(), x.random_(10).clone()
def random_like(d):
    x = torch.zeros(4, device=d)
    return torch.rand_like(x), torch.randn_like(x), torch.randint_like(x, 9), torch.bernoulli(torch.full_like(x, 0.5)), torch.poisson(x + 3)
def likes(d):
    x = seeded(2, 3).to(d)
    return torch.zeros_like(x), torch.ones_like(x, dtype=torch.long), torch.full_like(x, 2), torch.empty_like(x).zero_(), x.new_zeros(2), x.new_tensor([1.0]), x.new_full((2,), 3), x.new_ones(1)
def likes_across(d): return torch.zeros_like(seeded(2), device=d), seeded(2).new_zeros(3, device=d), torch.randn_like(seeded(2), device=d)
def generators(d):
    g = torch.Generator(device=d).manual_seed(3)
    return torch.randn(3, device=d, generator=g), torch.randperm(4, device=d, generator=g), torch.randint(5, (2,), device=d, generator=g)
def samplers(d):
    torch.manual_seed(2)
    return torch.multinomial(torch.ones(5, device=d), 2), torch.distributions.Normal(torch.zeros(3, device=d), torch.ones(3, device=d)).rsample(), torch.distributions.Categorical(torch.ones(4, device=d)).sample()
def default_device(d):
    torch.set_default_device(d)
    try:
        m = nn.Linear(4, 4)
        x = torch.randn(2, 4)
        assert m.weight.device.type == x.device.type == torch.tensor([1.0]).device.type == torch.get_default_device().type == torch.device(d).type
        return m(x), torch.arange(3), torch.tensor(2.0)
    finally:
        torch.set_default_device(None)
def device_context(d):
    with torch.device(d):
        m = nn.Linear(4, 4)
        x = torch.randn(2, 4)
    assert m.weight.device.type == x.device.type == torch.device(d).type and torch.zeros(1).device.type == "cpu"
    return m(x)
def initialisers(d):
    w = torch.empty(4, 6, device=d)
    return [f(w).clone() for f in (nn.init.xavier_uniform_, nn.init.kaiming_normal_, nn.init.orthogonal_, nn.init.trunc_normal_, nn.init.zeros_, nn.init.normal_, nn.init.uniform_)]
def layer_on_device(d): return nn.Linear(3, 2, device=d)(torch.ones(1, 3, device=d))

# ---- indexing, gathering, shapes

def indexing(d):
    x = seeded(4, 5).to(d)
    return x[0], x[1:3], x[:, -1], x[..., None], x[[0, 2]], x[torch.tensor([1, 3]).to(d)], x[x > 0], x[:, [0, 1]], x[torch.tensor([1, 0])]
def assignment(d):
    x = seeded(4, 5).to(d)
    x[0] = 1.0; x[1, 2] = 5; x[2] = torch.ones(5, device=d); x[x > 2] = 0.0; x[:, [0, 1]] = 7.0; x[3] = torch.zeros(5)
    return x
def assignment_grad(d):
    x = seeded(3).to(d).requires_grad_()
    y = x * 2
    y[0] = 0.0
    y[torch.tensor([1]).to(d)] = x[2:] * 3
    return walked(y, x)
def scatter(d):
    i = torch.tensor([[0, 1], [2, 0]]).to(d)
    s = seeded(2, 2).to(d)
    return torch.zeros(3, 2, device=d).scatter_(0, i, s), torch.zeros(3, 2, device=d).scatter_add(0, i, s), torch.zeros(3, 2, device=d).scatter_reduce(0, i, s, "amax"), torch.zeros(3, 2, device=d).scatter(0, i, 1.0)
def gather(d):
    x = seeded(3, 4).to(d).requires_grad_()
    out = x.gather(1, torch.tensor([[0, 1], [2, 0], [3, 3]]).to(d))
    return walked(out, x)
def index_ops(d):
    x, i = seeded(4, 3).to(d), torch.tensor([0, 2]).to(d)
    return x.index_select(0, i), x.index_add(0, i, torch.ones(2, 3, device=d)), x.index_fill(0, i, 1.0), x.index_copy(0, i, torch.ones(2, 3, device=d)), x.take(i), torch.take_along_dim(x, x.argsort(0), 0)
def masks(d):
    x = seeded(3, 4).to(d)
    return x.masked_fill(x > 0, -1e9), torch.where(x > 0, x, 0.0), x.masked_select(x > 0), torch.where(x > 0)[0], x.nonzero(), x.masked_scatter(x > 0, torch.ones(12, device=d))
def mixture(d):
    x, router, experts = seeded(6, 4).to(d), nn.Linear(4, 3).to(d), nn.ModuleList(nn.Linear(4, 4) for _ in range(3)).to(d)
    weights, chosen = router(x).softmax(-1).topk(2)
    out = torch.zeros_like(x)
    for e, expert in enumerate(experts):
        rows, slot = torch.where(chosen == e)
        out.index_add_(0, rows, weights[rows, slot, None] * expert(x[rows]))
    return walked(out, router.weight)
def shapes(d):
    x = seeded(2, 3, 4).to(d)
    return x.view(6, 4), x.reshape(-1), x.permute(2, 0, 1), x.transpose(0, 1).contiguous(), x.flatten(1), x.unsqueeze(0), x.squeeze(), x.expand(5, 2, 3, 4), x.repeat(1, 2, 1), x.chunk(2, 2), x.split(1), x.unbind(0), x.movedim(0, 2), x.unfold(2, 2, 1), x.roll(1), x.flip(0), x.tile(2)
def in_place_views(d):
    x = seeded(2, 3).to(d)
    x.t_(); x.unsqueeze_(0); x.squeeze_(); x.transpose_(0, 1)
    y = x.view(-1)[1:4]
    y.mul_(2)
    return x, y
def resized(d):
    x = torch.zeros(2, device=d)
    x.resize_(4).fill_(3)
    return x, x.shape[0]
def out_argument(d):
    out = torch.empty(0, device=d)
    torch.add(torch.ones(3, device=d), 2, out=out)
    return out, torch.matmul(seeded(2, 3).to(d), seeded(3, 2).to(d), out=torch.empty(2, 2, device=d))
def stacking(d):
    x = seeded(2, 3).to(d)
    return torch.cat([x, x]), torch.stack([x, x]), torch.hstack([x, x]), torch.meshgrid(x[0], x[1], indexing="ij"), torch.block_diag(x, x), torch.cartesian_prod(x[0], x[1]), torch.combinations(x[0])
def one_hot(d): return F.one_hot(torch.arange(3, device=d), 4), F.one_hot(torch.arange(3, device=d))
def sorting(d):
    x = seeded(3, 4).to(d)
    return x.sort(), x.topk(2), x.argmax(1), x.max(1), x.median(), x.kthvalue(2), torch.searchsorted(torch.arange(4.0, device=d), x), torch.bucketize(x, torch.arange(3.0, device=d)), x.unique(), x.msort()
def statistics(d):
    x = seeded(3, 4).to(d)
    return x.mean(), x.std(), x.var(0), x.norm(), x.sum(), x.prod(), x.cumsum(0), x.logsumexp(0), x.quantile(0.5), x.amax(), x.all(), x.any(), torch.histc(x, 4, -1, 1), torch.bincount(torch.arange(3, device=d)), torch.cov(x), torch.corrcoef(x), x.count_nonzero(), torch.trapezoid(x)
def algebra(d):
    x = seeded(3, 3).to(d)
    s = x @ x.T + 3 * torch.eye(3, device=d)
    return torch.linalg.inv(s), torch.linalg.cholesky(s), torch.linalg.eigvalsh(s), torch.linalg.svd(s)[1], torch.linalg.solve(s, x), torch.linalg.qr(s)[1], torch.linalg.det(s), torch.linalg.norm(s), torch.einsum("ij,jk->ik", x, x), torch.outer(x[0], x[1]), torch.kron(x, x), torch.linalg.matrix_power(x, 3), torch.linalg.vander(x[0]), torch.cdist(x, x), torch.tensordot(x, x), torch.logdet(s), torch.trace(x), torch.linalg.multi_dot([x, x, x]), torch.baddbmm(x[None], x[None], x[None])
def fourier(d):
    x = seeded(8).to(d)
    return torch.fft.fft(x), torch.fft.irfft(torch.fft.rfft(x)), torch.fft.fftfreq(4, device=d), torch.stft(x, 4, window=torch.hann_window(4, device=d), return_complex=True), torch.fft.fftshift(x)
def complexes(d):
    x = torch.complex(seeded(3).to(d), seeded(3).to(d))
    return x.abs(), x.conj().resolve_conj(), torch.view_as_real(x), x.real, x.angle(), torch.polar(seeded(3).abs().to(d), seeded(3).to(d))
def arithmetic(d):
    x = seeded(4).to(d)
    return x + 1, 1 - x, x * 2.5, x / 3, x ** 2, 2 ** x, x // 1, x % 2, -x, abs(x), x > 0, x == x, ~(x > 0), x @ x, x.clamp(-1, 1), x.lerp(x + 1, 0.3), torch.addcmul(x, x, x), x.round(), x.float().double().half().float(), torch.maximum(x, x * 2), x.nan_to_num(), x.sign(), x.fmod(2), torch.triu(x.view(2, 2)), x.diag(), torch.cross(x[:3], x[1:], dim=0)
def integers(d):
    x = torch.arange(5, device=d)
    return x & 3, x | 1, x << 1, x.bool(), x.remainder(2), x.float().int(), torch.gcd(x, x + 2), x.to(torch.int32) * 2, x.cumprod(0)
def host_scalar(d): return torch.ones(3, device=d) * torch.tensor(2.0), torch.where(torch.ones(3, dtype=torch.bool, device=d), torch.tensor(1.0), torch.zeros(3, device=d))
def zero_dim(d):
    x = torch.zeros((), device=d)
    x += 2
    return x, x + torch.ones(2, device=d), x.expand(3)

# ---- autograd

def backward_hooks(d):
    seen = []
    m = nn.Linear(3, 3).to(d)
    m.weight.register_hook(lambda g: seen.append(g.clone()))
    m.register_full_backward_hook(lambda mod, gi, go: seen.append(go[0]))
    m.register_forward_hook(lambda mod, i, o: seen.append(o.detach()))
    m.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.clone()))
    m(torch.ones(1, 3, device=d)).sum().backward()
    return seen
def hook_that_makes_tensors(d):
    x = torch.ones(3, device=d, requires_grad=True)
    y = x * 2
    y.register_hook(lambda g: g * torch.arange(3, device=d) + F.one_hot(torch.tensor(1, device=g.device), 3))
    return walked(y, x)[1:]
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g + torch.zeros(x.shape, device=x.device)
def custom_function(d):
    x = seeded(3).to(d).requires_grad_()
    return walked(Square.apply(x), x)[1:]
class TwoOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3
    @staticmethod
    def backward(ctx, g, h):
        return g * 2 + h * 3
def unused_output(d):
    x = seeded(3).to(d).requires_grad_()
    return walked(TwoOutputs.apply(x)[0], x)[1:]
def unused_chunks(d):
    x = seeded(6).to(d).requires_grad_()
    (x.chunk(3)[1] * x.unbind(0)[0] + x.split(2)[2] + x.max(0)[0] + torch.stack(x.unfold(0, 2, 2).unbind(0))[0]).sum().backward()
    return x.grad
def zero_gradient(d):
    x = seeded(3).to(d).requires_grad_()
    y = (x.round() + x.sign() + x.floor() + torch.zeros_like(x) * x + x.new_zeros(3)).sum() + (x > 0).float().sum()
    y.backward()
    return x.grad
def module_hooks_with_tuple(d):
    class Two(nn.Module):
        def forward(self, x):
            return x * 2, x * 3
    seen, m = [], Two().to(d)
    m.register_full_backward_hook(lambda mod, gi, go: seen.extend(g for g in go if g is not None))
    x = seeded(3).to(d).requires_grad_()
    m(x)[0].sum().backward()
    return x.grad, seen[0]
def nvtx_and_streams(d):
    if d == "cuda":
        torch.cuda.nvtx.range_push("a"); torch.cuda.nvtx.range_pop()
        with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):
            pass
    return torch.ones(2, device=d)
def gradient_penalty(d):
    m = nn.Linear(3, 1).to(d)
    x = seeded(4, 3).to(d).requires_grad_()
    (g,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
    ((g.norm(dim=1) - 1) ** 2).mean().backward()
    return m.weight.grad
def checkpoints(d):
    out = []
    for reentrant in (False, True):
        torch.manual_seed(1)
        m = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).to(d)
        x = seeded(2, 4).to(d).requires_grad_()
        checkpoint(m, x, use_reentrant=reentrant).sum().backward()
        out += [x.grad, m[0].weight.grad]
    return out
def gradient_through_copies(d):
    x = seeded(3).requires_grad_()
    y = (x.to(d) * 2).cpu() * 3
    return walked(y, x)[1:]
def detach(d):
    x = seeded(3).to(d).requires_grad_()
    y = x.detach()
    y += 1
    return x, y, (x * 1).detach().requires_grad, x.data
def saved_tensor_changed(d):
    x = seeded(3).to(d).requires_grad_()
    y = x.exp()
    y.add_(1)
    try:
        y.sum().backward()
    except RuntimeError as error:
        return "modified by an inplace operation" in str(error)
def leaf_in_place(d):
    x = torch.ones(2, device=d, requires_grad=True)
    try:
        x.add_(1)
    except RuntimeError as error:
        return "leaf Variable" in str(error)
def freed_graph(d):
    x = torch.ones(2, device=d, requires_grad=True)
    y = (x * x).sum()
    y.backward()
    try:
        y.backward()
    except RuntimeError as error:
        return "second time" in str(error)
def anomaly(d):
    with torch.autograd.detect_anomaly():
        x = torch.ones(2, device=d, requires_grad=True)
        (x * 2).sum().backward()
    return x.grad
def inference(d):
    with torch.inference_mode():
        return nn.Linear(3, 3).to(d)(torch.ones(1, 3, device=d))
def saved_hooks(d):
    x = seeded(3).to(d).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        y = x.exp()
    return walked(y, x)[1:]
def save_on_cpu(d):
    x = seeded(3).to(d).requires_grad_()
    with torch.autograd.graph.save_on_cpu():
        y = x * x
    return walked(y, x)[1:]
def functional_call(d):
    m = nn.Linear(3, 2).to(d)
    return torch.func.functional_call(m, {k: v * 2 for k, v in m.state_dict().items()}, torch.ones(1, 3, device=d))
def jacobian(d): return torch.autograd.functional.jacobian(lambda x: x ** 2, torch.ones(3, device=d))
def retain_grad(d):
    x = torch.ones(2, device=d, requires_grad=True)
    y = x * 3
    y.retain_grad()
    return walked(y, y, x)[1:]
def no_grad_copy(d):
    a, b = nn.Linear(3, 3).to(d), nn.Linear(3, 3).to(d)
    with torch.no_grad():
        for p, q in zip(a.parameters(), b.parameters()):
            p.copy_(q); p.lerp_(q, 0.1); p.data.mul_(0.9).add_(q.data, alpha=0.1)
    return list(a.parameters())

# ---- modules and optimizers

def trained(d, make, steps=3, **call):
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).to(d)
    o = make(m.parameters())
    x = seeded(5, 4).to(d)
    for _ in range(steps):
        o.zero_grad()
        m(x).pow(2).mean().backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        o.step()
    return [*m.parameters(), *(v for s in o.state.values() for v in s.values() if isinstance(v, torch.Tensor))]
def sgd(d): return trained(d, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.1))
def adam(d): return trained(d, lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True))
def adamw(d): return trained(d, lambda p: torch.optim.AdamW(p, lr=0.1))
def adamw_fused(d): return trained(d, lambda p: torch.optim.AdamW(p, lr=0.1, fused=True))
def adamw_foreach(d): return trained(d, lambda p: torch.optim.AdamW(p, lr=0.1, foreach=True))
def adamw_loop(d): return trained(d, lambda p: torch.optim.AdamW(p, lr=0.1, foreach=False))
def sgd_fused(d): return trained(d, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, fused=True))
def rmsprop(d): return trained(d, lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.9, centered=True))
def adagrad(d): return trained(d, lambda p: torch.optim.Adagrad(p, lr=0.1))
def nadam(d): return trained(d, lambda p: torch.optim.NAdam(p, lr=0.1))
def radam(d): return trained(d, lambda p: torch.optim.RAdam(p, lr=0.1))
def adadelta(d): return trained(d, lambda p: torch.optim.Adadelta(p, lr=0.1))
def adamax(d): return trained(d, lambda p: torch.optim.Adamax(p, lr=0.1))
def rprop(d): return trained(d, lambda p: torch.optim.Rprop(p, lr=0.1))
def asgd(d): return trained(d, lambda p: torch.optim.ASGD(p, lr=0.1))
def lbfgs(d):
    torch.manual_seed(0)
    m, x = nn.Linear(4, 1).to(d), seeded(5, 4).to(d)
    o = torch.optim.LBFGS(m.parameters(), max_iter=4, line_search_fn="strong_wolfe")
    def closure():
        o.zero_grad()
        loss = m(x).pow(2).mean()
        loss.backward()
        return loss
    o.step(closure)
    return list(m.parameters())
def optimizer_before_move(d):
    m = nn.Linear(4, 4)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    m.to(d)
    m(torch.ones(1, 4, device=d)).sum().backward()
    o.step()
    return m.weight, o.param_groups[0]["params"][0] is m.weight
def optimizer_state(d):
    m = nn.Linear(3, 3).to(d)
    o = torch.optim.AdamW(m.parameters())
    m(torch.ones(1, 3, device=d)).sum().backward()
    o.step()
    n = torch.optim.AdamW(m.parameters())
    n.load_state_dict(o.state_dict())
    n.step()
    return m.weight, n.state[m.weight]["exp_avg"]
def clipping(d):
    m = nn.Linear(3, 3).to(d)
    m(torch.ones(1, 3, device=d)).sum().backward()
    norm = nn.utils.clip_grad_norm_(m.parameters(), 0.5)
    nn.utils.clip_grad_value_(m.parameters(), 0.1)
    return norm, m.weight.grad, nn.utils.parameters_to_vector(m.parameters())
def module_moves(d):
    m = nn.Linear(3, 3).to(d).cpu().to(d).half().float().double().to(torch.float32)
    return m.weight, m.weight.requires_grad, m.weight.is_leaf, isinstance(m.weight, nn.Parameter)
def module_with_gradient_moves(d):
    m = nn.Linear(3, 3)
    m(torch.ones(1, 3)).sum().backward()
    m.to(d)
    return m.weight, m.weight.grad, m.weight.grad.device.type == torch.device(d).type
def tied_weights(d):
    m = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5, bias=False))
    m[1].weight = m[0].weight
    m.to(d)
    m(torch.tensor([1, 2], device=d)).sum().backward()
    return m[0].weight is m[1].weight, m[0].weight.grad
def parametrized(d):
    m = nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)).to(d)
    s = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)).to(d)
    return grads(m, torch.ones(2, 3, device=d)), s(torch.ones(1, 3, device=d))
def old_weight_norm(d): return grads(nn.utils.weight_norm(nn.Linear(3, 3)).to(d), torch.ones(2, 3, device=d))
def swa(d):
    m = nn.Linear(3, 3).to(d)
    e = torch.optim.swa_utils.AveragedModel(m, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
    e.update_parameters(m); e.update_parameters(m)
    return e.module.weight
def deep_copies(d):
    m = nn.Linear(3, 3).to(d)
    c = copy.deepcopy(m)
    c.weight.data.zero_()
    return m.weight, c.weight, copy.copy(m).weight, isinstance(c.weight, nn.Parameter), copy.deepcopy(torch.ones(2, device=d))
def meta_then_empty(d):
    with torch.device("meta"):
        m = nn.Linear(3, 3)
    m = m.to_empty(device=d)
    nn.init.ones_(m.weight); nn.init.zeros_(m.bias)
    return m(torch.ones(1, 3, device=d))
def state_dict(d):
    m, n = nn.Linear(3, 3).to(d), nn.Linear(3, 3).to(d)
    n.load_state_dict(m.state_dict())
    n.load_state_dict({"weight": torch.ones(3, 3), "bias": torch.zeros(3)})
    n.load_state_dict(m.state_dict(), assign=True)
    return list(n.parameters())
def saved(d, **load):
    m = nn.Linear(3, 3).to(d)
    file = io.BytesIO()
    torch.save({"model": m.state_dict(), "step": 3, "p": m.weight}, file)
    file.seek(0)
    return m, torch.load(file, **load)
def save_load(d):
    m, s = saved(d)
    return s["model"]["weight"], s["p"], s["p"].device.type == torch.device(d).type, isinstance(s["p"], nn.Parameter)
def save_load_cpu(d):
    m, s = saved(d, map_location="cpu", weights_only=True)
    return s["model"]["weight"], s["model"]["weight"].device.type == "cpu"
def save_load_device(d):
    m, s = saved(d, map_location=d)
    return s["model"]["weight"], s["model"]["weight"].device.type == torch.device(d).type
def save_load_function(d):
    m, s = saved(d, map_location=lambda storage, where: storage, weights_only=False)
    return s["model"]["weight"], s["model"]["weight"].device.type
def save_whole_module(d):
    file = io.BytesIO()
    m = nn.Linear(3, 3).to(d)
    torch.save(m, file)
    file.seek(0)
    n = torch.load(file, weights_only=False)
    return n(torch.ones(1, 3, device=d))
def pickled(d): return pickle.loads(pickle.dumps(torch.ones(2, device=d))), pickle.loads(pickle.dumps(nn.Linear(2, 2).to(d))).weight

# ---- data

def loader(d):
    data = TensorDataset(torch.arange(8.0).view(8, 1))
    out = []
    for workers in (0, 2):
        for (b,) in DataLoader(data, batch_size=4, num_workers=workers, pin_memory=True):
            out.append(b.to(d, non_blocking=True))
    return out
def loader_on_device(d): return [b for (b,) in DataLoader(TensorDataset(torch.arange(4.0).to(d)), batch_size=2)]
def moved_containers(d): return {k: v.to(d) for k, v in {"a": torch.ones(2), "b": torch.zeros(1, dtype=torch.long)}.items()}
def numbers(d):
    x = torch.arange(3.0, device=d)
    return x.tolist(), x.sum().item(), float(x[1]), int(x[2]), bool(x[0] == 0), len(x), x.cpu().numpy().tolist(), [v.item() for v in x], math.sqrt(x[2]), f"{x[1]:.2f}", x[0] in [0.0], torch.equal(x, x), x.numel(), x.size(0), range(x[2].long())[1]
def from_numpy(d): return torch.from_numpy(np.arange(3.0)).to(d), torch.tensor(np.ones(2), device=d), torch.as_tensor(np.ones(2)).to(d)
def types(d):
    x = torch.ones(2, device=d)
    return x.type(torch.float64), x.type_as(torch.ones(1, dtype=torch.half, device=d)), x.to(torch.bfloat16), x.long(), x.dtype == torch.float32, isinstance(x, torch.Tensor), torch.is_tensor(x), torch.is_floating_point(x)
def tensor_of_scalars(d): return torch.tensor([torch.ones((), device=d) * 2, torch.zeros((), device=d)]), torch.tensor([[1, 2]], device=d, dtype=torch.float32)
def sparse_gradient(d):
    m = nn.Embedding(10, 3, sparse=True).to(d)
    o = torch.optim.SparseAdam(m.parameters())
    m(torch.tensor([1, 2], device=d)).sum().backward()
    o.step()
    return m.weight
def sparse_tensor(d):
    s = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]], device=d), torch.tensor([1.0, 2.0], device=d), (2, 2))
    return torch.sparse.mm(s, torch.ones(2, 2, device=d)), s.to_dense()
def jit_script(d): return torch.jit.script(nn.Linear(3, 3)).to(d)(torch.ones(1, 3, device=d))
def jit_trace(d): return torch.jit.trace(nn.Linear(3, 3).to(d), torch.ones(1, 3, device=d))(torch.ones(1, 3, device=d))
def profiled(d):
    with torch.profiler.profile() as p:
        y = nn.Linear(3, 3).to(d)(torch.ones(1, 3, device=d))
    return y, len(p.events()) > 0


# ---- where torch takes another path for tensor subclasses, or has a kernel for the CPU and none for a CUDA that it was built without

def thrice(f, *inputs):
    """The result without a graph, with one, its gradients, and the gradients of those."""
    with torch.no_grad():
        plain = f(*inputs)
    leaves = [x.clone().requires_grad_() for x in inputs]
    out = f(*leaves)
    first = torch.autograd.grad(out.sum(), leaves, create_graph=True)
    again = [one.square().sum() for one in first if one.requires_grad]
    second = torch.autograd.grad(sum(again), leaves, allow_unused=True) if again else []
    return [f(*inputs), plain, out, *first, *(one for one in second if one is not None)]
def definite(d, n=24):
    x = seeded(n, n).to(d)
    return x @ x.T + n * torch.eye(n, device=d)
def eigvalsh(d): return thrice(torch.linalg.eigvalsh, definite(d))
def eigvals(d): return torch.linalg.eigvals(definite(d)), thrice(lambda x: torch.linalg.eigvals(x).abs(), definite(d, 5))
def svdvals(d): return thrice(torch.linalg.svdvals, seeded(20, 30).to(d))
def out_of_values(d):
    out = torch.empty(24, device=d)
    return torch.linalg.eigvalsh(definite(d), out=out), out, torch.linalg.svdvals(definite(d), out=torch.empty(24, device=d))
def conditions(d): return torch.linalg.cond(definite(d)), torch.linalg.cond(seeded(9, 9).to(d), 2), torch.linalg.matrix_rank(definite(d)), torch.linalg.matrix_rank(definite(d), hermitian=True)
def nuclear_norm(d): return thrice(lambda x: torch.linalg.matrix_norm(x, "nuc"), seeded(20, 30).to(d)), seeded(20, 30).to(d).norm(p="nuc"), torch.linalg.matrix_norm(seeded(20, 30).to(d), 2), torch.linalg.norm(seeded(20, 30).to(d), ord=-2)
def pseudo_inverse(d): return torch.linalg.pinv(seeded(20, 30).to(d)), torch.linalg.pinv(definite(d), hermitian=True)
def product(d): return thrice(torch.prod, seeded(4, 5).to(d)), thrice(lambda x: (x * (x > -1)).prod(), seeded(4, 5).to(d))
def product_of_rows(d): return thrice(lambda x: x.prod(1), seeded(4, 5).to(d)), thrice(lambda x: (x * (x > 0)).prod(1, keepdim=True), seeded(4, 5).to(d))
def product_of_masked(d): return thrice(lambda x: torch.masked.prod(x, dim=(0, 1), mask=x > -1), seeded(4, 5).to(d))[:4]
def product_in_autocast(d):
    with torch.autocast(d, dtype=torch.bfloat16):
        return thrice(lambda x: x.prod(1), seeded(4, 5).to(d))
def running_product(d): return thrice(lambda x: x.cumprod(1), seeded(4, 50).to(d)), thrice(lambda x: torch.linalg.vander(x, N=4), seeded(5).to(d))
def determinant(d): return thrice(torch.linalg.det, definite(d, 9)), thrice(torch.logdet, definite(d)), thrice(lambda x: torch.linalg.slogdet(x)[1], definite(d))
def filled_with_a_learned_value(d): return thrice(lambda x, v: x.masked_fill(x > 0, v), seeded(40, 50).to(d), torch.tensor(2.0, device=d))
def one_matrix_for_a_batch(d):
    one, many, last = seeded(1, 20, 30).to(d), seeded(7, 20, 30).to(d), seeded(1, 30, 40).to(d)
    return one @ many.mT, torch.matmul(many, last), many.matmul(last), torch.linalg.matmul(many, last), many.__rmatmul__(one.mT), thrice(torch.matmul, many, last)
def one_matrix_in_autocast(d):
    with torch.autocast(d, dtype=torch.bfloat16):
        return seeded(7, 20, 30).to(d) @ seeded(1, 30, 40).to(d)
def silu(d): return thrice(F.silu, seeded(40, 50).to(d))
def silu_in_place(d):
    x = seeded(40, 50).to(d).requires_grad_()
    (F.silu(x * 1, inplace=True) ** 2).sum().backward()
    return x.grad
def mish(d): return thrice(F.mish, seeded(40, 50).to(d))
def shuffled_channels(d): return thrice(lambda x: F.channel_shuffle(x, 2), seeded(2, 4, 5, 5).to(d)), torch.native_channel_shuffle(seeded(2, 4, 5, 5).to(d), 2)
def smoothed_and_weighted(d):
    target = torch.arange(300).remainder(10).to(d)
    return thrice(lambda x, w: F.cross_entropy(x, target, weight=w.detach().abs(), label_smoothing=0.1, ignore_index=3) + 0 * w.sum(), seeded(300, 10).to(d), seeded(10).to(d))
def attention_with_a_mask(d): return thrice(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), *(seeded(2, 3, 17, 8).to(d) for _ in range(3)), seeded(17, 17).to(d))
def solutions(d): return thrice(torch.linalg.solve, definite(d), seeded(24, 7).to(d)), thrice(torch.linalg.inv, definite(d)), thrice(lambda a, b: torch.lu_solve(b, *torch.linalg.lu_factor(a)), definite(d), seeded(24, 7).to(d))
def extremes(d): return [thrice(f, seeded(40, 50).to(d)) for f in (torch.max, torch.min, torch.median, lambda x: x.amax(1), lambda x: x.cummax(1)[0], lambda x: x.quantile(0.3, dim=1))]
def gathered(d): return thrice(lambda x: x.index_select(0, torch.tensor([1, 1, 2, 0], device=d)) + x.gather(1, x.argsort(1)) + x.take_along_dim(x.argsort(1), 1), seeded(4, 30).to(d)), thrice(lambda x: x[x > 0], seeded(4, 30).to(d))
def zero_gradients(d): return thrice(lambda a, b: a.abs().pow(b), seeded(30).to(d), seeded(30).to(d)), thrice(lambda a, b: torch.xlogy(a, b.abs()), seeded(30).to(d), seeded(30).to(d))
def binary_losses(d): return thrice(lambda x, p, w: F.binary_cross_entropy_with_logits(x, p.sigmoid(), pos_weight=w.detach().abs(), weight=w.detach()) + F.binary_cross_entropy(x.sigmoid(), p.sigmoid()) + 0 * w.sum(), seeded(30, 10).to(d), seeded(30, 10).to(d), seeded(10).to(d))
def forward_mode(d):
    import torch.autograd.forward_ad as forward
    out = []
    for f, x in ((lambda x: F.layer_norm(x, (30,)), seeded(7, 30)), (lambda x: F.instance_norm(x), seeded(2, 3, 9)), (lambda x: F.group_norm(x, 2), seeded(2, 4, 9)), (torch.prod, seeded(4, 5)), (lambda x: x.cumprod(1), seeded(4, 5)), (torch.linalg.eigvalsh, definite("cpu")), (F.silu, seeded(40)), (lambda x: x.masked_fill(x > 0, x.sum()), seeded(9)), (lambda x: F.linear(x, x, x[0]), seeded(5, 5)), (lambda x: x.logcumsumexp(1), seeded(4, 30)), (lambda x: x.quantile(0.3, dim=1), seeded(4, 30))):
        with forward.dual_level():
            dual = forward.make_dual(x.to(d), (x * 0.5 + 1).to(d))
            out += forward.unpack_dual(f(dual))
    net = nn.LayerNorm(30).to(d)
    return out + grads(net, seeded(7, 30).to(d))

SNIPPETS = {name: value for name, value in list(globals().items()) if callable(value) and getattr(value, "__module__", "") == __name__ and not isinstance(value, type) and name not in ("seeded", "grads", "walked", "trained", "saved", "thrice", "definite")}
