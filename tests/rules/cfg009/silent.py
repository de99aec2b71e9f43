import torch
from torch import nn

from tests.rules.programs import trained_once


def _evaluated(model, x):
    model.eval()
    with torch.no_grad():
        return model(x)


def _dropping():
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 1))


def _normed():
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 1))


def train_mode_comes_back_after_each_validation():
    model, count = _dropping(), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        trained_once(model, optimizer, torch.ones(4, 8))
        count[0] += 1
        if count[0] % 4 == 0:
            _evaluated(model, torch.ones(4, 8))
            model.train()

    return step


def train_mode_comes_back_before_the_next_step():
    model, count = _dropping(), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        model.train()
        trained_once(model, optimizer, torch.ones(4, 8))
        count[0] += 1
        if count[0] % 4 == 0:
            _evaluated(model, torch.ones(4, 8))

    return step


def fine_tuned_in_eval_mode_from_the_start():
    model, count = _normed(), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model.eval()

    def step():
        trained_once(model, optimizer, torch.ones(4, 8))
        count[0] += 1
        if count[0] % 4 == 0:
            _evaluated(model, torch.ones(4, 8))

    return step


def batch_norm_frozen_later_on():
    model, count = _normed(), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        trained_once(model, optimizer, torch.ones(4, 8))
        count[0] += 1
        if count[0] == 5:
            for module in model.modules():
                if isinstance(module, nn.BatchNorm1d):
                    module.eval()
            with torch.no_grad():
                model(torch.ones(4, 8))

    return step


def train_method_that_keeps_batch_norm_frozen():
    class Frozen(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            self[1].eval()
            return self

    model, count = Frozen(*_normed()), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        trained_once(model, optimizer, torch.ones(4, 8))
        count[0] += 1
        if count[0] % 4 == 0:
            _evaluated(model, torch.ones(4, 8))
            model.train()

    return step


def dropout_turned_off_for_the_last_epochs():
    model, count = _dropping(), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def anneal():
        model.eval()

    def step():
        trained_once(model, optimizer, torch.ones(4, 8))
        count[0] += 1
        if count[0] == 6:
            anneal()

    return step


def body_put_into_eval_mode_after_each_train():
    body, head, count = _normed(), nn.Linear(1, 1), [0]
    model = nn.Sequential(body, head)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        model.train()
        if count[0] > 4:
            body.eval()
        trained_once(model, optimizer, torch.ones(4, 8))
        count[0] += 1

    return step


def nothing_in_it_acts_otherwise():
    norm = nn.BatchNorm1d(8, track_running_stats=False)
    model, count = nn.Sequential(nn.Linear(8, 8), norm, nn.Dropout(0.0), nn.LayerNorm(8)), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step():
        trained_once(model, optimizer, torch.ones(4, 8))
        count[0] += 1
        if count[0] == 4:
            _evaluated(model, torch.ones(4, 8))

    return step


def another_model_is_trained_after_it():
    teacher, student, count = _dropping(), nn.Linear(8, 1), [0]
    first = torch.optim.SGD(teacher.parameters(), lr=1e-3)
    then = torch.optim.SGD(student.parameters(), lr=1e-3)

    def step():
        count[0] += 1
        if count[0] <= 4:
            trained_once(teacher, first, torch.ones(4, 8))
            return
        wanted = _evaluated(teacher, torch.ones(4, 8))
        then.zero_grad()
        (student(torch.ones(4, 8)) - wanted).square().mean().backward()
        then.step()

    return step


def average_of_weights_in_eval_mode():
    model, count = _dropping(), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    average = torch.optim.swa_utils.AveragedModel(model)

    def step():
        trained_once(model, optimizer, torch.ones(4, 8))
        average.update_parameters(model)
        count[0] += 1
        if count[0] == 4:
            _evaluated(average, torch.ones(4, 8))

    return step


def policy_in_eval_mode_for_each_rollout():
    policy = _dropping()
    optimizer = torch.optim.SGD(policy.parameters(), lr=1e-3)

    def step():
        _evaluated(policy, torch.ones(4, 8))
        trained_once(policy, optimizer, torch.ones(4, 8))

    return step
