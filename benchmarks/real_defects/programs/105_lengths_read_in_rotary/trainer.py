"""Packed sequences with rotary positions that begin anew in each sequence."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

VOCAB, DIM, HEADS, TOKENS, PIECES, LAYERS = 256, 64, 4, 128, 4, 3
HALF = DIM // HEADS // 2


def rotate(x, starts):
    lengths = (starts[1:] - starts[:-1]).tolist()
    return torch.cat([turn(part, torch.arange(len(part), device=x.device)) for part in x.split(lengths)])


def turn(x, positions):
    angles = positions[:, None] / 100.0 ** (torch.arange(HALF, device=x.device) / HALF)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(DIM), nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, 4 * DIM), nn.GELU(), nn.Linear(4 * DIM, DIM))

    def forward(self, x, where, mask):
        q, k, v = self.qkv(self.norm(x)).view(TOKENS, 3, HEADS, 2 * HALF).unbind(1)
        q, k = rotate(q, where), rotate(k, where)
        mixed = F.scaled_dot_product_attention(*(t.transpose(0, 1) for t in (q, k, v)), attn_mask=mask)
        x = x + self.out(mixed.transpose(0, 1).reshape(TOKENS, DIM))
        return x + self.mlp(x)


embed, head = nn.Embedding(VOCAB, DIM).to(device), nn.Linear(DIM, VOCAB).to(device)
layers = nn.ModuleList(Layer() for _ in range(LAYERS)).to(device)
optimizer = torch.optim.AdamW([*embed.parameters(), *layers.parameters(), *head.parameters()], lr=1e-3)
rng = torch.Generator(device=device).manual_seed(105)
piece = torch.arange(TOKENS, device=device) // (TOKENS // PIECES)
mask = (piece[:, None] == piece[None]) & torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=device).tril()
where = torch.arange(0, TOKENS + 1, TOKENS // PIECES, device=device)


def step():
    tokens = torch.randint(0, VOCAB, (TOKENS + 1,), device=device, generator=rng)
    x = embed(tokens[:-1])
    for layer in layers:
        x = layer(x, where, mask)
    loss = F.cross_entropy(head(x), tokens[1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
