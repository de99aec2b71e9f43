import torch
from torch import nn
from torch.optim import lr_scheduler as schedulers

from tests.rules.opt007.silent import _parts
from tests.rules.programs import endless, numbered, optimized, trained_once


def behind_a_warm_up():
    model, optimizer, loader = _parts()
    warm = schedulers.LinearLR(optimizer, total_iters=2)
    cosine = schedulers.CosineAnnealingLR(optimizer, T_max=50)
    scheduler = schedulers.SequentialLR(optimizer, [warm, cosine], milestones=[2])
    batches = endless(loader)

    def step():
        trained_once(model, optimizer, next(batches)[0])
        scheduler.step()  # OPT007

    return step


def steps_of_thirty_epochs_with_each_batch():
    model, optimizer, loader = _parts()
    scheduler = schedulers.StepLR(optimizer, step_size=30)
    batches = endless(loader)

    def step():
        trained_once(model, optimizer, next(batches)[0])
        scheduler.step()  # OPT007

    return step


def milestones_in_epochs_with_each_batch():
    model, optimizer, loader = _parts()
    scheduler = schedulers.MultiStepLR(optimizer, milestones=[30, 60, 90])
    batches = endless(loader)

    def step():
        trained_once(model, optimizer, next(batches)[0])
        scheduler.step()  # OPT007

    return step


def a_decay_of_each_epoch_with_each_batch():
    model, optimizer, loader = _parts()
    scheduler = schedulers.ExponentialLR(optimizer, gamma=0.95)
    batches = endless(loader)

    def step():
        trained_once(model, optimizer, next(batches)[0])
        scheduler.step()  # OPT007

    return step


def one_cycle_in_batches_once_an_epoch():
    model, optimizer, loader = _parts(batches=5)
    scheduler = schedulers.OneCycleLR(optimizer, 0.1, epochs=90, steps_per_epoch=len(loader))

    def epochs():
        while True:
            for (x,) in loader:
                trained_once(model, optimizer, x)
                yield
            scheduler.step()  # OPT007

    return epochs().__next__


def plateau_of_a_number_that_is_old():
    model, optimizer = optimized(nn.Linear(8, 1), lr=0.1)
    plateau, score = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3), [1.0]

    def step(number):
        trained_once(model, optimizer, torch.randn(4, 8))
        if number % 8 == 0:
            score[0] *= 0.9
        plateau.step(score[0])  # OPT007

    return numbered(step)
