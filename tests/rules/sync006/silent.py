"""Near misses: SYNC006 must stay silent on all of these."""

import torch
from torch import nn


def already_on_the_device__rehearsal():
    model, x = nn.Linear(8, 1, device="cuda"), torch.ones(4, 8, device="cuda")

    def step():
        model(x.to("cuda")).mean().backward()

    return step


def only_the_dtype_changes__rehearsal():
    model, x = nn.Linear(8, 1, device="cuda"), torch.ones(4, 8, device="cuda", dtype=torch.float64)

    def step():
        model(x.to(torch.float32)).mean().backward()

    return step


def pinned_and_asynchronous__rehearsal():
    model, rows = nn.Linear(8, 1, device="cuda"), torch.randn(64, 8).pin_memory()

    def step():
        model(rows.to("cuda", non_blocking=True)).mean().backward()

    return step


def before_the_loop__rehearsal():
    model, rows = nn.Linear(8, 1, device="cuda"), torch.randn(64, 8).to("cuda")

    def step():
        model(rows).mean().backward()

    return step


def once_in_five_steps__rehearsal():
    model, rows, count = nn.Linear(8, 1, device="cuda"), [torch.randn(64, 8)], [0]

    def step():
        if count[0] % 5 == 0:
            rows.append(rows[0].to("cuda"))
        count[0] += 1
        model(rows[-1]).mean().backward()

    return step


def host_arithmetic_stays_on_the_host__rehearsal():
    model, x, scale = nn.Linear(8, 1, device="cuda"), torch.ones(4, 8, device="cuda"), torch.tensor(2.0)

    def step():
        factor = scale.mul(0.5).to("cpu").to(torch.float64)
        (model(x).mean() * factor).backward()

    return step


def a_training_run_on_the_cpu():
    model, rows = nn.Linear(8, 1), torch.randn(64, 8)

    def step():
        model(rows.to("cpu")).mean().backward()

    return step
