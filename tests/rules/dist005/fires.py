import torch

from tests.rules.programs import optimized, ranked


def accumulation_without_no_sync():
    model, optimizer = optimized(ranked(8, 16, 4), torch.optim.AdamW)

    def step():
        optimizer.zero_grad()
        for _ in range(4):
            loss = model(torch.randn(8, 8)).square().mean() / 4
            loss.backward()  # DIST005
        optimizer.step()

    return step


def no_sync_that_leaves_the_forward_out():
    model, optimizer = optimized(ranked(8, 4))

    def step():
        for _ in range(3):
            loss = model(torch.randn(8, 8)).square().mean() / 3
            with model.no_sync():  # too late: the forward prepared the average
                loss.backward()  # DIST005
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    return step


def a_loss_of_real_and_one_of_fake_samples():
    judge, optimizer = optimized(ranked(8, 16, 1), torch.optim.Adam, lr=1e-4)

    def step():
        judge.zero_grad()
        judge(torch.randn(8, 8)).square().mean().backward()
        fake = judge(torch.randn(8, 8).detach())
        (1 - fake).square().mean().backward()  # DIST005
        optimizer.step()

    return step
