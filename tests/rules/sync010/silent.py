import torch
from torch import nn


def like_a_device_tensor__rehearsal():
    model, x = nn.Linear(8, 1, device="cuda"), torch.ones(64, 8, device="cuda")
    return lambda: model(torch.randn_like(x).to(x.device)).mean().backward()


def made_and_used_on_the_host__rehearsal():
    model, x = nn.Linear(8, 1, device="cuda"), torch.ones(64, 8, device="cuda")

    def step():
        order = torch.randperm(8).to("cpu")
        model(x[:, order.tolist()[0] :].repeat(1, 8)[:, :8]).mean().backward()

    return step


def values_of_the_host_behind_a_function_of_one__rehearsal():
    model, rows = nn.Linear(8, 1, device="cuda"), torch.arange(512.0).reshape(64, 8)

    def latest():
        return rows + 1

    return lambda: model(torch.sqrt(latest()).pin_memory().to("cuda", non_blocking=True)).mean().backward()
