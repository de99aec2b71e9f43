import torch
from torch import nn

from tests.rules.programs import trained_on_noise


def _model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 100))


class _Adapter(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down, self.up = nn.Linear(base.in_features, 2), nn.Linear(2, base.out_features)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def adapters_alone_are_trained():
    model = _model()
    model[2] = nn.Linear(32, 3)
    model[0] = _Adapter(model[0])
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "down" in name or "up" in name  # GRAPH011
    return trained_on_noise(model, [each for each in model.parameters() if each.requires_grad])


def frozen_before_and_behind_the_new_layer():
    model = _model()
    model.requires_grad_(False)
    model[2] = nn.Linear(32, 3)  # GRAPH011
    for each in (*model[0].parameters(), *model[2].parameters()):
        each.requires_grad_(False)
    model[0].bias = nn.Parameter(torch.zeros(32))
    return trained_on_noise(model, [model[0].bias])


def missing_in_what_is_loaded():
    model, kept = _model(), _model()[0].state_dict()
    model.load_state_dict({f"0.{name}": each for name, each in kept.items()}, strict=False)
    model[2].requires_grad_(False)  # GRAPH011
    return trained_on_noise(model, model[0].parameters())


class _LowRank(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base
        self.low = nn.Parameter(torch.randn(base.in_features, 2))
        self.high = nn.Parameter(torch.zeros(base.out_features, 2))

    def forward(self, x):
        return self.base(x) + (x @ self.low) @ self.high.T


def _of_low_rank():
    model = _model()
    model[2] = nn.Linear(32, 3)
    model[0] = _LowRank(model[0])
    return model


def factors_that_a_filter_does_not_name():
    model = _of_low_rank()
    for name, each in model[0].named_parameters():
        each.requires_grad = "adapter" in name

    def forward(x):
        base, low, high = model[0].base, model[0].low, model[0].high
        return model[2](base(x) + (x @ low) @ high.T)  # GRAPH011

    return trained_on_noise(forward, model[2].parameters())
