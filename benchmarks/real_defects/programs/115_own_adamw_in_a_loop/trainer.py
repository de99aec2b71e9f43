"""A schedule-free AdamW of one's own that updates each parameter alone."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

DIM, LEVELS, BATCH = 24, 5, 4


class ScheduleFree(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, beta=0.9):
        super().__init__(params, {"lr": lr, "beta": beta, "count": 0})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            group["count"] += 1
            lr, beta, weight = group["lr"], group["beta"], 1.0 / group["count"]
            chosen = [p for p in group["params"] if p.grad is not None]
            for p in chosen:
                if not self.state[p]:
                    self.state[p].update(z=p.clone(), square=torch.zeros_like(p))
            for p in chosen:
                z, square = self.state[p]["z"], self.state[p]["square"]
                square.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                update = p.grad / square.sqrt().add_(1e-8)
                p.lerp_(z, weight)
                p.add_(update, alpha=lr * (beta * (1 - weight) - 1))
                z.sub_(update, alpha=lr)


class Unet(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, DIM, 3, padding=1), nn.Conv2d(DIM, 3, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(4, DIM), nn.SiLU(), nn.Conv2d(DIM, DIM, 3, padding=1)) for _ in range(4 * LEVELS)
        )

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = x + block(x)
        return self.last(x)


model = Unet().to(device)
optimizer = ScheduleFree(model.parameters())
rng = torch.Generator(device=device).manual_seed(115)


def step():
    images = torch.randn(BATCH, 3, 16, 16, device=device, generator=rng)
    noise = torch.randn(BATCH, 3, 16, 16, device=device, generator=rng)
    loss = F.mse_loss(model(images + noise), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
