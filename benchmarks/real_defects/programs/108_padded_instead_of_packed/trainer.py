"""Instruction tuning: batches of two samples, padded by the collate function."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
from torch.utils.data import DataLoader, Dataset

PAD, IGNORE, MAX_LENGTH = 0, -100, 256
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


class Instructions(Dataset):
    def __init__(self, count):
        draw, rng = random.Random(108), torch.Generator().manual_seed(108)
        self.samples = [torch.randint(1, VOCAB, (draw.choice((20, 24, 30, 36, 40, 200)),), generator=rng) for _ in range(count)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def collate(samples):
    ids = torch.full((len(samples), MAX_LENGTH), PAD)
    document = torch.zeros(len(samples), MAX_LENGTH, dtype=torch.long)
    for row, sample in enumerate(samples):
        ids[row, : len(sample)] = sample
        document[row, : len(sample)] = 1
    return ids, document


model = Model().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(Instructions(2000), batch_size=2, shuffle=True, collate_fn=collate)
batches = iter(loader)
causal = torch.ones(MAX_LENGTH, MAX_LENGTH, dtype=torch.bool, device=device).tril()


def step():
    global batches
    try:
        ids, document = next(batches)
    except StopIteration:
        batches = iter(loader)
        ids, document = next(batches)
    ids, document = ids.to(device), document.to(device)
    mask = causal & (document[:, :, None] == document[:, None, :])
    labels = ids[:, 1:].masked_fill(ids[:, 1:] == PAD, IGNORE)
    loss = F.cross_entropy(model(ids, mask[:, None])[:, :-1].flatten(0, 1), labels.flatten(), ignore_index=IGNORE)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
