"""Gradient accumulation over micro-batches for semantic segmentation."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
MICRO_BATCHES, BATCH, CLASSES, SIZE = 4, 2, 6, 32


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.GroupNorm(4, 16), nn.GELU())
        self.context = nn.ModuleList([nn.Conv2d(16, 16, 3, padding=d, dilation=d) for d in (1, 2, 4)])
        self.classify = nn.Conv2d(48, CLASSES, 1)

    def forward(self, x):
        h = self.stem(x)
        h = torch.cat([F.gelu(branch(h)) for branch in self.context], dim=1)
        return F.interpolate(self.classify(h), size=x.shape[-2:], mode="bilinear", align_corners=False)


model = Segmenter().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.01)
rng = torch.Generator(device=device).manual_seed(48)
palette = torch.rand(CLASSES, 3, device=device, generator=rng)
running = torch.zeros((), device=device)
count = 0


def micro_batch():
    coarse = torch.randint(0, CLASSES, (BATCH, 4, 4), device=device, generator=rng)
    labels = coarse.repeat_interleave(8, dim=1).repeat_interleave(8, dim=2)
    images = palette[labels].permute(0, 3, 1, 2)
    return images + 0.1 * torch.randn(images.shape, device=device, generator=rng), labels


def step():
    global count
    optimizer.zero_grad()
    total = torch.zeros((), device=device)
    for _ in range(MICRO_BATCHES):
        images, labels = micro_batch()
        total = total + F.cross_entropy(model(images), labels) / MICRO_BATCHES
    total.backward()
    running.add_(total.detach())
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    count += 1
    if count % 40 == 0:
        print(f"update {count}: mean loss {running.item() / 40:.4f}")
        running.zero_()
