"""Fits a scene to photographs: each step takes one picture, which a worker decodes."""
import zlib

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
from torch.utils.data import DataLoader, Dataset

PICTURES, HEIGHT, WIDTH, POINTS = 12, 420, 648, 400


class Photographs(Dataset):
    def __init__(self):
        rng = torch.Generator().manual_seed(110)
        coarse = torch.rand(PICTURES, 3, 30, 54, generator=rng)
        pictures = (F.interpolate(coarse, (HEIGHT, WIDTH), mode="bilinear") * 255).byte()
        self.files = [zlib.compress(picture.numpy().tobytes()) for picture in pictures]

    def __len__(self):
        return 4000

    def __getitem__(self, index):
        raw = zlib.decompress(self.files[index % PICTURES])
        picture = torch.frombuffer(bytearray(raw), dtype=torch.uint8).view(3, HEIGHT, WIDTH)
        return index % PICTURES, picture.float() / 255


class Scene(nn.Module):
    def __init__(self):
        super().__init__()
        self.places, self.colours = nn.Parameter(torch.rand(POINTS, 2)), nn.Parameter(torch.rand(POINTS, 3))
        self.views = nn.Embedding(PICTURES, 2)

    def forward(self, view, at):
        near = torch.softmax(-200 * torch.cdist(at + 0.01 * self.views(view), self.places), dim=1)
        return near @ self.colours


scene = Scene().to(device)
optimizer = torch.optim.Adam(scene.parameters(), lr=1e-2)
loader = DataLoader(Photographs(), batch_size=1, shuffle=True, num_workers=1, pin_memory=True)
pictures = iter(loader)
rng = torch.Generator(device=device).manual_seed(110)


def step():
    global pictures
    try:
        view, picture = next(pictures)
    except StopIteration:
        pictures = iter(loader)
        view, picture = next(pictures)
    view, picture = view.to(device, non_blocking=True), picture.to(device, non_blocking=True)
    rows = torch.randint(0, HEIGHT, (256,), device=device, generator=rng)
    columns = torch.randint(0, WIDTH, (256,), device=device, generator=rng)
    at = torch.stack([rows / HEIGHT, columns / WIDTH], dim=1)
    target = picture[0, :, rows, columns].t()
    loss = F.l1_loss(scene(view, at), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
