import torch
from torch import nn
from torch.optim import lr_scheduler as schedulers
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import endless, numbered, optimized, trained_once


def _parts(batches=400):
    model = nn.Linear(8, 1)
    loader = DataLoader(TensorDataset(torch.randn(2 * batches, 8)), batch_size=2)
    return model, torch.optim.SGD(model.parameters(), lr=1e-2), loader


def _with_each_batch(make, batches=400):
    model, optimizer, loader = _parts(batches)
    scheduler = make(optimizer)
    each = endless(loader)

    def step():
        trained_once(model, optimizer, next(each)[0])
        scheduler.step()

    return step


def _once_an_epoch(make, batches=5):
    model, optimizer, loader = _parts(batches)
    scheduler = make(optimizer)

    def epochs():
        while True:
            for (x,) in loader:
                trained_once(model, optimizer, x)
                yield
            scheduler.step()

    return epochs().__next__


def a_cosine_over_all_batches_of_two_epochs():
    return _with_each_batch(lambda each: schedulers.CosineAnnealingLR(each, T_max=800))


def a_cosine_that_may_swing_once_and_a_half_an_epoch():
    return _with_each_batch(lambda each: schedulers.CosineAnnealingLR(each, T_max=130))


def a_cosine_whose_least_is_near_its_highest():
    return _with_each_batch(lambda each: schedulers.CosineAnnealingLR(each, 3, eta_min=6e-3))


def warm_restarts_are_meant():
    return _with_each_batch(lambda each: schedulers.CosineAnnealingWarmRestarts(each, T_0=3))


def a_cyclic_rate_is_meant():
    return _with_each_batch(lambda each: schedulers.CyclicLR(each, 1e-4, 1e-2, step_size_up=3))


def a_slow_decay_with_each_batch():
    return _with_each_batch(lambda each: schedulers.ExponentialLR(each, gamma=0.97))


def a_decay_that_stops_at_a_hundredth():
    return _with_each_batch(lambda each: schedulers.MultiStepLR(each, milestones=[30, 60]))


def steps_that_are_made_for_batches():
    return _with_each_batch(lambda each: schedulers.StepLR(each, step_size=400))


def a_loader_of_few_batches():
    return _with_each_batch(lambda each: schedulers.StepLR(each, step_size=30), batches=50)


def a_cosine_of_three_epochs_once_an_epoch():
    return _once_an_epoch(lambda each: schedulers.CosineAnnealingLR(each, T_max=3))


def a_cosine_of_as_many_epochs_as_batches_once_an_epoch():
    return _once_an_epoch(lambda each: schedulers.CosineAnnealingLR(each, T_max=50))


def one_cycle_of_epochs_once_an_epoch():
    return _once_an_epoch(lambda each: schedulers.OneCycleLR(each, 0.1, total_steps=100))


def one_cycle_with_each_batch():
    def make(optimizer):
        return schedulers.OneCycleLR(optimizer, 0.1, epochs=3, steps_per_epoch=400)

    return _with_each_batch(make)


def gradients_of_eight_batches_are_accumulated():
    model, optimizer, loader = _parts()
    scheduler = schedulers.StepLR(optimizer, step_size=20)
    batches = endless(loader)

    def step():
        optimizer.zero_grad()
        for _ in range(8):
            model(next(batches)[0]).square().mean().backward()
        optimizer.step()
        scheduler.step()

    return step


def plateau_of_a_new_number():
    model, optimizer = optimized(nn.Linear(8, 1), lr=0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3)

    def step(number):
        trained_once(model, optimizer, torch.randn(4, 8))
        plateau.step(1.0 / number)

    return numbered(step)
