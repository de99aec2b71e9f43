"""Super-resolution with a Sobel edge loss."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

BATCH, SIZE = 4, 32


class Sobel(nn.Module):
    def __init__(self):
        super().__init__()
        gx = torch.tensor([[1.0, 0.0, -1.0], [2.0, 0.0, -2.0], [1.0, 0.0, -1.0]])
        self.register_buffer("kernels", torch.stack([gx, gx.t()])[:, None])

    def forward(self, image):
        g = F.conv2d(image, self.kernels, padding=1)
        return torch.sqrt(g.pow(2).sum(dim=1, keepdim=True))


class Upscaler(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
                                  nn.Conv2d(32, 4, 3, padding=1))
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, low):
        coarse = F.interpolate(low, scale_factor=2, mode="nearest")
        return F.relu(coarse + 0.1 * self.shuffle(self.body(low)))


model = Upscaler().to(device)
sobel = Sobel().to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
rng = torch.Generator(device=device).manual_seed(15)
running = torch.zeros((), device=device)
iteration = 0


def text_images():
    """White glyph-like boxes on a perfectly black background."""
    coords = torch.arange(SIZE, device=device)
    start = torch.randint(4, SIZE // 2, (BATCH, 2, 1), device=device, generator=rng)
    length = torch.randint(3, SIZE // 3, (BATCH, 2, 1), device=device, generator=rng)
    inside = ((coords >= start) & (coords < start + length)).float()
    return (inside[:, 0, :, None] * inside[:, 1, None, :])[:, None]


def step():
    global iteration
    high = text_images()
    low = F.avg_pool2d(high, 2)
    output = model(low)
    loss = F.l1_loss(output, high) + 0.1 * F.l1_loss(sobel(output), sobel(high))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    running.add_(loss.detach())
    iteration += 1
    if iteration % 40 == 0:
        print(iteration, running.item() / 40)
        running.zero_()
