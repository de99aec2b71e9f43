import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from tests.rules.programs import Made, fed, trained_by

ROWS = np.ones((4000, 128), dtype=np.float32)


def _stored(name="rows.npy"):
    file = Path(tempfile.mkdtemp()) / name
    np.save(file, ROWS)
    return file


def _stepping(get, rows=4000):
    return fed(DataLoader(Made(get, rows), batch_size=16), width=128)


def file_mapped_for_each_sample():
    file = _stored()
    return _stepping(lambda index: np.load(file, mmap_mode="r")[index].copy())


def file_read_when_the_first_sample_is_asked_for():
    file, kept = _stored(), []

    def get(index):
        if not kept:
            kept.append(np.load(file))
        return kept[0][index]

    return _stepping(get)


def one_file_for_each_sample():
    folder = Path(tempfile.mkdtemp())
    for n in range(480):
        np.save(folder / f"{n}.npy", ROWS[n])
    return _stepping(lambda index: np.load(folder / f"{index}.npy"), 480)


def a_part_of_the_file_is_read():
    file = Path(tempfile.mkdtemp()) / "rows.bin"
    ROWS.tofile(file)
    return _stepping(
        lambda index: np.fromfile(file, dtype=np.float32, count=128, offset=512 * index)
    )


def read_once_a_step():
    file = _stored()
    model = nn.Linear(128, 1)
    return trained_by(model, lambda: model(torch.from_numpy(np.load(file))).square().mean())


def small_beside_the_sample():
    file = Path(tempfile.mkdtemp()) / "scale.npy"
    np.save(file, np.ones(1, dtype=np.float32))

    def get(index):
        time.sleep(0.01)
        return ROWS[index] * np.load(file)

    return _stepping(get)
