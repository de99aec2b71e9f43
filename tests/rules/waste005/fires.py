import torch
import torch.nn.functional as F
from torch import nn

from tests.rules.programs import trained_with


def encoder_once_for_each_head():
    encoder = nn.Sequential(nn.Linear(32, 256), nn.GELU(), nn.Linear(256, 64))
    heads = nn.ModuleList([nn.Linear(64, 10), nn.Linear(64, 2)])

    def loss():
        x, y = torch.randn(64, 32), torch.randint(0, 2, (64,))
        first = F.cross_entropy(heads[0](encoder(x)), y)
        second = F.cross_entropy(heads[1](encoder(x)), y)  # WASTE005
        return first + second

    return trained_with(torch.optim.AdamW([*encoder.parameters(), *heads.parameters()]), loss)


def one_result_of_each_of_two_calls():
    body, gate, head = nn.Linear(64, 256), nn.Linear(256, 8), nn.Linear(256, 16)

    def both(x):
        h = body(x).relu()
        return head(h), gate(h).softmax(1).square().sum()

    def loss():
        x = torch.randn(128, 64)
        out, _ = both(x)  # WASTE002
        _, balance = both(x)  # WASTE005
        return out.square().mean() + balance

    return trained_with(torch.optim.SGD([*body.parameters(), *gate.parameters(), *head.parameters()], lr=0.1), loss)


def the_part_before_the_dropout():
    body, head = nn.Linear(64, 256), nn.Linear(256, 256)

    def noisy(x):
        h = body(x).relu()
        return head(F.dropout(h, 0.1))

    def loss():
        x = torch.randn(128, 64)
        one = noisy(x)
        other = noisy(x)  # WASTE005
        return (one - other).square().mean()

    return trained_with(torch.optim.SGD([*body.parameters(), *head.parameters()], lr=0.1), loss)
