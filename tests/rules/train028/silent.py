import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import endless


def _trained(chunks, begin=lambda last, batch: last, shuffle=True):
    gru, state, number = nn.GRU(4, 6, batch_first=True), [None], [0]
    optimizer = torch.optim.SGD(gru.parameters(), lr=0.01)
    rows = TensorDataset(torch.randn(64, 6, 4))
    batches = endless(DataLoader(rows, batch_size=8, shuffle=shuffle))
    waiting = []

    def step():
        if not waiting:
            waiting.extend(next(batches)[0].chunk(chunks, 1))
            state[0] = begin(state[0], number[0])
            number[0] += 1
        out, last = gru(waiting.pop(0), state[0])
        optimizer.zero_grad()
        out.square().mean().backward()
        optimizer.step()
        state[0] = last.detach()

    return step


def carried_inside_of_one_batch():
    return _trained(3, lambda last, batch: None)


def carried_in_the_order_of_the_data():
    return _trained(1, shuffle=False)


def begun_with_zeros_of_its_own():
    return _trained(1, lambda last, batch: torch.zeros(1, 8, 6))


def carried_over_a_few_batches_only():
    return _trained(1, lambda last, batch: last if batch % 6 == 5 else None)


def learned_first_state():
    first, gru = nn.Parameter(torch.ones(1, 1, 6)), nn.GRU(4, 6, batch_first=True)
    optimizer = torch.optim.SGD([first, *gru.parameters()], lr=0.01)
    rows = TensorDataset(torch.randn(64, 6, 4))
    batches = endless(DataLoader(rows, batch_size=8, shuffle=True))

    def step():
        optimizer.zero_grad()
        gru(next(batches)[0], first.expand(1, 8, 6).contiguous())[0].square().mean().backward()
        optimizer.step()

    return step
