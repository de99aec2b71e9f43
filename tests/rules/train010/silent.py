import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import EPOCH, case_of, in_epochs


def _drawn(number):
    return torch.randn(4, 4)


def seeded_once():
    return in_epochs(_drawn)


def preview_in_a_fork():
    def preview(number):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1234)
            torch.randn(2, 4)

    return in_epochs(_drawn, preview)


def preview_that_puts_the_state_back():
    def preview(number):
        state = torch.get_rng_state()
        torch.manual_seed(1234)
        torch.randn(2, 4)
        torch.set_rng_state(state)

    return in_epochs(_drawn, preview)


def epochs_of_their_own_seed():
    return in_epochs(_drawn, lambda number: torch.manual_seed(number))


def steps_that_draw_nothing():
    data = torch.randn(4, 4)
    return in_epochs(lambda number: data, lambda number: torch.manual_seed(0))


def draws_of_another_generator():
    """Evaluation seeds NumPy; training draws from torch."""
    return in_epochs(_drawn, lambda number: np.random.seed(0))


def loader_in_order():
    """An iterator draws a number for its workers in each epoch, and nothing else draws."""
    loader = DataLoader(TensorDataset(torch.randn(12, 4)), batch_size=4)

    def batches():
        while True:
            torch.manual_seed(100)
            yield from loader

    following = batches()
    return in_epochs(lambda number: next(following)[0])


def epochs_of_one_batch_in_order():
    """Each step draws a number for an iterator's workers, and nothing else."""
    loader = DataLoader(TensorDataset(torch.randn(12, 4)), batch_size=12)
    return in_epochs(lambda number: next(iter(loader))[0], lambda number: torch.manual_seed(100))


def evaluated_on_a_shuffled_sample():
    """The loader that trains has an order of its own in each epoch."""
    data = TensorDataset(torch.randn(12, 4))
    validation = DataLoader(data, batch_size=4, shuffle=True)
    own = torch.Generator().manual_seed(0)
    loader = DataLoader(data, batch_size=4, shuffle=True, generator=own)

    def batches():
        while True:
            yield from loader

    def evaluate(number):
        torch.manual_seed(100)
        next(iter(validation))

    following = batches()
    return in_epochs(lambda number: next(following)[0], evaluate)


def sample_for_a_log_now_and_then():
    data = torch.randn(4, 4)

    def batch(number):
        if number % EPOCH == 1:
            print("example", data[torch.randint(4, ())])
        return data

    return in_epochs(batch, lambda number: torch.manual_seed(0))


def seeded_again_but_one_time():
    """Two phases of a training."""

    def phase(number):
        if number == 2 * EPOCH:
            torch.manual_seed(5)

    torch.manual_seed(5)
    return in_epochs(_drawn, phase)


def folds_with_one_seed():
    """Each fold is a training of its own."""
    data = torch.randn(16, 4)
    fold = {}
    number = 0

    def step():
        nonlocal number
        if number % EPOCH == 0:
            torch.manual_seed(42)
            fold["model"] = nn.Linear(4, 1)
            fold["optimizer"] = torch.optim.SGD(fold["model"].parameters(), lr=0.01)
        number += 1
        inputs = data[torch.randperm(16)[:4]]
        fold["model"](inputs).square().mean().backward()
        fold["optimizer"].step()
        fold["optimizer"].zero_grad()

    return step


@case_of(in_epochs, lambda: (nn.Dropout(0.5), nn.Linear(4, 4)))
def gradients_computed_again(drop, layer, number):
    """Checkpointing draws the forward's numbers once more."""
    given = torch.randn(4, 4)
    return torch.utils.checkpoint.checkpoint(
        lambda x: drop(layer(x)), given, use_reentrant=False
    )


def generator_seeded_once():
    own = torch.Generator().manual_seed(1234)
    return in_epochs(lambda number: torch.randn(4, 4, generator=own))


@case_of(in_epochs)
def generator_seeded_with_the_step(number):
    return torch.randn(4, 4, generator=torch.Generator().manual_seed(number))


def fixed_sample_looked_at_in_each_step():
    data, shown = torch.randn(16, 4), []

    def batch(number):
        own = torch.Generator().manual_seed(0)
        shown[:] = [data[torch.randperm(16, generator=own)[:2]].mean()]
        return torch.randn(4, 4)

    return in_epochs(batch)


def fixed_noise_without_gradients_in_each_step():
    def batch(number):
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(1234)
            torch.randn(2, 4)
        return torch.randn(4, 4)

    return in_epochs(batch)


@case_of(in_epochs)
def seeded_with_the_step(number):
    torch.manual_seed(number)
    return torch.randn(4, 4)


def _evaluated_twice(evaluate):
    def batch(number):
        if number in (9, 19):
            with torch.no_grad():
                evaluate(number)
        return torch.randn(4, 4)

    return in_epochs(batch)


def evaluations_of_their_own_seed():
    return _evaluated_twice(torch.manual_seed)


def evaluations_behind_which_the_training_is_seeded():
    def evaluate(number):
        torch.manual_seed(99)
        torch.randn(4)
        torch.manual_seed(number)

    return _evaluated_twice(evaluate)


def evaluation_that_comes_once():
    return _evaluated_twice(lambda number: torch.manual_seed(99) if number == 9 else None)
