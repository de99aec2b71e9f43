"""Custom batch normalisation layer in a small convolutional classifier."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class MyBatchNorm2d(nn.Module):
    def __init__(self, channels, eps=1e-5, momentum=0.1):
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))
        self.register_buffer("running_mean", torch.zeros(channels))
        self.register_buffer("running_var", torch.ones(channels))

    def forward(self, x):
        if self.training:
            mean = x.mean(dim=(0, 2, 3))
            var = x.var(dim=(0, 2, 3), unbiased=False)
            factor = x.numel() / x.size(1)
            factor = factor / (factor - 1)
            self.running_mean = (1 - self.momentum) * self.running_mean + self.momentum * mean
            self.running_var = (1 - self.momentum) * self.running_var + self.momentum * var * factor
        else:
            mean, var = self.running_mean, self.running_var
        x = (x - mean[None, :, None, None]) * torch.rsqrt(var[None, :, None, None] + self.eps)
        return x * self.weight[None, :, None, None] + self.bias[None, :, None, None]


def unit(cin, cout):
    return [nn.Conv2d(cin, cout, 3, padding=1, bias=False), MyBatchNorm2d(cout), nn.ReLU(inplace=True)]


model = nn.Sequential(*unit(1, 8), *unit(8, 16), nn.MaxPool2d(2), *unit(16, 16),
                      nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
rng = torch.Generator(device=device).manual_seed(9)
patterns = torch.randn(10, 1, 16, 16, device=device, generator=rng)
loss_total = torch.zeros((), device=device)
number = 0


def step():
    global number
    labels = torch.randint(0, 10, (16,), device=device, generator=rng)
    noise = torch.randn(16, 1, 16, 16, device=device, generator=rng)
    loss = F.cross_entropy(model(patterns[labels] + noise), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss_total.add_(loss.detach())
    number += 1
    if number % 50 == 0:
        print(f"step {number}: mean loss {loss_total.item() / 50:.3f}")
        loss_total.zero_()
