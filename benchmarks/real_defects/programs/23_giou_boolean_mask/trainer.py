"""Box regression head trained with a generalised IoU loss."""
import torch
import torch.nn as nn

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
PROPOSALS, FEATURES = 256, 128


def area(boxes):
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def giou_loss(predicted, target, eps=1e-7):
    low = torch.maximum(predicted[:, :2], target[:, :2])
    high = torch.minimum(predicted[:, 2:], target[:, 2:])
    overlap = torch.zeros_like(low[:, 0])
    mask = (high > low).all(dim=1)
    overlap[mask] = area(torch.cat([low[mask], high[mask]], dim=1))
    union = area(predicted) + area(target) - overlap
    hull_low = torch.minimum(predicted[:, :2], target[:, :2])
    hull_high = torch.maximum(predicted[:, 2:], target[:, 2:])
    hull = area(torch.cat([hull_low, hull_high], dim=1))
    iou = overlap / (union + eps)
    return (1 - iou + (hull - union) / (hull + eps)).mean()


class BoxHead(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 4))

    def forward(self, features, proposals):
        delta = self.layers(features)
        size = proposals[:, 2:] - proposals[:, :2]
        centre = proposals[:, :2] + 0.5 * size + delta[:, :2].tanh() * size
        half = 0.5 * size * torch.exp(delta[:, 2:].clamp(-2, 2))
        return torch.cat([centre - half, centre + half], dim=1)


head = BoxHead().to(device)
optimizer = torch.optim.AdamW(head.parameters(), lr=1e-3)
rng = torch.Generator(device=device).manual_seed(23)
mixing = torch.randn(4, FEATURES, device=device, generator=rng)
count = 0


def proposals_and_targets():
    corner = torch.rand(PROPOSALS, 2, device=device, generator=rng)
    size = 0.05 + 0.3 * torch.rand(PROPOSALS, 2, device=device, generator=rng)
    targets = torch.cat([corner, corner + size], dim=1)
    proposals = targets + 0.08 * torch.randn(PROPOSALS, 2, device=device, generator=rng).repeat(1, 2)
    return (targets - proposals) @ mixing * 10, proposals, targets


def step():
    global count
    features, proposals, targets = proposals_and_targets()
    loss = giou_loss(head(features, proposals), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    count += 1
    if count % 50 == 0:
        print(count, loss.item())
