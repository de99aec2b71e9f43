import torch

from tests.rules.programs import Scales

STEPS = 6  # each is dear, and all are alike


def gradients_cleared_behind_the_forward__rehearsal():
    model, x = Scales().cuda(), torch.ones(1, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)

    def step():
        loss = model(x, depth=2)
        optimizer.zero_grad()  # MEM014
        loss.backward()
        optimizer.step()

    return step


def gradients_filled_with_zeros__rehearsal():
    model, x = Scales().cuda(), torch.ones(1, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, foreach=False)

    def step():
        optimizer.zero_grad(set_to_none=False)  # MEM014
        model(x, depth=4).backward()
        optimizer.step()

    return step


def temporaries_of_foreach_at_the_peak__rehearsal():
    model, x = Scales().cuda(), torch.ones(1, device="cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        model(x, depth=0).backward()
        optimizer.step()  # MEM014

    return step
