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


class _Adapted(nn.Module):
    """A residual branch of two layers, with ``start`` applied to the weights of both."""

    def __init__(self, branch, start=lambda weight: nn.init.constant_(weight, 0.0)):
        super().__init__()
        self.body, self.head, self.branch = nn.Linear(8, 16), nn.Linear(16, 4), branch
        self.down, self.up = nn.Linear(16, 8, bias=False), nn.Linear(8, 16)
        for each in (self.down, self.up):
            start(each.weight)

    def forward(self, x):
        x = torch.tanh(self.body(x))
        return self.head(x + self.branch(x, self.down, self.up))


def _rows():
    return torch.randn(32, 8), torch.randint(0, 4, (32,))


def both_layers_of_a_branch_start_at_zero():
    def branch(x, down, up):
        return up(F.gelu(down(x)))  # TRAIN007

    return fed_by(_Adapted(branch), _rows)


def both_layers_of_a_branch_with_relu_start_at_zero():
    def branch(x, down, up):
        x = F.relu(down(x))
        return up(x)  # TRAIN007

    return fed_by(_Adapted(branch), _rows)


def a_gate_of_zero_on_a_branch_of_zero():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.branch, self.head = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)
            self.gate = nn.Parameter(torch.zeros(()))
            nn.init.constant_(self.branch.weight, 0.0)
            nn.init.constant_(self.branch.bias, 0.0)

        def forward(self, x):
            x = torch.tanh(self.body(x))
            x = x + self.gate * self.branch(x)  # TRAIN007
            return self.head(x)

    return fed_by(Net(), _rows)


def both_factors_of_a_change_of_weights():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = nn.Linear(8, 16), nn.Linear(16, 4)
            self.one, self.two = (nn.Parameter(torch.zeros(size)) for size in ((16, 2), (2, 8)))
            self.body.requires_grad_(False)

        def forward(self, x):
            change = self.one @ self.two  # TRAIN007
            return self.head(torch.tanh(F.linear(x, self.body.weight + change)))

    return fed_by(Net(), _rows)
