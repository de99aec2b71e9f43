"""Snippets of training code, one function each. A line marked `#: KIND` is a host read on a GPU; no other line may be reported.

`#: KIND xN` is read N times; `#: h2d` is a wait of the other direction, which the reads probe does not look for.
"""
# ruff: noqa
import functools
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset, random_split


class Lab:
    """A trainer's things, as they are at the start of a step."""

    def __init__(self, device):
        g = torch.Generator().manual_seed(0)
        self.device = device
        self.x = torch.randn(8, 4, generator=g).to(device)
        self.w = nn.Parameter(torch.randn(4, 4, generator=g).to(device))
        self.loss = (self.x @ self.w).pow(2).mean()
        self.host = torch.randn(8, 4)
        self.labels = torch.arange(8).to(device) % 4
        self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)).to(device)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=1e-3)
        self.loss.backward(retain_graph=True)


# ---- reads and what looks like one
def spike_while_compare(lab):
    while lab.loss > 1e9:  #: item
        pass
def spike_tolist(lab):
    lab.x.tolist()  #: tolist
def spike_where(lab):
    torch.where(lab.x > 0)  #: nonzero
def spike_mask_put(lab):
    lab.x[lab.x > 9] = torch.ones(0, device=lab.device)  #: mask_put
def spike_masked_select(lab):
    torch.masked_select(lab.x, lab.x > 0)  #: masked_select
def spike_unique(lab):
    torch.unique(lab.x)  #: unique
def spike_allclose(lab):
    torch.allclose(lab.x, lab.x)  #: item
def spike_equal(lab):
    torch.equal(lab.x, lab.x + 0)  #: equal
def spike_clip_grad_norm_nonfinite(lab):
    nn.utils.clip_grad_norm_([lab.w], 1.0, error_if_nonfinite=True)  #: item
def spike_repeat_interleave(lab):
    torch.repeat_interleave(lab.x[:, 0], torch.ones(8, dtype=torch.long, device=lab.device))  #: repeat_interleave
def spike_one_hot(lab):
    F.one_hot(torch.arange(3, device=lab.device))  #: item
def spike_bincount(lab):
    torch.bincount(torch.arange(3, device=lab.device))  #: bincount
def spike_range(lab):
    list(range((lab.loss * 0).long() + 1))  #: item
def spike_list_index(lab):
    [1, 2][(lab.loss * 0).long()]  #: item
def spike_max_of_tensors(lab):
    max(lab.loss, lab.loss + 1)  #: item
def spike_in_list(lab):
    lab.loss in [lab.loss + 1]  #: item
def spike_math_isnan(lab):
    math.isnan(lab.loss)  #: item
def spike_np_mean(lab):
    np.mean([lab.loss.detach()])  #: numpy, item
def spike_iterate(lab):
    [row for row in lab.x]
def spike_grad_scaler(lab):
    scaler, sgd = torch.amp.GradScaler("cpu", init_scale=2.0), torch.optim.SGD([lab.w], lr=0.0)
    lab.w.grad = None
    scaler.scale((lab.x @ lab.w).sum()).backward()
    scaler.step(sgd)  #: item
    scaler.update()

# ---- exact lines
def line_of_a_multi_line_chain(lab):
    value = (
        lab.x
        .detach()
        .mean()
        .item()  #: item
    )
    return value
def line_of_a_multi_line_call(lab):
    dict(
        a=1,
        loss=float(lab.loss),  #: item
        b=2,
    )
def line_in_a_comprehension(lab):
    return [row.sum().item()  #: item x8
            for row in lab.x]
def line_in_a_lambda(lab):
    log = lambda value: value.item()  #: item
    log(lab.loss)
class Tracker:
    def __init__(self, value):
        self.value = value
    @property
    def average(self):
        return self.value.item()  #: item
def line_in_a_property(lab):
    Tracker(lab.loss).average
def line_called_by_a_library(lab):
    list(map(float, [lab.loss, lab.loss]))  #: item x2
def line_called_through_functools(lab):
    functools.reduce(max, [lab.loss, lab.loss + 1, lab.loss + 2])  #: item x2
class Collapse(nn.Module):
    def forward(self, x):
        if x.abs().max() > 1e6:  #: item
            raise ValueError
        return x
def line_in_a_module(lab):
    nn.Sequential(Collapse(), nn.Flatten())(lab.x)
def line_in_a_hook(lab):
    x = lab.x.detach().requires_grad_()
    handle = (x * 2).register_hook(lambda g: None)
    y = x * 3
    y.register_hook(lambda g: g.sum().item() and None)  #: item
    y.sum().backward()
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        grad.max().item()  #: item
        return 2 * x * grad
def line_in_a_custom_backward(lab):
    Square.apply(lab.w).sum().backward()

# ---- reads by other spellings
def f_string_of_a_vector(lab):
    f"weights {lab.w}"  #: print
def percent_s(lab):
    "%s" % lab.loss  #: print
def np_asarray(lab):
    np.asarray(lab.x)  #: numpy
def np_of_a_host_copy(lab):
    np.asarray(lab.x.cpu())  #: cpu
def detach_cpu_numpy_over_lines(lab):
    (lab.w.detach()
        .cpu()  #: cpu
        .numpy()
        .sum())
def host_copy_then_numpy(lab):
    predictions = (lab.x @ lab.w).argmax(1).cpu()  #: cpu
    predictions.numpy()
    predictions.tolist()
    predictions[0].item()
def host_copy_then_device_again(lab):
    shown = lab.loss.detach().cpu()  #: cpu
    lab.loss.item()  #: item
    return shown
def to_cpu_by_keyword(lab):
    lab.x.to(device="cpu")  #: to_cpu
def to_cpu_with_dtype(lab):
    lab.x.to("cpu", torch.float64).numpy()  #: to_cpu
def to_cpu_over_lines(lab):
    lab.x.to(  #: to_cpu
        "cpu",
        torch.float32,
    ).numpy()
def to_cpu_without_waiting(lab):
    lab.x.to("cpu", non_blocking=True)
def assert_finite(lab):
    assert torch.isfinite(lab.loss)  #: item
def torch_is_nonzero(lab):
    torch.is_nonzero(lab.loss)  #: item
def unique_consecutive(lab):
    lab.labels.unique_consecutive()  #: unique
def argwhere(lab):
    torch.argwhere(lab.x > 0)  #: nonzero
def to_sparse(lab):
    (lab.x > 0).float().to_sparse()  #: nonzero
def masked_loss(lab):
    picked = lab.x @ lab.w
    picked[lab.labels > 1].sum()  #: mask_index
def arange_of_a_tensor(lab):
    torch.arange(lab.labels.max() + 1)  #: item
def distribution_that_validates(lab):
    torch.distributions.Normal(lab.x, lab.x.exp(), validate_args=True)  #: item x2
def transformer_mask_check(lab):
    layer = nn.TransformerEncoderLayer(4, 2, 8).to(lab.device)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).to(lab.device)
    mask = nn.Transformer.generate_square_subsequent_mask(8, device=lab.device)
    encoder(lab.x[:, None], mask=mask)  #: item
def plateau_scheduler(lab):
    torch.optim.lr_scheduler.ReduceLROnPlateau(lab.opt).step(lab.loss)  #: item
def parameter_norm(lab):
    total = 0.0
    for p in lab.net.parameters():
        total += p.data.norm().item() ** 2  #: item x4
def batch_norm_counter(lab):
    norm = nn.BatchNorm1d(4).to(lab.device)
    norm(lab.x)
    norm.num_batches_tracked.item()  #: item

# ---- not reads
def quiet_step(lab):
    lab.opt.zero_grad(set_to_none=True)
    F.cross_entropy(lab.net(lab.x), lab.labels).backward()
    nn.utils.clip_grad_norm_(lab.net.parameters(), 1.0)
    lab.opt.step()
def quiet_optimizers(lab):
    for kind in (torch.optim.Adam, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Adagrad, torch.optim.Rprop):
        lab.opt = kind(lab.net.parameters())
        lab.net(lab.x).sum().backward()
        lab.opt.step()
        lab.opt.step()
def quiet_quantile(lab):
    torch.quantile(lab.x, 0.9)
    torch.nanquantile(lab.x, torch.tensor([0.1, 0.9]))
def quiet_deviation_of_all(lab):
    lab.x.std()
    torch.var(lab.net(lab.x), unbiased=False)
def quiet_backward_of_a_maximum(lab):
    lab.net(lab.x).max().backward()
    lab.net(lab.x).prod().backward()
def host_random(lab):
    if torch.rand(()) < 0.5:
        pass
    torch.randint(0, 10, (1,)).item()
    torch.randperm(8).tolist()
    random = torch.rand(3, device="cpu")
    random.numpy()
def host_beside_its_device(lab):
    lengths = torch.tensor([3, 2, 1])
    extra = torch.zeros(3, device=lengths.device)
    extra.sum().item()
def host_batch_before_it_moves(lab):
    batch = torch.randint(0, 4, (8,))
    batch.tolist()
    moved = batch.to(lab.device)
    batch.max().item()
    moved.max().item()  #: item
def host_numpy(lab):
    lab.host.numpy()
    np.asarray(lab.host)
    torch.from_numpy(np.ones(3)).sum().item()
class Words(Dataset):
    def __init__(self):
        self.data = torch.arange(12)
    def __len__(self):
        return 12
    def __getitem__(self, index):
        length = self.data[index].item() % 3 + 1
        return torch.ones(4) * length, length
def host_dataset(lab):
    loader = DataLoader(Words(), batch_size=4, shuffle=True)
    for x, lengths in loader:
        lengths.tolist()
        int(lengths.max())
        lab.net(x.to(lab.device))
def host_loader_internals(lab):
    data = TensorDataset(torch.randn(12, 4))
    train, _ = random_split(data, [8, 4])
    for (x,) in DataLoader(train, batch_size=4, sampler=RandomSampler(train, replacement=True)):
        lab.net(x.to(lab.device))
def host_packed_lengths(lab):
    lengths = torch.tensor([3, 2])
    rnn = nn.GRU(4, 4, batch_first=True).to(lab.device)
    packed = nn.utils.rnn.pack_padded_sequence(lab.x.view(2, 4, 4), lengths, batch_first=True)
    out, _ = nn.utils.rnn.pad_packed_sequence(rnn(packed)[0], batch_first=True)
    packed.batch_sizes.tolist()
def host_lstm(lab):
    nn.LSTM(4, 4).to(lab.device)(lab.x[:, None])[0].sum().backward()
def host_checkpointed(lab):
    from torch.utils.checkpoint import checkpoint
    checkpoint(lab.net, lab.x, use_reentrant=False).sum().backward()
def host_buffer_that_receives(lab):
    staged = torch.empty(4, 4)
    staged.copy_(lab.w.detach(), non_blocking=True)
    staged.sum().item()

SNIPPETS = [value for name, value in list(globals().items()) if callable(value) and getattr(value, "__module__", "") == __name__ and not isinstance(value, type)]
