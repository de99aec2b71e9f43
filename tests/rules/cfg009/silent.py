import torch
from torch import nn

from tests.rules.programs import numbered, optimized, trained_once, trained_then

X = torch.ones(4, 8)


def _evaluated(model):
    model.eval()
    with torch.no_grad():
        return model(X)


def _dropping():
    return nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 1))


def _normed():
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 1))


def _validated(model):
    def after(number):
        if number % 4 == 0:
            _evaluated(model)
            model.train()

    return trained_then(model, X, after)


def train_mode_comes_back_after_each_validation():
    return _validated(_dropping())


def train_mode_comes_back_before_the_next_step():
    model, optimizer = optimized(_dropping())

    def step(number):
        model.train()
        trained_once(model, optimizer, X)
        if number % 4 == 0:
            _evaluated(model)

    return numbered(step)


def fine_tuned_in_eval_mode_from_the_start():
    model = _normed().eval()
    return trained_then(model, X, lambda number: _evaluated(model) if number % 4 == 0 else None)


def batch_norm_frozen_later_on():
    model = _normed()

    def after(number):
        if number == 5:
            for module in model.modules():
                if isinstance(module, nn.BatchNorm1d):
                    module.eval()
            with torch.no_grad():
                model(X)

    return trained_then(model, X, after)


def train_method_that_keeps_batch_norm_frozen():
    class Frozen(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            self[1].eval()
            return self

    return _validated(Frozen(*_normed()))


def dropout_turned_off_for_the_last_epochs():
    model = _dropping()
    return trained_then(model, X, lambda number: model.eval() if number == 6 else None)


def body_put_into_eval_mode_after_each_train():
    body = _normed()
    model, optimizer = optimized(nn.Sequential(body, nn.Linear(1, 1)))

    def step(number):
        model.train()
        if number > 5:
            body.eval()
        trained_once(model, optimizer, X)

    return numbered(step)


def nothing_in_it_acts_otherwise():
    norm = nn.BatchNorm1d(8, track_running_stats=False)
    model = nn.Sequential(nn.Linear(8, 8), norm, nn.Dropout(0.0), nn.LayerNorm(8))
    return trained_then(model, X, lambda number: _evaluated(model) if number == 4 else None)


def another_model_is_trained_after_it():
    teacher, student = _dropping(), nn.Linear(8, 1)
    first, then = (torch.optim.SGD(each.parameters(), lr=1e-3) for each in (teacher, student))

    def step(number):
        if number <= 4:
            return trained_once(teacher, first, X)
        wanted = _evaluated(teacher)
        then.zero_grad()
        (student(X) - wanted).square().mean().backward()
        then.step()

    return numbered(step)


def average_of_weights_in_eval_mode():
    model = _dropping()
    average = torch.optim.swa_utils.AveragedModel(model)

    def after(number):
        average.update_parameters(model)
        if number == 4:
            _evaluated(average)

    return trained_then(model, X, after)


def policy_in_eval_mode_for_each_rollout():
    policy, optimizer = optimized(_dropping())

    def step():
        _evaluated(policy)
        trained_once(policy, optimizer, X)

    return step


def returns_early_and_the_step_asks_for_train_mode():
    model, optimizer = optimized(_dropping())
    best = [0.0]

    def validate(score):
        _evaluated(model)
        if score < best[0]:
            return
        best[0] = score
        model.train()

    def step(number):
        model.train()
        trained_once(model, optimizer, X)
        if number % 4 == 0:
            validate(number)

    return numbered(step)


def _returning(check):
    """``check`` gets the model, and a number that grows at each fourth step."""
    model = _dropping()
    return trained_then(model, X, lambda number: number % 4 or check(model, number))


def returns_early_out_of_a_block_that_brings_train_mode_back():
    def check(model, number):
        model.eval()
        try:
            with torch.no_grad():
                model(X)
            if number > 1000:
                return
        finally:
            model.train()

    return _returning(check)
