import torch
from torch import nn
from torch.nn import functional as F

from tests.rules.programs import fed_by


def _images(rows=32):
    return torch.randint(0, 256, (rows, 1, 12, 12)).float(), torch.randint(0, 4, (rows,))


def images_and_dropout():
    """The step cannot be computed again: the range alone is a note."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(144, 32), nn.Linear(32, 4)

        def forward(self, x):
            x = self.body(x.flatten(1))  # TRAIN007
            return self.head(F.dropout(torch.tanh(x), 0.5))

    return fed_by(Net(), _images)


def recurrent_over_raw_series():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.LSTM(3, 16, batch_first=True), nn.Linear(16, 4)

        def forward(self, x):
            out, _ = self.body(x)  # TRAIN007
            return self.head(out[:, -1])

    return fed_by(Net(), lambda: (1e3 * torch.rand(16, 6, 3), torch.randint(0, 4, (16,))))


def units_that_died():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(8, 32), nn.Linear(32, 4)
            with torch.no_grad():
                self.body.bias[:28] = -50.0

        def forward(self, x):
            x = self.body(x)
            return self.head(F.relu(x))  # TRAIN007

    return fed_by(Net(), lambda: (torch.randn(32, 8), torch.randint(0, 4, (32,))))


def channels_clamped_at_zero():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Conv2d(1, 16, 3), nn.Linear(16, 4)
            with torch.no_grad():
                self.body.bias -= 50.0

        def forward(self, x):
            x = self.body(x).clamp(min=0)  # TRAIN007
            return self.head(x.mean((2, 3)))

    return fed_by(Net(), lambda: (torch.randn(8, 1, 9, 9), torch.randint(0, 4, (8,))))


def gates_that_never_shut():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.gate, self.head = nn.Linear(8, 32), nn.Linear(8, 32), nn.Linear(32, 4)

        def forward(self, x):
            gate = torch.sigmoid(10.0 + self.gate(x))  # TRAIN007
            return self.head(gate * self.body(x))

    return fed_by(Net(), lambda: (torch.randn(32, 8), torch.randint(0, 4, (32,))))


def the_only_output_died():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.out = nn.Linear(8, 16), nn.Linear(16, 1)
            with torch.no_grad():
                self.out.bias -= 50.0

        def forward(self, x):
            return F.relu(self.out(self.body(x).tanh()))  # TRAIN007

    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        x = torch.randn(64, 8)
        optimizer.zero_grad()
        F.l1_loss(model(x), x.sum(1, keepdim=True)).backward()
        optimizer.step()

    return step


def frames_of_bytes_before_an_activation_in_place():
    """What the layer gave is written over."""
    torch.manual_seed(0)
    layers = nn.Conv2d(4, 16, 8, stride=4), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(256, 3)
    model = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def step():
        frames = torch.full((8, 4, 20, 20), 60.0) + 10 * torch.rand(8, 4, 20, 20)
        optimizer.zero_grad()
        F.mse_loss(model(frames), torch.rand(8, 3)).backward()  # TRAIN007
        optimizer.step()

    return step
