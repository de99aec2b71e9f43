"""Small detector backbone with an exponential moving average of its weights."""
import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class ConvBN(nn.Module):
    def __init__(self, cin, cout, stride=1):
        super().__init__()
        self.conv = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn = nn.BatchNorm2d(cout)

    def forward(self, x):
        return F.silu(self.bn(self.conv(x)))


def backbone():
    layers = [ConvBN(3, 8, 2)]
    for _ in range(10):
        layers.append(ConvBN(8, 8))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 6))


class ModelEMA:
    def __init__(self, model, decay=0.999):
        self.ema = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay, self.updates = decay, 0
        ours, theirs = self.ema.state_dict(), model.state_dict()
        self.pairs = [(ours[k], theirs[k]) for k in ours if ours[k].dtype.is_floating_point]
        self.counters = [(ours[k], theirs[k]) for k in ours if not ours[k].dtype.is_floating_point]

    @torch.no_grad()
    def update(self):
        self.updates += 1
        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))
        for target, source in self.pairs:
            target *= decay
            target += (1 - decay) * source
        for target, source in self.counters:
            target.copy_(source)


model = backbone().to(device)
ema = ModelEMA(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.937, nesterov=True)
rng = torch.Generator(device=device).manual_seed(8)
seen = 0


def step():
    global seen
    images = torch.rand(4, 3, 32, 32, device=device, generator=rng)
    labels = torch.randint(0, 6, (4,), device=device, generator=rng)
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    ema.update()
    seen += 1
    if seen % 25 == 0:
        print(seen, loss.item())
