"""Losses and gradients of whole models are the CPU's, bit for bit."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from auditor.capture.shadow import operators, shadow_cuda


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Dropout(0.2),
            nn.Flatten(),
        )
        self.head = nn.Linear(8 * 9, 5)

    def loss(self, device):
        x, y = torch.randn(4, 3, 8, 8, device=device), torch.randint(5, (4,), device=device)
        return F.cross_entropy(self.head(self.body(x)), y)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 20)

    def loss(self, device):
        x = torch.randint(20, (2, 6), device=device)
        mask = nn.Transformer.generate_square_subsequent_mask(6, device=device)
        return F.cross_entropy(
            self.head(self.body(self.embed(x), mask=mask, is_causal=True)).flatten(0, 1),
            x.flatten(),
        )


class Attention(nn.Module):
    """As nanoGPT: fused attention, tied weights, a buffer."""

    def __init__(self):
        super().__init__()
        self.embed, self.qkv, self.norm = nn.Embedding(16, 8), nn.Linear(8, 24), nn.LayerNorm(8)
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embed.weight
        self.register_buffer("place", torch.linspace(0, 1, 6)[:, None])

    def loss(self, device):
        x = torch.randint(16, (3, 6), device=device)
        q, k, v = (
            t.view(3, 6, 2, 4).transpose(1, 2)
            for t in self.qkv(self.norm(self.embed(x) + self.place)).split(8, 2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(3, 6, 8)
        return F.cross_entropy(self.head(y).view(-1, 16), x.view(-1))


class Plain(nn.Module):
    """Only what autocast treats alike on CPU and CUDA."""

    def __init__(self):
        super().__init__()
        self.conv, self.linear = nn.Conv2d(2, 4, 3, stride=2), nn.Linear(36, 3)

    def loss(self, device):
        x = torch.randn(5, 2, 8, 8, device=device)
        shared = self.linear(self.conv(x).relu().flatten(1))
        return F.mse_loss(
            shared + self.linear(x.flatten(1)[:, :36]), torch.ones(5, 3, device=device)
        )


def train(model, device, context=None, steps=4):
    torch.manual_seed(0)
    net = model().to(device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses, gradients = [], []
    for _ in range(steps):
        with torch.autocast(device, dtype=context, enabled=context is not None):
            loss = net.loss(device)
        loss.backward()
        gradients.append([p.grad.detach().cpu().clone() for p in net.parameters()])
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, gradients, [p.detach().cpu() for p in net.parameters()]


def same(mine, theirs):
    assert mine[0] == theirs[0]
    for a, b in zip(mine[1] + [mine[2]], theirs[1] + [theirs[2]], strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("model", [CNN, Transformer, Attention], ids=lambda m: m.__name__)
def test_fp32_training_is_bit_identical(model):
    wanted = train(model, "cpu")
    with shadow_cuda():
        got = train(model, "cuda")
    same(got, wanted)


def test_autocast_is_bit_identical_where_the_lists_of_cpu_and_cuda_agree(monkeypatch):
    """A weight that is used twice is cast once: its gradients are summed in bf16 on both."""
    monkeypatch.setattr(operators, "_fast", lambda dtype: True)  # as the CPU's own kernel
    wanted = train(Plain, "cpu", torch.bfloat16)
    with shadow_cuda():
        got = train(Plain, "cuda", torch.bfloat16)
    same(got, wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_follows_cudas_lists(dtype):
    with shadow_cuda():
        x, w = (torch.randn(4, 4, device="cuda", requires_grad=own) for own in (False, True))
        with torch.autocast("cuda", dtype=dtype):
            product = x @ w
            assert product.dtype == dtype
            assert F.linear(x, w).dtype == dtype
            assert product.softmax(-1).dtype == torch.float32
            wide = product.exp(), product.sum(), product.norm(), F.layer_norm(product, (4,))
            assert {each.dtype for each in wide} == {torch.float32}
            assert product.relu().dtype == dtype
            assert torch.cross(product[:, :3], x[:, :3], dim=1).dtype == torch.float32
            assert (x.double() @ w.double()).dtype == torch.float64
            with pytest.raises(RuntimeError, match="unsafe to autocast"):
                F.binary_cross_entropy(x.sigmoid(), x.sigmoid())
        assert (x @ w).dtype == torch.float32
        product.sum().backward()
        assert w.grad.dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("fast", [True, False])
def test_half_precision_products_are_float32s_rounded(dtype, fast, monkeypatch):
    """Where the CPU has no fast kernel for them."""
    monkeypatch.setattr(operators, "_fast", lambda dtype: fast)
    torch.manual_seed(0)
    image, kernel, bias = (
        torch.randn(*shape).to(dtype) for shape in ((2, 3, 6, 6), (4, 3, 3, 3), (4,))
    )

    def gradients(device, dtype):
        leaves = [one.detach().to(device, dtype).requires_grad_() for one in (image, kernel, bias)]
        product = leaves[0][:, 0] @ leaves[0][:, 1]
        maps = F.conv2d(*leaves)
        maps.backward(torch.ones_like(maps))
        return [product, maps, *(leaf.grad for leaf in leaves)]

    wanted = [one.detach().to(dtype) for one in gradients("cpu", torch.float32)]
    with shadow_cuda():
        got = [one.detach().cpu() for one in gradients("cuda", dtype)]
    assert all(one.dtype == dtype for one in got)
    first = 0 if not fast else 2 if dtype == torch.float16 else len(got)
    assert all(map(torch.equal, got[first:], wanted[first:]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_torch_that_does_not_tell_what_is_fast_counts_as_slow(dtype, monkeypatch):
    asked = []

    class Told:
        def __getattr__(self, name):
            return lambda: asked.append(name) or True

    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: True)
    monkeypatch.setattr(torch.ops, "mkldnn", Told())
    assert operators._fast.__wrapped__(dtype)
    assert asked == [f"_is_mkldnn_{'fp16' if dtype == torch.float16 else 'bf16'}_supported"]
    monkeypatch.setattr(torch.ops, "mkldnn", object())
    assert not operators._fast.__wrapped__(dtype)
