"""NUM013 must be reported once for each of these (a checkpoint has no line)."""

import torch
from torch import nn


def _saved(change, **more):
    model = nn.Linear(8, 4)
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        model(torch.ones(2, 8)).sum().backward()
        optimizer.step()
        with torch.no_grad():
            change(model, optimizer)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "last.pt", **more)

    return step


def one_weight_is_nan():
    return _saved(lambda model, _: model.weight[1, 2].fill_(float("nan")))


def moment_is_infinite_in_the_old_format():
    return _saved(
        lambda model, optimizer: optimizer.state[model.weight]["exp_avg_sq"].fill_(float("inf")), _use_new_zipfile_serialization=False
    )


def weights_in_bfloat16_overflowed():
    weights = {"a.weight": torch.full((3, 3), 3e38).bfloat16() * 10}
    return lambda: torch.save(weights, "last.pt")


def minus_infinity_among_weights():
    return _saved(lambda model, _: model.weight[0].fill_(-float("inf")))


def shadow_weights_of_an_average():
    return lambda: torch.save({"model": nn.Linear(4, 1).state_dict(), "ema": [torch.ones(3, 3), torch.full((3,), float("nan"))]}, "last.pt")
