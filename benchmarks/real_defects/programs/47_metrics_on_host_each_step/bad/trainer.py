"""Change detection on image pairs with a running confusion matrix."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, SIZE, REPORT = 4, 32, 50


class SiameseNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                                     nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())
        self.head = nn.Conv2d(16, 2, 1)

    def forward(self, before, after):
        a, b = self.encoder(torch.cat([before, after])).chunk(2)
        return self.head((a - b).abs())


class ConfusionMatrix:
    def __init__(self):
        self.table = np.zeros((2, 2), dtype=np.int64)

    def update(self, logits, target):
        predicted = logits.argmax(dim=1).cpu().numpy().ravel()
        actual = target.cpu().numpy().ravel()
        self.table += np.bincount(2 * actual + predicted, minlength=4).reshape(2, 2)

    def f1_and_reset(self):
        tp, fp, fn = self.table[1, 1], self.table[0, 1], self.table[1, 0]
        self.table[:] = 0
        return 2 * tp / max(2 * tp + fp + fn, 1)


model = SiameseNet().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
metric = ConfusionMatrix()
rng = torch.Generator(device=device).manual_seed(47)
count = 0


def pairs():
    before = torch.rand(BATCH, 3, SIZE, SIZE, device=device, generator=rng)
    patch = F.interpolate(torch.rand(BATCH, 1, 4, 4, device=device, generator=rng), scale_factor=8)
    changed = patch > 0.8
    return before, torch.where(changed, 1 - before, before), changed[:, 0].long()


def step():
    global count
    before, after, target = pairs()
    logits = model(before, after)
    loss = F.cross_entropy(logits, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    metric.update(logits.detach(), target)
    count += 1
    if count % REPORT == 0:
        print(f"{count}: loss {loss.item():.3f} f1 {metric.f1_and_reset():.3f}")
