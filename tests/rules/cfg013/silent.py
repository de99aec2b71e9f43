import copy

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from tests.rules.programs import trained_once


def _model():
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2))


def _followed(after, prepared=lambda copied: copied.eval(), model=None):
    model = model or _model()
    follower = prepared(copy.deepcopy(model).requires_grad_(False))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        x = torch.randn(16, 4) + 1
        trained_once(model, optimizer, x)
        with torch.no_grad():
            after(follower, model)
            follower(x)

    return step


def _parameters(follower, model):
    for old, new in zip(follower.parameters(), model.parameters(), strict=True):
        old.lerp_(new, 0.1)


def buffers_are_copied():
    def after(follower, model):
        _parameters(follower, model)
        for old, new in zip(follower.buffers(), model.buffers(), strict=True):
            old.copy_(new)

    return _followed(after)


def the_whole_state_is_averaged():
    def after(follower, model):
        new = model.state_dict()
        for name, old in follower.state_dict().items():
            old.copy_(0.9 * old + 0.1 * new[name])

    return _followed(after)


def in_train_mode_with_statistics_of_its_own():
    return _followed(_parameters, lambda copied: copied.train())


def a_copy_that_stays():
    return _followed(lambda follower, model: None)


def statistics_of_the_model_are_frozen():
    model = _model()
    model[1].eval()
    return _followed(_parameters, model=model)


def averaged_model_of_torch_which_copies_buffers():
    model = _model()
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        x = torch.randn(16, 4) + 1
        trained_once(model, optimizer, x)
        average.update_parameters(model)
        with torch.no_grad():
            average.eval()(x)

    return step


def never_used_in_eval_mode():
    model = _model()
    average = copy.deepcopy(model).eval()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step():
        trained_once(model, optimizer, torch.randn(16, 4) + 1)
        with torch.no_grad():
            _parameters(average, model)

    return step
