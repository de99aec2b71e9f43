import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import endless


def _loader():
    return DataLoader(TensorDataset(torch.randn(64, 5, 4)), batch_size=8, shuffle=True)


def kept_by_the_loop():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm, self.head = nn.LSTM(4, 6, batch_first=True), nn.Linear(6, 4)

        def forward(self, x, state):
            out, state = self.lstm(x, state)
            return self.head(out), state

    model, batches, state = Net(), endless(_loader()), None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        nonlocal state
        (x,) = next(batches)
        if state is not None:
            state = tuple(each.detach() for each in state)
        out, state = model(x, state)  # TRAIN028
        optimizer.zero_grad()
        (out[:, :-1] - x[:, 1:]).square().mean().backward()
        optimizer.step()

    return step


def kept_by_the_model():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru, self.hidden = nn.GRU(4, 6, batch_first=True), None

        def forward(self, x):
            out, last = self.gru(x, self.hidden)
            self.hidden = last.detach()  # TRAIN028
            return out

    model, batches = Net(), endless(_loader())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        model(next(batches)[0]).square().mean().backward()
        optimizer.step()

    return step
