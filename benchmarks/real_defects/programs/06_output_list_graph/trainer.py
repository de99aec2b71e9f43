"""Self-supervised depth: photometric loss, outputs collected for the end of the epoch."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
EPOCH_STEPS = 100


class DepthNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ELU(), nn.Conv2d(16, 32, 3, padding=1), nn.ELU())
        self.dec = nn.Sequential(nn.Conv2d(32, 16, 3, padding=1), nn.ELU(), nn.Conv2d(16, 1, 3, padding=1), nn.Sigmoid())

    def forward(self, image):
        inv_depth = self.dec(self.enc(image))
        return F.interpolate(inv_depth, scale_factor=2, mode="nearest")


model = DepthNet().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
rng = torch.Generator(device=device).manual_seed(2)
base = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 32), torch.linspace(-1, 1, 48), indexing="ij")[::-1], -1).to(device)
outputs = []


def warp(image, inv_depth):
    shift = torch.cat([inv_depth, torch.zeros_like(inv_depth)], dim=1).permute(0, 2, 3, 1)
    return F.grid_sample(image, base + 0.1 * shift, padding_mode="border", align_corners=True)


def smoothness(inv_depth, image):
    weight = torch.exp(-(image[..., 1:] - image[..., :-1]).abs().mean(1, keepdim=True))
    return ((inv_depth[..., 1:] - inv_depth[..., :-1]).abs() * weight).mean()


def training_step():
    image = torch.rand(4, 3, 32, 48, device=device, generator=rng)
    context = image.roll(2, dims=-1)
    inv_depth = model(image)
    photometric = F.l1_loss(warp(context, inv_depth), image)
    smooth = smoothness(inv_depth, image)
    return photometric + 0.001 * smooth, {"photometric": photometric, "smoothness": smooth}


def training_epoch_end(items):
    names = ["loss", "photometric", "smoothness"]
    table = torch.stack([torch.stack([item[name] for name in names]) for item in items]).mean(dim=0).tolist()
    print({name: round(value, 4) for name, value in zip(names, table)})


def step():
    loss, metrics = training_step()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    outputs.append({"loss": loss, **metrics})
    if len(outputs) == EPOCH_STEPS:
        training_epoch_end(outputs)
        outputs.clear()
