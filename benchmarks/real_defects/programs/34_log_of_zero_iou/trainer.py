"""Anchor-free detector: distances to the four sides, IoU loss."""
import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
BATCH, SIZE = 4, 32


def area(extent):
    width, height = extent.clamp(min=0).unbind(dim=-1)
    return width * height


def bbox_overlaps(predicted, target):
    low = torch.maximum(predicted[..., :2], target[..., :2])
    high = torch.minimum(predicted[..., 2:], target[..., 2:])
    overlap = area(high - low)
    area1, area2 = area(predicted[..., 2:] - predicted[..., :2]), area(target[..., 2:] - target[..., :2])
    return overlap / (area1 + area2 - overlap).clamp(min=1e-6)


def iou_loss(predicted, target):
    ious = bbox_overlaps(predicted, target)
    return -ious.log().mean()


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten())
        self.box = nn.Linear(32 * (SIZE // 4) ** 2, 4)

    def forward(self, x):
        centre, size = self.box(self.body(x)).chunk(2, dim=1)
        half = 2.0 + torch.nn.functional.softplus(size)
        middle = SIZE / 2 + centre
        return torch.cat([middle - half, middle + half], dim=1)


model = Detector().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
rng = torch.Generator(device=device).manual_seed(34)
axis = torch.arange(SIZE, device=device, dtype=torch.float32)
total = torch.zeros((), device=device)
count = 0


def scene():
    corner = torch.rand(BATCH, 2, device=device, generator=rng) * (SIZE - 8)
    extent = 4 + torch.rand(BATCH, 2, device=device, generator=rng) * 4
    box = torch.cat([corner, corner + extent], dim=1)
    inside_x = (axis >= box[:, :1]) & (axis < box[:, 2:3])
    inside_y = (axis >= box[:, 1:2]) & (axis < box[:, 3:])
    return (inside_y[:, :, None] & inside_x[:, None, :]).float()[:, None], box


def step():
    global count
    images, boxes = scene()
    loss = iou_loss(model(images), boxes)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    total.add_(loss.detach())
    count += 1
    if count % 50 == 0:
        print(count, total.item() / 50)
        total.zero_()
