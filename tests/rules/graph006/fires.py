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
    model.last_layer = nn.Linear(8, 2)  # GRAPH006 # GRAPH005

    def step():
        optimizer.zero_grad()
        model(torch.ones(4, 8)).square().mean().backward()
        optimizer.step()

    return step


def parameter_that_is_cast_behind_its_making():
    class Oscillator(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(8, 1)
            begin = torch.full((1,), 0.5, dtype=torch.float64)
            self.stiffness = nn.Parameter(begin).to(torch.float32)  # GRAPH006

        def forward(self, x):
            return self.stiffness * self.body(x)

    model = Oscillator()
    return trained_by(model, lambda: model(torch.ones(4, 8)).square().mean())


class _Blocks(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 1))

    def forward(self, x):
        return self.layers(x).square().mean()


def norms_in_neither_list():
    model = _Blocks()
    weights = [each for each in model.parameters() if each.dim() > 1]
    shifts = [each for name, each in model.named_parameters() if "bias" in name]  # GRAPH006
    groups = [{"params": weights, "weight_decay": 0.1}, {"params": shifts}]
    grouped = torch.optim.SGD(groups, lr=1e-3)

    def step():
        grouped.zero_grad()
        model(torch.randn(4, 8)).backward()
        grouped.step()

    return step


def norms_that_a_loop_leaves_out():
    model, decayed, plain = _Blocks(), [], []
    for name, each in model.named_parameters():
        if each.dim() > 1:
            decayed.append(each)
        elif name.endswith(".bias"):  # GRAPH006
            plain.append(each)
    looped = torch.optim.SGD([{"params": decayed, "weight_decay": 0.1}], lr=1e-3)
    looped.add_param_group({"params": plain})

    def step():
        looped.zero_grad()
        model(torch.randn(4, 8)).backward()
        looped.step()

    return step


def list_that_another_function_filters():
    def matrices_of(model):
        return list(filter(lambda each: each.dim() > 1, model.parameters()))  # GRAPH006

    model = _Blocks()
    filtered = torch.optim.SGD(matrices_of(model), lr=1e-3)

    def step():
        filtered.zero_grad()
        model(torch.randn(4, 8)).backward()
        filtered.step()

    return step


def head_of_another_model_than_the_filtered_one():
    body, head = nn.Linear(8, 8), nn.Linear(8, 1)
    chosen = [each for each in body.parameters() if each.dim() > 0]
    bodied = torch.optim.SGD(chosen, lr=1e-3)  # GRAPH006

    def step():
        bodied.zero_grad()
        head(body(torch.randn(4, 8))).square().mean().backward()
        bodied.step()

    return step
