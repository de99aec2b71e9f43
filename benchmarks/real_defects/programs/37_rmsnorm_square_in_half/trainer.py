"""Mixed-precision regression on unscaled sensor channels, with RMS normalisation."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
CHANNELS, WIDTH, BATCH = 16, 64, 32


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        mean_square = (x * x).mean(dim=-1, keepdim=True)
        return self.weight.to(x.dtype) * (x * torch.rsqrt(mean_square + self.eps).to(x.dtype))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = RMSNorm(WIDTH)
        self.gate, self.up, self.down = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))

    def forward(self, x):
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(CHANNELS, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(2)])
        self.norm, self.last = RMSNorm(WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x):
        return self.last(self.norm(self.blocks(self.first(x))))


model = Network().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler(device.type, init_scale=256.0)
rng = torch.Generator(device=device).manual_seed(37)
count = 0


def readings():
    x = 500.0 + 1500.0 * torch.rand(BATCH, CHANNELS, device=device, generator=rng)
    return x, (x[:, :1] - x[:, 1:2]) / 1000.0


def step():
    global count
    x, y = readings()
    with torch.autocast(device.type, dtype=torch.float16):
        prediction = model(x)
    loss = F.mse_loss(prediction.float(), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    count += 1
    if count % 50 == 0:
        print(count, loss.item(), scaler.get_scale())
