"""Segments surfaces in small volumes of a scan; losses are built from the run's settings."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(4)
SIDE, BATCH = 16, 4
SETTINGS = {
    "activation": "none",
    "losses": [{"name": "BCEWithLogitsLoss", "weight": 1.0}, {"name": "SoftDiceLoss", "weight": 0.2}],
}


class SoftDiceLoss(nn.Module):
    def __init__(self, apply_nonlin=None, smooth=1.0):
        super().__init__()
        self.apply_nonlin, self.smooth = apply_nonlin, smooth

    def forward(self, x, y):
        if self.apply_nonlin is not None:
            x = self.apply_nonlin(x)
        axes = tuple(range(2, x.ndim))
        intersect = (x * y).sum(axes)
        total = x.sum(axes) + y.sum(axes)
        dice = (2 * intersect + self.smooth) / torch.clip(total + self.smooth, 1e-8)
        return -dice.mean()


def create_loss(name):
    if name == "BCEWithLogitsLoss":
        return nn.BCEWithLogitsLoss()
    if name == "SoftDiceLoss":
        return SoftDiceLoss(apply_nonlin=None)
    raise ValueError(name)


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.down = nn.Sequential(nn.Conv3d(1, width, 3, padding=1), nn.InstanceNorm3d(width), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv3d(width, 2 * width, 3, 2, 1), nn.InstanceNorm3d(2 * width), nn.ReLU())
        self.up = nn.Sequential(nn.Conv3d(3 * width, width, 3, padding=1), nn.InstanceNorm3d(width), nn.ReLU())
        self.out = nn.Conv3d(width, 1, 1)

    def forward(self, x):
        skip = self.down(x)
        deep = F.interpolate(self.deep(skip), scale_factor=2, mode="nearest")
        return self.out(self.up(torch.cat([skip, deep], dim=1)))


def volumes():
    """A tilted sheet in noise, about an eighth of the voxels."""
    axis = torch.linspace(-1, 1, SIDE)
    grid = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"))
    normal = F.normalize(torch.randn(BATCH, 3), dim=1)
    distance = torch.einsum("bc,cxyz->bxyz", normal, grid)
    target = (distance.abs() < 0.12).float()[:, None]
    return target + 0.4 * torch.randn(BATCH, 1, SIDE, SIDE, SIDE), target


model = UNet()
losses = [(create_loss(each["name"]), each["weight"]) for each in SETTINGS["losses"]]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def step():
    image, target = volumes()
    logits = model(image)
    loss = sum(weight * criterion(logits, target) for criterion, weight in losses)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 12.0)
    optimizer.step()
