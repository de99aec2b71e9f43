"""GRAPH007 must report exactly the marked lines."""

import torch
from torch import nn


def state_not_detached_between_chunks():
    rnn, head = nn.GRU(8, 8, batch_first=True), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([*rnn.parameters(), *head.parameters()], lr=0.01)

    def chunk_loss(x, state):
        out, state = rnn(x, state)
        return head(out).square().mean(), state

    def step():
        state = torch.zeros(1, 4, 8)
        optimizer.zero_grad()
        for _ in range(4):
            loss, state = chunk_loss(torch.ones(4, 5, 8), state)
            (loss / 4).backward(retain_graph=True)  # GRAPH007
        optimizer.step()

    return step


def the_last_chunk_frees_the_graph():
    cell, head = nn.LSTMCell(8, 8), nn.Linear(8, 1)

    def step():
        state = (torch.zeros(4, 8), torch.zeros(4, 8))
        for c in range(3):
            for _ in range(4):
                state = cell(torch.ones(4, 8), state)
            loss = head(state[0]).square().mean()
            loss.backward(retain_graph=c < 2)  # GRAPH007

    return step


def carry_of_an_object():
    class Encoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix, self.head = nn.Linear(16, 8), nn.Linear(8, 1)
            self.carry = None

        def forward(self, x):
            self.carry = torch.tanh(self.mix(torch.cat((x, self.carry), dim=1)))
            return self.head(self.carry)

    encoder = Encoder()

    def step():
        encoder.carry = torch.zeros(4, 8)
        for _ in range(4):
            loss = encoder(torch.ones(4, 8)).square().mean()
            loss.backward(retain_graph=True)  # GRAPH007

    return step


def total_differentiated_as_it_grows():
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))

    def step():
        total = torch.zeros(())
        for _ in range(4):
            total = total + model(torch.ones(4, 8)).square().mean()
            total.backward(retain_graph=True)  # GRAPH007

    return step


def three_losses_one_after_the_other():
    body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

    def step():
        features = body(torch.ones(4, 8))
        a, b, c = features.mean(), features.std(), features.amax()
        a.backward(retain_graph=True)  # GRAPH007
        b.backward(retain_graph=True)
        c.backward()

    return step


def losses_in_a_loop_over_one_trunk():
    body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

    def step():
        features = body(torch.ones(4, 8))
        for loss in (features.mean(), features.std(), features.amax()):
            loss.backward(retain_graph=True)  # GRAPH007

    return step


def all_but_the_last_in_a_loop():
    body = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

    def step():
        features = body(torch.ones(4, 8))
        *others, last = features.mean(), features.std(), features.amax()
        for loss in others:
            loss.backward(retain_graph=True)  # GRAPH007
        last.backward()

    return step
