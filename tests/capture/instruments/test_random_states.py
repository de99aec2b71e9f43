"""A number for the state of each shared generator."""

import random
from collections.abc import Callable

import numpy as np
import pytest
import torch

from auditor.capture.instruments.environment import random_states

DRAWS: dict[str, Callable[[], object]] = {
    "torch": lambda: torch.rand(1),
    "random": random.random,
    "numpy": lambda: np.random.rand(),  # noqa: NPY002
}
SEEDS: dict[str, Callable[[int], object]] = {
    "torch": torch.manual_seed,
    "random": random.seed,
    "numpy": np.random.seed,  # noqa: NPY002
}


@pytest.mark.parametrize("name", DRAWS)
def test_it_differs_after_a_draw_and_comes_back_with_the_seed(name):
    SEEDS[name](3)
    before = random_states()
    assert random_states() == before
    DRAWS[name]()
    after = random_states()
    assert {each for each in after if after[each] != before[each]} == {name}
    SEEDS[name](3)
    assert random_states()[name] == before[name]
    SEEDS[name](4)
    assert random_states()[name] != before[name]
