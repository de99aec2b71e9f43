"""Supervised fine-tuning with micro-batches: answers are short, a few are long."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

PAD, IGNORE, SAMPLES, MICRO, LONGEST = 0, -100, 32, 8, 160
VOCAB, DIM, HEADS, LAYERS = 256, 64, 4, 2


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(DIM), nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x, mask):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, DIM))
        return x + self.mlp(x)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(DIM, VOCAB)

    def forward(self, ids, mask):
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x)


def lengths(count):
    return [draw.randint(80, LONGEST) if draw.random() < 0.15 else draw.randint(6, 30) for _ in range(count)]


def batches(samples):
    for first in range(0, len(samples), MICRO):
        chosen = samples[first : first + MICRO]
        ids = torch.full((MICRO, LONGEST), PAD)
        for row, sample in enumerate(chosen):
            ids[row, : len(sample)] = sample
        real = ids != PAD
        causal = torch.ones(LONGEST, LONGEST, dtype=torch.bool).tril()
        mask = causal & (real[:, None, :] | torch.eye(LONGEST, dtype=torch.bool))
        yield ids, mask[:, None]


draw = random.Random(107)
model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rng = torch.Generator().manual_seed(107)


def step():
    samples = [torch.randint(1, VOCAB, (length,), generator=rng) for length in lengths(SAMPLES)]
    tokens = sum(map(len, samples))
    optimizer.zero_grad()
    for ids, mask in batches(samples):
        ids, mask = ids.to(device), mask.to(device)
        labels = ids[:, 1:].masked_fill(ids[:, 1:] == PAD, IGNORE)
        loss = F.cross_entropy(model(ids, mask)[:, :-1].flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="sum")
        (loss / tokens).backward()
    optimizer.step()
