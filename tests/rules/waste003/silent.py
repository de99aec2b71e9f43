import torch
import torch.nn.functional as F
from torch import nn


def all_of_the_batch_is_read__rehearsal():
    device = "cuda"
    model = nn.Sequential(nn.Embedding(50, 32), nn.Linear(32, 50)).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        batch = {"ids": torch.randint(0, 50, (16, 64)), "mask": torch.ones(16, 64)}
        batch = {k: v.to(device) for k, v in batch.items()}
        opt.zero_grad()
        loss = F.cross_entropy(model(batch["ids"]).transpose(1, 2), batch["ids"], reduction="none")
        (loss * batch["mask"]).sum().backward()
        opt.step()

    return step


def used_in_the_next_step__rehearsal():
    device = "cuda"
    model = nn.Linear(32, 8).to(device)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    ahead = [None]

    def step():
        x, ahead[0] = ahead[0], torch.randn(64, 32).to(device)
        if x is None:
            x = ahead[0]
        opt.zero_grad()
        model(x).square().mean().backward()
        opt.step()

    return step


def kept_on_the_device__rehearsal():
    model = nn.Linear(32, 8).to("cuda")
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    replay = []

    def step():
        x, extra = torch.randn(64, 32).to("cuda"), torch.randn(64, 32)
        replay.append(extra.to("cuda"))
        opt.zero_grad()
        model(x).square().mean().backward()
        opt.step()

    return step


def read_on_each_hundredth_step__rehearsal():
    model = nn.Linear(32, 8).to("cuda")
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = enumerate(iter(lambda: torch.randn(64, 32), None))

    def step():
        number, x = next(batches)
        x, extra = x.to("cuda"), torch.randn(64, 32).to("cuda")
        opt.zero_grad()
        model(x).square().mean().backward()
        opt.step()
        if number % 100 == 99:
            print(torch.cat([x, extra]).mean())

    return step


def read_in_the_last_steps_only__rehearsal():
    model = nn.Linear(32, 8).to("cuda")
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    done = [0]

    def step():
        x = torch.randn(64, 32).to("cuda")
        extra = torch.randn(64, 32).to("cuda")
        opt.zero_grad()
        model(x).square().mean().backward()
        opt.step()
        done[0] += 1
        if done[0] > 1000:
            model(extra)

    return step
