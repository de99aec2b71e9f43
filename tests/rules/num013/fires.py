import torch
from torch import nn

from tests.rules.programs import optimized, trained_by, trained_with


def _saved(change, **more):
    model, optimizer = optimized(nn.Linear(8, 4), torch.optim.AdamW)

    def step():
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        with torch.no_grad():
            change(model, optimizer)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt", **more)

    return step


def moment_is_infinite_in_the_old_format():
    return _saved(
        lambda model, optimizer: optimizer.state[model.weight]["exp_avg_sq"].fill_(float("inf")), _use_new_zipfile_serialization=False
    )


def weights_in_bfloat16_overflowed():
    weights = {"a.weight": torch.full((3, 3), 3e38).bfloat16() * 10}
    return lambda: torch.save(weights, "last.pt")


def shadow_weights_of_an_average():
    return lambda: torch.save({"model": nn.Linear(4, 1).state_dict(), "ema": [torch.ones(3, 3), torch.full((3,), float("nan"))]}, "last.pt")


def run_that_starts_from_a_poisoned_weight():
    model = nn.Linear(4, 2)
    with torch.no_grad():
        model.weight[0, 1] = float("nan")

    def loss():
        return model(torch.ones(2, 4)).square().mean()  # NUM013

    return trained_with(torch.optim.SGD(model.parameters(), lr=0.1), loss)


def weights_loaded_with_a_nan():
    model, state = nn.Linear(4, 2), nn.Linear(4, 2).state_dict()
    state["weight"][0, 1] = float("nan")
    model.load_state_dict(state)  # NUM013
    return trained_with(torch.optim.SGD(model.parameters(), lr=0.1), lambda: model(torch.ones(2, 4)).sum())


def moments_loaded_with_an_infinity():
    model, optimizer = optimized(nn.Linear(4, 2), lr=0.1, momentum=0.9)
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    state["state"][0]["momentum_buffer"] = torch.full((2, 4), float("inf"))
    optimizer.load_state_dict(state)  # NUM013
    return trained_with(optimizer, lambda: model(torch.ones(2, 4)).sum())


def variance_that_overflows_while_the_loss_stays_finite():
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    count = [0]

    def loss():
        count[0] += 1
        x = torch.rand(8, 4)
        if count[0] % 4 == 0:
            x[3] = 1e30
        return model(x).square().mean()  # NUM013

    return trained_by(model, loss)
