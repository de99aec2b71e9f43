"""Dense prediction on images of varying size (random scale at each batch)."""
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
random.seed(0)
torch.backends.cudnn.benchmark = True
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

BATCH, ANCHORS = 2, 3


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 16, 3, 1, 1), nn.ReLU())
        self.c2 = nn.Sequential(nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU())
        self.lateral = nn.Conv2d(16, 32, 1)
        self.objectness = nn.Conv2d(32, ANCHORS, 1)
        self.boxes = nn.Conv2d(32, 4 * ANCHORS, 1)

    def forward(self, x):
        low = self.c1(x)
        high = self.c2(low)
        merged = self.lateral(low) + F.interpolate(high, size=low.shape[-2:], mode="nearest")
        return self.objectness(merged), self.boxes(merged)


model = Pyramid().to(device).train()
optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-4)
rng = torch.Generator(device=device).manual_seed(13)
iteration = 0


def make_batch():
    height = random.randrange(40, 97)
    width = random.randrange(40, 97)
    images = torch.rand(BATCH, 3, height, width, device=device, generator=rng)
    grid = ((height + 1) // 2, (width + 1) // 2)
    objectness = (torch.rand(BATCH, ANCHORS, *grid, device=device, generator=rng) > 0.95).float()
    boxes = torch.randn(BATCH, 4 * ANCHORS, *grid, device=device, generator=rng)
    return images, objectness, boxes


def step():
    global iteration
    images, objectness, boxes = make_batch()
    logits, regression = model(images)
    loss_obj = F.binary_cross_entropy_with_logits(logits, objectness)
    weight = objectness.repeat_interleave(4, dim=1)
    loss_box = (F.smooth_l1_loss(regression, boxes, reduction="none") * weight).sum() / weight.sum().clamp(min=1.0)
    loss = loss_obj + loss_box
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    iteration += 1
    if iteration % 20 == 0:
        print(f"iteration {iteration} loss {loss.item():.3f}")
