import torch
from torch import nn

from tests.rules.programs import optimized


def float16_weights_stepped_by_sgd():
    model, optimizer = optimized(nn.Linear(64, 64).half(), lr=1e-6)  # NUM005

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 64).half()).float().square().mean().backward()
        optimizer.step()

    return step


def one_group_of_two_in_bfloat16():
    body, head = nn.Linear(64, 64).bfloat16(), nn.Linear(64, 1)  # NUM005
    groups = [{"params": body.parameters(), "lr": 1e-6}, {"params": head.parameters(), "lr": 1e-3}]
    optimizer = torch.optim.Adam(groups)

    def step():
        optimizer.zero_grad()
        head(body(torch.randn(8, 64).bfloat16()).float()).square().mean().backward()
        optimizer.step()

    return step


def two_parts_cast_on_lines_of_their_own():
    body = nn.Linear(64, 64).bfloat16()
    head = nn.Linear(64, 1).to(torch.bfloat16)
    model, optimizer = optimized(nn.Sequential(body, head), lr=1e-6)
    model.to("cpu")

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 64).bfloat16()).float().square().mean().backward()
        optimizer.step()  # NUM005

    return step


def an_average_of_the_weights():
    model, average = torch.nn.Linear(64, 64), torch.nn.Linear(64, 64).bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for old, new in zip(average.parameters(), model.parameters(), strict=True):
                old.mul_(0.9999).add_(new, alpha=1e-4)  # NUM005

    return step
