import random

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from tests.rules.programs import case_of, in_epochs


def helper_that_seeds_everything():
    def seed_everything(seed=7):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)  # TRAIN010

    return in_epochs(lambda number: torch.randn(4, 4), lambda number: seed_everything())


def shuffled_by_python():
    data = torch.randn(16, 4)

    def evaluate(number):
        random.seed("fixed")  # TRAIN010

    return in_epochs(lambda number: data[random.sample(range(16), 4)], evaluate)


def loader_that_shuffles_alike():
    loader = DataLoader(TensorDataset(torch.randn(12, 4)), batch_size=4, shuffle=True)

    def batches():
        while True:
            torch.manual_seed(3)  # TRAIN010
            yield from loader

    following = batches()
    return in_epochs(lambda number: next(following)[0])


def dropout_masks_that_come_again():
    drop = nn.Dropout(0.5)
    data = torch.randn(4, 4)

    def evaluate(number):
        torch.manual_seed(11)  # TRAIN010

    return in_epochs(lambda number: drop(data), evaluate)


@case_of(in_epochs)
def generator_made_and_seeded_in_each_step(number):
    own = torch.Generator().manual_seed(1234)  # TRAIN010
    data = torch.ones(4, 4)
    return data + 0.1 * torch.randn(4, 4, generator=own)


def order_of_a_generator_seeded_elsewhere():
    own, data = torch.Generator(), torch.randn(16, 4)

    def rewind():
        own.manual_seed(3)

    def batch(number):
        rewind()
        return data[torch.randperm(16, generator=own)[:4]]  # TRAIN010

    return in_epochs(batch)


@case_of(in_epochs)
def seeded_in_each_step(number):
    torch.manual_seed(1234)  # TRAIN010
    return torch.randn(4, 4)


@case_of(in_epochs)
def seeded_after_the_draw_of_each_step(number):
    given = torch.randn(4, 4)
    torch.manual_seed(1234)  # TRAIN010
    return given


def evaluation_that_comes_twice():
    """Noise for the score is the same each time, and so is what is trained on behind it."""
    data = torch.randn(64, 4)

    @torch.no_grad()
    def evaluate(number):
        torch.manual_seed(99)  # TRAIN010
        return (data + torch.randn(64, 4)).mean()

    return in_epochs(
        lambda number: evaluate(number) + data[torch.randint(64, (4,))]
        if number in (9, 19)
        else data[torch.randint(64, (4,))]
    )
