"""Processes that a script starts itself are counted."""

import multiprocessing
from multiprocessing.process import BaseProcess

import pytest
from torch.utils.data import DataLoader

from auditor.capture.child import SpawnedProcesses, no_step


def train(rank: int) -> None:
    """Stands for a trainer of one rank."""


def test_trainers_are_counted_and_loaders_workers_are_not():
    before, spawned = vars(BaseProcess)["start"], SpawnedProcesses()
    spawned.install()
    try:
        assert list(DataLoader([1, 2], num_workers=1, batch_size=None)) == [1, 2]
        assert spawned.n == 0
        processes = [
            multiprocessing.get_context("fork").Process(target=train, args=(rank,))
            for rank in range(2)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
    finally:
        spawned.uninstall()
    assert spawned.n == 2
    assert [process.exitcode for process in processes] == [0, 0]
    assert vars(BaseProcess)["start"] is before


@pytest.mark.parametrize(
    ("started", "said"),
    [
        (0, "without a single optimizer.step()"),
        (1, "started 1 process by"),
        (4, "started 4 processes by"),
    ],
)
def test_a_script_without_a_step_is_told_why(started, said):
    assert said in str(no_step("main.py", started))
