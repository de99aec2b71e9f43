import copy

import torch
from torch import nn

from tests.rules.programs import optimized


def _average_of(update, evaluated=lambda average: average.eval()):
    model, optimizer = optimized(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)))
    average = evaluated(copy.deepcopy(model).requires_grad_(False))

    def step():
        optimizer.zero_grad()
        model(torch.randn(16, 8)).sin().mean().backward()
        optimizer.step()
        with torch.no_grad():
            update(average, model)
            average(torch.randn(16, 8))

    return step


def _lerp(average, model):
    for own, new in zip(average.parameters(), model.parameters(), strict=True):
        own.lerp_(new, 0.1)


def averaged_by_the_whole_state():
    def update(average, model):
        state = model.state_dict()
        for name, own in average.state_dict().items():
            own.copy_(0.9 * own + 0.1 * state[name])

    return _average_of(update)


def a_teacher_that_never_moves():
    return _average_of(lambda average, model: None)


def an_average_in_train_mode_has_statistics_of_its_own():
    return _average_of(_lerp, lambda average: average)


def statistics_that_do_not_move_in_the_trained_network_either():
    model, optimizer = optimized(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)).eval())
    average = copy.deepcopy(model).requires_grad_(False)

    def step():
        optimizer.zero_grad()
        model(torch.randn(16, 8)).sin().mean().backward()
        optimizer.step()
        with torch.no_grad():
            _lerp(average, model)
            average(torch.randn(16, 8))

    return step


def one_network_trained_and_evaluated_in_turn():
    model, optimizer = optimized(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)))

    def step():
        optimizer.zero_grad()
        model.train()(torch.randn(16, 8)).sin().mean().backward()
        optimizer.step()
        with torch.no_grad():
            model.eval()(torch.randn(16, 8))

    return step


def statistics_that_are_copied_just_before_the_evaluation():
    """Once in all steps."""
    model, optimizer = optimized(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8)))
    average = copy.deepcopy(model).eval().requires_grad_(False)
    steps = []

    def step():
        optimizer.zero_grad()
        model(torch.randn(16, 8)).sin().mean().backward()
        optimizer.step()
        with torch.no_grad():
            _lerp(average, model)
            steps.append(len(steps))
            if len(steps) == 6:
                for own, new in zip(average.buffers(), model.buffers(), strict=True):
                    own.copy_(new)
                average(torch.randn(16, 8))

    return step
