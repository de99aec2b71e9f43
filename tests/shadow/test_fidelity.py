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


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 8, 2, dropout=0.1, bidirectional=True)
        self.head = nn.Linear(16, 1)

    def loss(self, device):
        packed = nn.utils.rnn.pack_padded_sequence(
            torch.randn(5, 3, 4, device=device), torch.tensor([5, 3, 2])
        )
        out, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0])
        return self.head(out).pow(2).mean()


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(12, 8), nn.Linear(4, 12)

    def loss(self, device):
        x = torch.rand(5, 12, device=device)
        mean, logvar = self.encode(x).chunk(2, 1)
        z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        kl = -0.5 * torch.sum(1 + logvar - mean.pow(2) - logvar.exp())
        return F.binary_cross_entropy_with_logits(self.decode(z), x, reduction="sum") + kl


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag, self.head = nn.EmbeddingBag(30, 6, mode="mean"), nn.Linear(6, 3)

    def loss(self, device):
        words, offsets = (
            torch.randint(30, (12,), device=device),
            torch.tensor([0, 4, 7], device=device),
        )
        return F.cross_entropy(
            self.head(self.bag(words, offsets)), torch.randint(3, (3,), device=device)
        )


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Linear(4, 3)
        self.experts = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))

    def loss(self, device):
        x = torch.randn(10, 4, device=device)
        weights, chosen = self.router(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == number)
            out.index_add_(0, rows, weights[rows, slot, None] * expert(x[rows]))
        counts = torch.zeros(3, device=device).scatter_add_(
            0, chosen.flatten(), torch.ones(20, device=device)
        )
        return out.pow(2).mean() + 0.01 * (counts / 20 * self.router(x).softmax(-1).mean(0)).sum()


class GAN(nn.Module):
    """Both losses in one: the discriminator sees fakes, detached and not."""

    def __init__(self):
        super().__init__()
        self.make, self.judge = (
            nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh()),
            nn.Sequential(nn.Linear(8, 1)),
        )

    def loss(self, device):
        fake = self.make(torch.randn(6, 3, device=device))
        real = torch.randn(6, 8, device=device)
        seen = self.judge(torch.cat([real, fake.detach()])).squeeze(1)
        labels = torch.cat([torch.ones(6, device=device), torch.zeros(6, device=device)])
        return (
            F.binary_cross_entropy_with_logits(seen, labels) + F.softplus(-self.judge(fake)).mean()
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
        if context is None:
            loss = net.loss(device)
        else:
            with torch.autocast(device, dtype=context):
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


MODELS = [CNN, Transformer, Recurrent, VAE, Bag, Mixture, GAN, Attention]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.__name__)
def test_fp32_training_is_bit_identical(model):
    wanted = train(model, "cpu")
    with shadow_cuda():
        got = train(model, "cuda")
    same(got, wanted)


def test_a_bert_is_bit_identical_where_transformers_is_installed():
    transformers = pytest.importorskip("transformers")
    sizes = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
    }
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=16, **sizes)

    class Bert(nn.Module):
        def __init__(self):
            super().__init__()
            self.bert = transformers.BertForSequenceClassification(config)

        def loss(self, device):
            x = torch.randint(50, (2, 8), device=device)
            return self.bert(
                input_ids=x,
                attention_mask=torch.ones_like(x),
                labels=torch.randint(2, (2,), device=device),
            ).loss

    plain = train(Bert, "cpu")
    with shadow_cuda():
        played = train(Bert, "cuda")
    same(played, plain)


def test_autocast_is_bit_identical_where_the_lists_of_cpu_and_cuda_agree(monkeypatch):
    """A weight that is used twice is cast once: its gradients are summed in bf16 on both."""
    monkeypatch.setattr(
        operators, "_fast", lambda dtype: True
    )  # else the shadow rounds where the CPU's own kernel does not
    wanted = train(Plain, "cpu", torch.bfloat16)
    with shadow_cuda():
        got = train(Plain, "cuda", torch.bfloat16)
    same(got, wanted)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast_follows_cudas_lists(dtype):
    with shadow_cuda():
        x, w = (
            torch.randn(4, 4, device="cuda"),
            torch.randn(4, 4, device="cuda", requires_grad=True),
        )
        with torch.autocast("cuda", dtype=dtype):
            product = x @ w
            assert product.dtype == dtype
            assert F.linear(x, w).dtype == dtype
            assert product.softmax(-1).dtype == torch.float32
            assert (
                product.exp().dtype == product.sum().dtype == product.norm().dtype == torch.float32
            )
            assert F.layer_norm(product, (4,)).dtype == torch.float32
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
    """Where the CPU has no fast kernel for them; its float16 gradients of convolutions are slow on
    every CPU.
    """
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
    exact = (
        slice(0, None) if not fast else slice(2, None) if dtype == torch.float16 else slice(0, 0)
    )
    assert all(
        torch.equal(mine, theirs) for mine, theirs in zip(got[exact], wanted[exact], strict=True)
    )


def test_fp16_with_a_scaler_trains():
    with shadow_cuda():
        torch.manual_seed(0)
        net = nn.Linear(4, 1).cuda()
        optimizer, scaler = torch.optim.SGD(net.parameters(), lr=0.1), torch.amp.GradScaler("cuda")
        x, losses = torch.randn(16, 4, device="cuda"), []
        for _ in range(5):
            with torch.autocast("cuda", dtype=torch.float16):
                loss = (net(x) - 1).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


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
