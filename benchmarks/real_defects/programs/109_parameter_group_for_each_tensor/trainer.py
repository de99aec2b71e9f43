"""Detector training with a learning rate for each stage, made as one parameter group for each tensor."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

DIM, STAGES, BLOCKS = 32, 14, 155


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.scale = nn.Linear(DIM, DIM), nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return x + 0.1 * self.scale * torch.tanh(self.linear(x))


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*(Block() for _ in range(BLOCKS)))

    def forward(self, x):
        return self.blocks(x)


def settings(name, parameter):
    stage = min(int(name.split(".")[1]) * STAGES // BLOCKS, STAGES - 1)
    return 1e-4 * 0.9 ** (STAGES - stage), 0.0 if parameter.ndim == 1 else 1e-4


def groups(model):
    out = []
    for name, parameter in model.named_parameters():
        lr, decay = settings(name, parameter)
        out.append({"params": [parameter], "lr": lr, "weight_decay": decay})
    return out


model = Detector().to(device)
optimizer = torch.optim.AdamW(groups(model))
rng = torch.Generator(device=device).manual_seed(109)


def step():
    x = torch.randn(16, DIM, device=device, generator=rng)
    loss = F.mse_loss(model(x), x.roll(1, 0))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
