import torch
import torch.nn.functional as F
from torch import nn

from tests.rules.programs import trained_by, trained_with


def mask_of_the_batch():
    emb, head = nn.Embedding(50, 32), nn.Linear(32, 50)

    def loss_of():
        lengths = torch.randint(20, 64, (16,))
        ids = torch.randint(0, 50, (16, 64))
        mask = torch.arange(64)[None, :] < lengths[:, None]
        loss = F.cross_entropy(head(emb(ids)).transpose(1, 2), ids, reduction="none")
        return (loss * mask).sum()

    return trained_with(torch.optim.SGD([*emb.parameters(), *head.parameters()], lr=0.1), loss_of)


def random_tensors_and_dropout():
    model = nn.Sequential(nn.Linear(64, 128), nn.Dropout(0.5), nn.ReLU(), nn.Linear(128, 64))

    def loss():
        x = torch.randn(64, 64)
        noise = torch.zeros(64, 64).normal_() * 0.1
        first, second = model(x + noise), model(x + noise)
        return F.mse_loss(first, x) + F.mse_loss(first, second)

    return trained_with(torch.optim.Adam(model.parameters()), loss)


def cache_of_a_mask():
    emb, head, cache = nn.Embedding(50, 32), nn.Linear(32, 50), {}

    def loss():
        ids = torch.randint(0, 50, (4, 64))
        if 64 not in cache:
            cache[64] = torch.triu(torch.ones(64, 64), 1).bool()
        h = emb(ids)
        a = (h @ h.transpose(1, 2)).masked_fill(cache[64], -1e9).softmax(-1) @ h
        return F.cross_entropy(head(a).flatten(0, 1), ids.flatten())

    return trained_with(torch.optim.SGD([*emb.parameters(), *head.parameters()], lr=0.1), loss)


def buffer_filled_in_place():
    model = nn.Linear(64, 64)

    def loss():
        x = torch.randn(64, 64)
        out = torch.zeros(512, 512)
        out[:64, :64] = model(x)
        return out.square().mean()

    return trained_by(model, loss)


def prompts_of_a_tower_that_is_averaged():
    model, text = nn.Linear(32, 32), nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 32))
    text.requires_grad_(False).register_buffer("prompts", torch.randn(64, 32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        classes = F.normalize(text(text.prompts), dim=-1)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(torch.randn(16, 32)) @ classes.t(), torch.randint(64, (16,)))
        loss.backward()
        optimizer.step()
        for old in (text[0].weight, text[2].weight):
            old.lerp_(model.weight.detach(), 0.01)

    return step


def prompts_that_are_learned():
    text, prompts = nn.Linear(64, 64).requires_grad_(False), nn.Parameter(torch.randn(32, 64))

    def loss_of():
        classes = F.normalize(text(prompts), dim=-1)
        return F.cross_entropy(torch.randn(16, 64) @ classes.t(), torch.randint(32, (16,)))

    return trained_with(torch.optim.SGD([prompts], lr=0.1), loss_of)


def frozen_weights_kept_in_eight_bits():
    head, packed = nn.Linear(256, 1), nn.Linear(1, 1)
    packed.weight = nn.Parameter(
        torch.randint(-9, 9, (256, 256), dtype=torch.int8), requires_grad=False
    )
    packed.register_buffer("scale", torch.rand(256, 1))

    def loss():
        weight = (packed.weight.float() - 1) * packed.scale
        return head(F.linear(torch.randn(16, 256), weight)).square().mean()

    return trained_by(head, loss)


def frozen_network_on_the_batch():
    body, head = nn.Sequential(nn.Linear(64, 64), nn.ReLU()).requires_grad_(False), nn.Linear(64, 1)

    def loss():
        with torch.no_grad():
            features = body(torch.randn(64, 64))
        return head(features).square().mean()

    return trained_by(head, loss)
