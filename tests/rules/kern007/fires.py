import torch
from torch import nn

from tests.rules.programs import optimized, stepped


def network_called_for_each_row():
    net, optimizer = optimized(nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)))

    def value(x):
        return net(x).squeeze(-1) + x.abs().sum(-1)

    def step():
        states, loss = torch.randn(12, 4), 0
        for i in range(states.size(0)):
            x = states[i : i + 1]
            loss = loss + value(x).square().sum()  # KERN007
        stepped(optimizer, loss)

    return step


def lstm_cell_over_unbound_words():
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.cell = nn.Embedding(50, 6), nn.LSTMCell(6, 8)

        def forward(self, words):
            state = None
            for word in self.embed(words).unbind(1):
                state = self.cell(word, state)  # KERN007
            return state[0]

    model, count = Reader(), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        count[0] += 1
        stepped(optimizer, model(torch.randint(50, (3, 9 + count[0] % 3))).square().mean())

    return step
