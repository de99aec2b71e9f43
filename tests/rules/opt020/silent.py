import torch
from torch import nn

from tests.rules.opt020.fires import _ids, _rows, _trained


def _masked(table, mask=None):
    mask = _rows() if mask is None else mask
    table.weight.register_hook(lambda gradient: gradient * mask)
    return table


def _adam(table, **more):
    return torch.optim.AdamW(table.parameters(), lr=1e-2, **more)


def masked_without_decay():
    table = _masked(nn.Embedding(12, 4))
    return _trained(table, _adam(table, weight_decay=0.0), _ids)


def rows_of_the_batch_alone():
    table = nn.Embedding(12, 4)
    return _trained(table, _adam(table), lambda: torch.randint(8, 12, (16,)))


def rows_that_are_put_back():
    table = _masked(nn.Embedding(12, 4))
    kept, train = table.weight.detach()[:8].clone(), _trained(table, _adam(table), _ids)

    def step():
        train()
        with torch.no_grad():
            table.weight[:8] = kept

    return step


def gradients_that_are_dropped_at_random():
    table = nn.Embedding(12, 4)
    table.weight.register_hook(lambda gradient: gradient * (torch.rand(12, 1) < 0.5))
    return _trained(table, _adam(table), _ids)


def pruned_rows():
    table = _masked(nn.Embedding(12, 4))
    with torch.no_grad():
        table.weight.mul_(_rows())
    return _trained(table, _adam(table), _ids)


def a_hook_that_scales():
    table = _masked(nn.Embedding(12, 4), torch.tensor(0.5))
    return _trained(table, _adam(table), _ids)


def rows_that_are_masked_from_now_on():
    table, steps = nn.Embedding(12, 4), []
    table.weight.register_hook(lambda gradient: gradient * (_rows() if len(steps) > 9 else 1.0))
    train = _trained(table, _adam(table), _ids)

    def step():
        steps.append(1)
        train()

    return step
