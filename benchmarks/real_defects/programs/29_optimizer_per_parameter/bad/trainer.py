"""Cautious AdamW on a deep, narrow network."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class CautiousAdamW(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            for p in params:
                if not self.state[p]:
                    self.state[p].update(m=torch.zeros_like(p), v=torch.zeros_like(p))
            group["steps"] = group.get("steps", 0) + 1
            self.update(group, params, [p.grad for p in params],
                        [self.state[p]["m"] for p in params], [self.state[p]["v"] for p in params])

    def update(self, group, params, grads, firsts, seconds):
        (b1, b2), lr, n = group["betas"], group["lr"], group["steps"]
        correction = (1 - b2 ** n) ** 0.5
        size = lr * correction / (1 - b1 ** n)
        for p, g, m, v in zip(params, grads, firsts, seconds):
            m.lerp_(g, 1 - b1)
            v.mul_(b2).addcmul_(g, g, value=1 - b2)
            mask = (m * g > 0).to(g.dtype)
            mask.div_(mask.mean().clamp_(min=1e-3))
            p.mul_(1 - lr * group["weight_decay"])
            p.addcdiv_(m * mask, v.sqrt().add_(group["eps"]), value=-size)


layers = [nn.Linear(32, 48)]
for _ in range(12):
    layers += [nn.LayerNorm(48), nn.GELU(), nn.Linear(48, 48)]
model = nn.Sequential(*layers, nn.Linear(48, 8)).to(device)
optimizer = CautiousAdamW(model.parameters(), lr=1e-3)
rng = torch.Generator(device=device).manual_seed(29)
count = 0


def step():
    global count
    x = torch.randn(32, 32, device=device, generator=rng)
    y = x[:, :8].argmax(dim=1)
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    count += 1
    if count % 50 == 0:
        print(count, loss.item())
