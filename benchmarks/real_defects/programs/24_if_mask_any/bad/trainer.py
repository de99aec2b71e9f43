"""Encoder with padded batches: rows that are masked entirely get zeros."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, LENGTH, DIM, HEADS, VOCAB = 8, 24, 64, 4, 200


class Attend(nn.Module):
    def forward(self, q, k, v, mask):
        row_is_entirely_masked = ~mask.any(dim=-1)
        mask = mask | row_is_entirely_masked[..., None]
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        if row_is_entirely_masked.any():
            out = out.masked_fill(row_is_entirely_masked[..., None], 0.0)
        return out


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.out = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM, bias=False)
        self.attend = Attend()
        self.ff = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x, mask):
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attend(q, k, v, mask).transpose(1, 2).reshape(b, n, DIM))
        return x + self.ff(self.norm2(x))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList([Layer() for _ in range(2)])
        self.logits = nn.Linear(DIM, VOCAB)

    def forward(self, ids, valid):
        mask = (valid[:, None, :, None] & valid[:, None, None, :])
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, mask)
        return self.logits(x)


model = Encoder().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
rng = torch.Generator(device=device).manual_seed(24)
positions = torch.arange(LENGTH, device=device)
count = 0


def step():
    global count
    ids = torch.randint(0, VOCAB, (BATCH, LENGTH), device=device, generator=rng)
    lengths = torch.randint(LENGTH // 2, LENGTH + 1, (BATCH, 1), device=device, generator=rng)
    valid = positions < lengths
    targets = ids.roll(1, dims=1).masked_fill(~valid, -100)
    loss = F.cross_entropy(model(ids, valid).flatten(0, 1), targets.flatten(), ignore_index=-100)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    count += 1
    if count % 50 == 0:
        print(count, loss.item())
