"""Shifted-window attention on images of a fixed size."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
GRID, WINDOW, SHIFT, DIM, HEADS, BATCH = 12, 4, 2, 32, 4, 3


def to_windows(x):
    b, h, w, c = x.shape
    x = x.view(b, h // WINDOW, WINDOW, w // WINDOW, WINDOW, c)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, WINDOW * WINDOW, c)


def from_windows(x, b):
    n = GRID // WINDOW
    return x.view(b, n, n, WINDOW, WINDOW, -1).permute(0, 1, 3, 2, 4, 5).reshape(b, GRID, GRID, -1)


def shifted_mask():
    ids = torch.zeros(1, GRID, GRID, 1, device=device)
    parts = (slice(0, -WINDOW), slice(-WINDOW, -SHIFT), slice(-SHIFT, None))
    for i, rows in enumerate(parts):
        for j, columns in enumerate(parts):
            ids[:, rows, columns] = 3 * i + j
    ids = to_windows(ids).squeeze(-1)
    return (ids[:, None, :] == ids[:, :, None])[:, None]


class SwinBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.qkv, self.proj = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x):
        b = x.size(0)
        windows = to_windows(self.norm1(x).roll((-SHIFT, -SHIFT), dims=(1, 2)))
        q, k, v = self.qkv(windows).view(-1, WINDOW ** 2, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        mask = shifted_mask().repeat(b, 1, 1, 1)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        out = self.proj(out.transpose(1, 2).reshape(-1, WINDOW ** 2, DIM))
        x = x + from_windows(out, b).roll((SHIFT, SHIFT), dims=(1, 2))
        return x + self.mlp(self.norm2(x))


class Matting(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = nn.Conv2d(3, DIM, 4, 4)
        self.blocks = nn.Sequential(*[SwinBlock() for _ in range(3)])
        self.alpha = nn.Linear(DIM, 16)

    def forward(self, x):
        tokens = self.blocks(self.patch(x).permute(0, 2, 3, 1))
        return F.pixel_shuffle(self.alpha(tokens).permute(0, 3, 1, 2), 4)


model = Matting().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
rng = torch.Generator(device=device).manual_seed(36)
count = 0


def step():
    global count
    image = torch.rand(BATCH, 3, 4 * GRID, 4 * GRID, device=device, generator=rng)
    alpha = (F.avg_pool2d(image.mean(1, keepdim=True), 5, 1, 2) > 0.5).float()
    loss = F.binary_cross_entropy_with_logits(model(image), alpha)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    count += 1
    if count % 50 == 0:
        print(count, loss.item())
