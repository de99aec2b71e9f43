import torch
from torch import nn

from tests.rules.programs import optimized, trained_by, trained_with


def table_made_with_rand_in_a_module():
    class Recommender(nn.Module):
        def __init__(self):
            super().__init__()
            self.users = torch.rand(16, 4, requires_grad=True)  # GRAPH006
            self.head = nn.Linear(4, 1)

        def forward(self, rows):
            return self.head(self.users[rows])

    model = Recommender()

    def loss():
        return model(torch.arange(8)).square().mean()

    return trained_with(torch.optim.Adam(model.parameters(), lr=1e-3), loss)


def body_neither_frozen_nor_trained():
    body, head = nn.Linear(8, 8), nn.Linear(8, 1)
    optimizer = torch.optim.SGD(head.parameters(), lr=1e-3)

    def step():
        optimizer.zero_grad()
        head(body(torch.ones(4, 8))).square().mean().backward()  # GRAPH006
        optimizer.step()

    return step


def adapter_made_after_the_optimizer_that_steps():
    head = nn.Linear(8, 1)
    tuner = torch.optim.SGD(head.parameters(), lr=1e-3)  # GRAPH006
    adapter = nn.Linear(8, 8)

    def step():
        tuner.zero_grad()
        head(adapter(torch.ones(4, 8))).square().mean().backward()
        tuner.step()

    return step


def temperature_trained_but_in_no_module():
    model = nn.Linear(8, 1)
    log_scale = torch.zeros(1, requires_grad=True)  # GRAPH006

    def loss():
        return (log_scale.exp() * model(torch.ones(4, 8))).square().mean()

    return trained_with(torch.optim.SGD([*model.parameters(), log_scale], lr=1e-3), loss)


def layers_in_a_plain_list():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Linear(8, 8)
            self.blocks = [nn.Linear(8, 8) for _ in range(3)]  # GRAPH006
            self.by_name = {}

        def forward(self, x):
            x = self.stem(x)
            for block in self.blocks:
                x = x + block(x)
            return x

    model = Net()
    return trained_by(model, lambda: model(torch.ones(4, 8)).square().mean())


def head_replaced_behind_the_optimizer():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.last_layer = nn.Linear(8, 8), nn.Linear(8, 4)

        def forward(self, x):
            return self.last_layer(self.body(x))

    model, optimizer = optimized(Model())
    model.last_layer = nn.Linear(8, 2)  # GRAPH006

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()  # GRAPH005

    return step
