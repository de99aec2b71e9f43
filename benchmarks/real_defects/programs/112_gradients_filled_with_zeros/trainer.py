"""Trains a segmentation network; gradients are set to zero after each step."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

BATCH, SIZE, CLASSES = 4, 32, 5


def block(channels_in, channels_out):
    return nn.Sequential(
        nn.Conv2d(channels_in, channels_out, 3, padding=1), nn.GroupNorm(4, channels_out), nn.ReLU(),
        nn.Conv2d(channels_out, channels_out, 3, padding=1), nn.GroupNorm(4, channels_out), nn.ReLU(),
    )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1, self.down2, self.middle = block(3, 16), block(16, 32), block(32, 64)
        self.up2, self.up1 = block(96, 32), block(48, 16)
        self.head = nn.Conv2d(16, CLASSES, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        x = self.middle(F.max_pool2d(b, 2))
        x = self.up2(torch.cat([F.interpolate(x, scale_factor=2), b], dim=1))
        return self.head(self.up1(torch.cat([F.interpolate(x, scale_factor=2), a], dim=1)))


model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
rng = torch.Generator(device=device).manual_seed(112)


def step():
    images = torch.randn(BATCH, 3, SIZE, SIZE, device=device, generator=rng)
    labels = torch.randint(0, CLASSES, (BATCH, SIZE, SIZE), device=device, generator=rng)
    loss = F.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
