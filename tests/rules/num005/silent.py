import torch
from torch import nn

from tests.rules.programs import optimized, trained_with


def _x():
    return torch.randn(8, 64)


def bfloat16_weights_and_a_rate_that_moves_them():
    model, optimizer = optimized(nn.Linear(64, 64).bfloat16(), torch.optim.AdamW, lr=1e-2)
    return trained_with(optimizer, lambda: model(_x().bfloat16()).float().square().mean())


def float32_weights_and_a_tiny_rate():
    model, optimizer = optimized(nn.Linear(64, 64), torch.optim.AdamW, lr=1e-7)
    return trained_with(optimizer, lambda: model(_x()).square().mean())


def autocast_over_float32_weights():
    model, optimizer = optimized(nn.Linear(64, 64), torch.optim.AdamW, lr=1e-6)

    def loss():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = model(_x())
        return out.float().square().mean()

    return trained_with(optimizer, loss)


def rate_of_zero_at_the_start():
    model, optimizer = optimized(nn.Linear(64, 64).bfloat16(), torch.optim.AdamW, lr=0.0)
    return trained_with(optimizer, lambda: model(_x().bfloat16()).float().square().mean())


def copy_in_float32_that_is_stepped():
    model = nn.Linear(64, 64).bfloat16()
    master = [p.detach().float().requires_grad_() for p in model.parameters()]
    optimizer = torch.optim.AdamW(master, lr=1e-6)

    def step():
        model.zero_grad()
        model(_x().bfloat16()).float().square().mean().backward()
        for wide, narrow in zip(master, model.parameters(), strict=True):
            wide.grad = narrow.grad.float()
        optimizer.step()
        for wide, narrow in zip(master, model.parameters(), strict=True):
            narrow.data.copy_(wide)

    return step


class _Rounding(torch.optim.Optimizer):
    """Rounds at random: an update that is lost now is made up for later."""

    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 1e-6})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                wide = parameter.float() - group["lr"] * parameter.grad.float()
                bits = wide.view(torch.int32) + torch.randint(0, 1 << 16, wide.shape, dtype=torch.int32)
                parameter.copy_((bits & -65536).view(torch.float32))


def an_optimizer_that_rounds_at_random():
    model = nn.Linear(64, 64).bfloat16()
    return trained_with(_Rounding(model.parameters()), lambda: model(_x().bfloat16()).float().square().mean())


def frozen_weights_in_bfloat16():
    body, head = nn.Linear(64, 64).bfloat16().requires_grad_(False), nn.Linear(64, 1)
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=1e-3)
    return trained_with(optimizer, lambda: head(body(_x().bfloat16()).float()).square().mean())


def averages_that_move():
    model = torch.nn.Linear(64, 64)
    averages = [
        torch.optim.swa_utils.AveragedModel(torch.nn.Linear(64, 64).to(dtype))
        for dtype in (torch.float32, torch.bfloat16)
    ]
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        averages[0].update_parameters(model)
        with torch.no_grad():
            for old, new in zip(averages[1].module.parameters(), model.parameters(), strict=True):
                old.lerp_(new.to(old.dtype), 0.3)

    return step
